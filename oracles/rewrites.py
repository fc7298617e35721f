"""A tool that rewrites models changes what the model computes.

    onnxreduce model.onnx --oracle rewrites --set "tool=onnxsim {model} {output}"
    onnxreduce model.onnx --oracle rewrites --set tool=onnxoptimizer:optimize
    onnxreduce model.onnx --oracle rewrites --set tool=mine.py:rewrite

The tool is a command with {model} and {output} in it, or a Python function, as module:function or
FILE.py:function, that takes a ModelProto and returns one (or changes the one it got). The model
before and after must agree on a backend. Held from the original: that the results differ, or the
cause of the failure of the tool or of the rewritten model. Wrong values and wrong shapes are taken
for the same bug: values are wrong where a wrong shape meets an operator that reads along an axis.
`loose=false` holds the kind of difference as well.
"""

import importlib
import importlib.util
import shlex
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import onnx

from onnxreduce import Verdict, differential
from onnxreduce.backends import BackendError, close_backends, warm_backend
from onnxreduce.backends.cause import cause, model_names
from onnxreduce.backends.expose import exposed
from onnxreduce.compare import Tolerance, compare
from onnxreduce.errors import UsageError
from onnxreduce.suspects import Scene
from onnxreduce.suspects import suspects as find_suspects


def interesting(
    case,
    *,
    tool: str,
    backend="ort:opt=disable_all",
    atol=1e-3,
    rtol=1e-3,
    scale=0.0,
    noise=True,
    loose=True,
    largest=0.0,
):
    """A tool that rewrites models changes what the model computes.

    tool: a command with {model} and {output}, or module:function; backend: runs both models;
    atol, rtol: as in numpy.allclose; scale: the share of an output's largest value that is
    tolerated; noise: turn down numerical noise; loose: take wrong values, shapes, dtypes and NaN
    for the same bug; largest: the original's largest value (measured when 0).
    """
    side = warm_backend(backend)
    before = differential.run_on(side, case)
    if before.error:
        return Verdict.boring(f"the model itself fails: {before.error}")
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
        path = Path(folder, "rewritten.onnx")
        try:
            rewrite(tool, case, path)
        except ToolFailed as error:
            telling = cause(str(error), model_names(case.model))
            return Verdict.interesting(f"the tool fails: {error}"[:500], f"tool: {telling}")
        after = differential.run_on(side, SimpleNamespace(model_path=path, inputs=case.inputs))
    if after.error:
        detail = f"the rewritten model fails: {after.error}"
        return Verdict.interesting(
            " ".join(detail.split())[:500],
            f"rewritten fails: {differential.error_signature(after.error, case)}",
        )
    tolerance = Tolerance(atol, rtol, scale)
    found = compare(before.outputs, same_names(before.outputs, after.outputs), tolerance)
    if found.agree:
        return differential.agreement(found, "the model before and after", tolerance)
    if found.kind == "values" and differential.out_of_range(found, largest):
        return Verdict.boring(f"out of the original's range ({found.summary()})")
    if noise and differential.is_noise(case, side, before.outputs, found):
        return Verdict.boring(f"looks like numerical noise ({found.summary()})")
    kind = "other results" if loose else differential.kind_of(found, before.outputs)
    return Verdict.interesting(found.summary(), kind)


class ToolFailed(Exception):
    """The tool raised, or its command ended with a status other than 0."""


def rewrite(tool, case, path):
    """Run the tool on the case's model, and leave its result at `path`."""
    if "{model}" in tool and "{output}" in tool:
        run_command(tool, str(case.model_path), str(path))
    elif ":" in tool and " " not in tool:
        call_function(tool, case, path)
    else:
        raise UsageError(
            f"rewrites: tool='{tool}': write a command with {{model}} and {{output}}, "
            "or a function as module:function"
        )


def run_command(tool, model, output):
    words = [
        word.replace("{model}", model).replace("{output}", output) for word in shlex.split(tool)
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UsageError(f"rewrites: cannot run {words[0]}: {error.strerror}") from error
    if done.returncode or not Path(output).is_file():
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        ended = f"status {done.returncode}" if done.returncode else "no output file"
        raise ToolFailed(f"{ended}: {said[-1].strip() if said else 'nothing said'}")


def call_function(tool, case, path):
    place, _, name = tool.rpartition(":")
    function = getattr(load_module(place), name, None)
    if function is None:
        raise UsageError(f"rewrites: {place} has no function {name}")
    model = onnx.load(str(case.model_path))
    try:
        result = function(model)
    except Exception as error:
        raise ToolFailed(f"{type(error).__name__}: {error}") from error
    onnx.save(model if result is None else result, str(path))


def load_module(place):
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise UsageError(f"rewrites: cannot import {place}: {error}") from error
    if not Path(place).is_file():
        raise UsageError(f"rewrites: no file {place}")
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_names(before, after):
    """Outputs under the names that they had, when the tool renamed them all in place."""
    if len(before) == len(after) and not set(before) & set(after):
        return dict(zip(before, after.values(), strict=True))
    return after


class Rewriting:
    """The tool in front of a backend, as a side of its own."""

    def __init__(self, tool, side):
        self.tool = tool
        self.side = side

    def run(self, model_path, inputs):
        return self._after(self.side.run, model_path, inputs)

    def run_rewritten(self, model_path, inputs):
        return self._after(self.side.run_all, model_path, inputs)

    def run_all(self, model_path, inputs):
        with exposed(model_path) as path:
            return self.run(path, inputs)

    def rewrite(self, model_path, target):
        try:
            rewrite(self.tool, SimpleNamespace(model_path=model_path), target)
        except ToolFailed as error:
            raise BackendError("load", str(error)) from error

    def _after(self, run, model_path, inputs):
        with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
            path = str(Path(folder, "rewritten.onnx"))
            self.rewrite(model_path, path)
            return run(path, inputs)


def suspects(
    case, *, tool, backend="ort:opt=disable_all", atol=1e-3, rtol=1e-3, scale=0.0, **others
):
    """Values that the rewritten model computes wrongly from right ones; what the tool mentions."""
    side = warm_backend(backend)
    both = side, Rewriting(tool, side)
    tolerance = Tolerance(atol, rtol, scale)
    return find_suspects(Scene(str(case.model_path), case.inputs, *both, tolerance))


def hold(case, *, backend="ort:opt=disable_all", largest=0.0, **others):
    """Parameters that are measured once, on the original."""
    return {"largest": largest or differential.magnitude(case, warm_backend(backend))}


def identity(*, tool="", backend="ort:opt=disable_all", **others):
    """The versions that a verdict depends on."""
    return "; ".join(filter(None, (package_of(tool), warm_backend(backend).version())))


def package_of(tool):
    """The installed package that a tool is of, with its version; empty for any other tool."""
    words = shlex.split(tool)
    if not words or "{model}" not in tool:
        module = tool.rpartition(":")[0]
    elif "-m" in words[:-1]:
        module = words[words.index("-m") + 1]
    else:
        name = Path(words[0]).name
        for script in metadata.entry_points(group="console_scripts", name=name):
            return f"{script.dist.name} {script.dist.version}"
        return ""
    owners = metadata.packages_distributions().get(module.partition(".")[0], [])
    return f"{owners[0]} {metadata.version(owners[0])}" if owners else ""


def teardown():
    close_backends()
