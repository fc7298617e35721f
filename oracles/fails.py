"""A backend refuses the model, or fails while it runs.

    onnxreduce model.onnx --oracle fails --set backend=ort
    onnxreduce model.onnx --oracle fails --set backend=ort@1.28.0 --set "message=Dimension mismatch"

Held from the original: where it fails (load or run) and the cause in the message, without names,
numbers and paths.
"""

import re

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, warm_backend
from onnxreduce.differential import error_signature, run_on
from onnxreduce.suspects import FAILURE_SOURCES, Scene
from onnxreduce.suspects import suspects as find_suspects


def interesting(case, *, backend="ort", message="", healthy=""):
    """A backend refuses the model, or fails while it runs.

    backend: the one that fails; message: a regular expression that its message must match;
    healthy: another one, on which the model must still run.
    """
    ran = run_on(warm_backend(backend), case)
    if ran.error is None:
        return Verdict.boring(f"{backend} runs it")
    said = " ".join(f"{ran.error}{ran.remark}".split())
    if not re.search(message, ran.error.message):
        return Verdict.boring(f"another message than '{message}': {said}")
    if healthy:
        other = run_on(warm_backend(healthy), case)
        if other.error:
            return Verdict.boring(f"{healthy} fails too: {other.error}")
    return Verdict.interesting(said, error_signature(ran.error, case))


def suspects(case, *, backend="ort", **others):
    """Nodes and values that the message mentions, else the rarest rewrite."""
    side = warm_backend(backend)
    return find_suspects(Scene(str(case.model_path), case.inputs, side, side), FAILURE_SOURCES)


def identity(*, backend="ort", healthy="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(warm_backend(spec).version() for spec in (backend, healthy) if spec)


def teardown():
    close_backends()
