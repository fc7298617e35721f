"""A backend makes NaN or infinity of finite inputs and weights.

    onnxreduce model.onnx --oracle nan --set backend=ort
    onnxreduce model.onnx --oracle nan --set backend=web:webgpu --set healthy=web:wasm

Held from the original: whether it is NaN or infinity. Give `healthy` (a backend whose result is
finite) where there is one; else the reduction may end at an operation that has no finite result.
"""

import numpy as np
import onnx

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, warm_backend
from onnxreduce.differential import all_finite, run_on
from onnxreduce.suspects import NONFINITE_SOURCES, Scene
from onnxreduce.suspects import suspects as find_suspects


def interesting(case, *, backend="ort", healthy=""):
    """A backend makes NaN or infinity of finite inputs and weights.

    backend: the one that makes them; healthy: another one, whose outputs must be finite.
    """
    if not all_finite(case.inputs):
        return Verdict.boring("an input is not finite itself")
    ran = run_on(warm_backend(backend), case)
    if ran.error:
        return Verdict.boring(f"{backend} fails: {ran.error}")
    found = [name for name, value in ran.outputs.items() if not all_finite({name: value})]
    if not found:
        return Verdict.boring(f"all outputs of {backend} are finite")
    if not all_finite(weights(case)):
        return Verdict.boring("a weight is not finite itself")
    if healthy:
        other = run_on(warm_backend(healthy), case)
        if other.error or not all_finite(other.outputs):
            return Verdict.boring(f"{healthy}: {other.error or 'not finite either'}")
    kind, detail = describe(found[0], np.asarray(ran.outputs[found[0]]).astype(np.float64))
    return Verdict.interesting(detail, kind)


def describe(name, array):
    """What is not finite, and where."""
    nan = np.isnan(array)
    bad = nan if nan.any() else np.isinf(array)
    place = ",".join(str(i) for i in np.argwhere(bad)[0])
    kind = "nan" if nan.any() else "inf"
    return kind, f"{kind} at {name}[{place}] and {bad.sum() - 1} more of {bad.size} elements"


def weights(case):
    """The initializers of the main graph by name."""
    folder = str(case.model_path.parent) if hasattr(case.model_path, "parent") else ""
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor, folder)
        for tensor in case.model.graph.initializer
    }


def suspects(case, *, backend="ort", **others):
    """Where the first value that is not finite comes from."""
    side = warm_backend(backend)
    return find_suspects(Scene(str(case.model_path), case.inputs, side, side), NONFINITE_SOURCES)


def identity(*, backend="ort", healthy="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(warm_backend(spec).version() for spec in (backend, healthy) if spec)


def teardown():
    close_backends()
