"""ONNX Runtime Web gives other results on WebGPU than on wasm.

    onnxreduce model.onnx --oracle webgpu_vs_wasm
    onnxreduce model.onnx --oracle webgpu_vs_wasm --set version=1.23.2 --set bundle=ort.all.min.mjs
    onnxreduce model.onnx --oracle webgpu_vs_wasm --set gpu=webgl --set bundle=ort.all.min.mjs

The same as `differs` with expected=web:wasm and actual=web:webgpu, in one browser each.
"""

from onnxreduce import differential
from onnxreduce.backends import close_backends, warm_backend
from onnxreduce.compare import Tolerance
from onnxreduce.suspects import Scene
from onnxreduce.suspects import suspects as find_suspects

JOBS = 1
"""The GPU is there once."""


def sides(version="", bundle="", gpu="webgpu"):
    """The two backends: `version` of onnxruntime-web, and which of its bundles."""
    at = f"@{version}" if version else ""
    which = f",bundle={bundle}" if bundle else ""
    return warm_backend(f"web{at}:wasm{which}"), warm_backend(f"web{at}:{gpu}{which}")


def interesting(
    case, *, version="", bundle="", gpu="webgpu", atol=1e-3, rtol=1e-3, noise=True, largest=0.0
):
    """ONNX Runtime Web gives other results on WebGPU than on wasm."""
    wasm, webgpu = sides(version, bundle, gpu)
    tolerance = Tolerance(atol, rtol)
    return differential.differs(case, wasm, webgpu, tolerance, noise=noise, largest=largest)


def hold(case, *, version="", bundle="", gpu="webgpu", largest=0.0, **others):
    """Parameters that are measured once, on the original."""
    return {"largest": largest or differential.magnitude(case, sides(version, bundle, gpu)[0])}


def suspects(case, *, version="", bundle="", gpu="webgpu", atol=1e-3, rtol=1e-3, **others):
    """Where the error is born, as far as one can look; what an error message mentions."""
    both = sides(version, bundle, gpu)
    return find_suspects(Scene(str(case.model_path), case.inputs, *both, Tolerance(atol, rtol)))


def identity(*, version="", bundle="", gpu="webgpu", **others):
    """The versions that a verdict depends on."""
    return "; ".join(backend.version() for backend in sides(version, bundle, gpu))


def teardown():
    close_backends()
