"""A backend takes its process down: a segmentation fault, an abort, a crashed browser.

    onnxreduce model.onnx --oracle crashes --set backend=ort
    onnxreduce model.onnx --oracle crashes --set backend=plugin:mine.py --set message=Pad

The backend runs in a process of its own, which is started anew after each crash. Held from the
original: the signal, and what the process said last, where it said why.
"""

import re

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, isolated, warm_backend
from onnxreduce.differential import error_signature, run_on
from onnxreduce.suspects import FAILURE_SOURCES, Scene
from onnxreduce.suspects import suspects as find_suspects


def interesting(case, *, backend="ort", message="", healthy=""):
    """A backend takes its process down.

    backend: the one that crashes; message: a regular expression for the signal and what the
    process printed (a function in its stack, ...); healthy: another backend, on which the model
    must still run.
    """
    ran = run_on(warm_backend(isolated(backend)), case)
    if ran.error is None:
        return Verdict.boring(f"{backend} runs it")
    said = " ".join(f"{ran.error}{ran.remark}".split())
    if ran.error.kind != "crash":
        return Verdict.boring(f"no crash, but {said}")
    if not re.search(message, f"{ran.error.message}\n{ran.error.log}"):
        return Verdict.boring(f"another crash than '{message}': {said}")
    if healthy:
        other = run_on(warm_backend(isolated(healthy)), case)
        if other.error:
            return Verdict.boring(f"{healthy} fails too: {other.error}")
    return Verdict.interesting(said, error_signature(ran.error, case))


def suspects(case, *, backend="ort", **others):
    """Nodes and values that the process mentioned before it died, else the rarest rewrite."""
    side = warm_backend(isolated(backend))
    return find_suspects(Scene(str(case.model_path), case.inputs, side, side), FAILURE_SOURCES)


def identity(*, backend="ort", healthy="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(warm_backend(isolated(spec)).version() for spec in (backend, healthy) if spec)


def teardown():
    close_backends()
