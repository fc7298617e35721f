"""A backend takes its process down: a segmentation fault, an abort, a crashed browser.

    onnxreduce model.onnx --oracle crashes --set backend=ort
    onnxreduce model.onnx --oracle crashes --set backend=plugin:mine.py --set message=Pad

The backend runs in a process of its own, which is started anew after each crash. Held from the
original: the signal, and what the process said last, where it said why.
"""

import re

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, parse_spec, warm_backend
from onnxreduce.differential import error_signature, run_on


def isolated(spec):
    """The backend in a process of its own; a browser and another interpreter are that already."""
    parsed = parse_spec(spec)
    apart = parsed.name == "web" or parsed.version or "python" in parsed.options
    if apart or "isolate" in parsed.options:
        return warm_backend(spec)
    return warm_backend(f"{spec}{',' if parsed.options else ':'}isolate")


def interesting(case, *, backend="ort", message="", healthy=""):
    """A backend takes its process down.

    backend: the one that crashes; message: a regular expression for the signal and what the
    process printed (a function in its stack, ...); healthy: another backend, on which the model
    must still run.
    """
    ran = run_on(isolated(backend), case)
    if ran.error is None:
        return Verdict.boring(f"{backend} runs it")
    said = " ".join(str(ran.error).split())
    if ran.error.kind != "crash":
        return Verdict.boring(f"no crash, but {said}")
    if not re.search(message, f"{ran.error.message}\n{ran.error.log}"):
        return Verdict.boring(f"another crash than '{message}': {said}")
    if healthy:
        other = run_on(isolated(healthy), case)
        if other.error:
            return Verdict.boring(f"{healthy} fails too: {other.error}")
    return Verdict.interesting(said, error_signature(ran.error, case))


def identity(*, backend="ort", healthy="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(isolated(spec).version() for spec in (backend, healthy) if spec)


def teardown():
    close_backends()
