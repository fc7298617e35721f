"""``repro.py``: a script that shows the bug to whoever runs it.

It holds the model and the inputs, where they are small, and runs the two sides by the plain calls
of their own packages, so that a maintainer need not install a reducer to look at a bug. Where the
oracle is code of the user's own, a copy of it goes into ``oracle/`` and the script asks that.
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

import onnx

from onnxreduce.emit import _backends, _scripts
from onnxreduce.emit._python import inputs_source, model_source, parts_of
from onnxreduce.emit.escape import docstring, line
from onnxreduce.emit.text import model_text
from onnxreduce.files import write_atomically
from onnxreduce.result import Result
from onnxreduce.sides import Side

NAME = "repro.py"
ORACLE = "oracle"
"""The folder of the user's oracle and what it imports."""


def emit(result: Result, directory: Path) -> None:
    shutil.rmtree(directory / ORACLE, ignore_errors=True)
    write_atomically(directory / NAME, script(result).encode("utf-8", "backslashreplace"))
    if kind(result) in ("oracle", "executable"):
        _copy(result.oracle.files, directory / ORACLE)
        for value in result.oracle.parameters.values():
            _copy(_scripts.files_in(value), directory / ORACLE)
    for side in result.sides:
        if side.spec.name == "plugin":
            _copy([_backends.plugin_file(side.spec)], directory)


def _copy(files: tuple[Path, ...] | list[Path], target: Path) -> None:
    target.mkdir(exist_ok=True)
    top = files[0].parent if files else target
    for file in files:
        place = target / (file.relative_to(top) if file.is_relative_to(top) else file.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        shutil.copymode(file, place)


def kind(result: Result) -> str:
    """How the script decides whether the bug shows: a name of `_scripts.CHECKS`."""
    oracle = result.oracle
    roles = {side.role: side for side in result.sides}
    if {"expected", "actual"} <= roles.keys():
        if roles["expected"].spec.name == roles["actual"].spec.name == "web":
            return "page"
        signature = result.verdict.signature or ""
        for role in ("expected", "actual"):
            if signature.startswith(f"{role} fails"):
                return f"{role} fails"
        if oracle.ready_made or "atol" in oracle.parameters:
            return "differ"
    if oracle.ready_made and "backend" in roles and oracle.name in ("fails", "crashes", "nan"):
        return oracle.name
    if not oracle.files:
        return "function"
    return "executable" if oracle.executable else "oracle"


def script(result: Result) -> str:
    """The source of ``repro.py``."""
    chosen = kind(result)
    sides = [side for side in result.sides if _needed(side, chosen)]
    sources = {side.role: _backends.source(_function(side.role), side) for side in sides}
    crash = chosen == "crashes" or " fails: crash" in (result.verdict.signature or "")
    elsewhere = {
        role: each.python or ("sys.executable" if crash else "") for role, each in sources.items()
    }
    head = _head(result, chosen, [r for each in sources.values() for r in each.requirements])
    parts = [
        f"{head}\n{_scripts.BEGIN}",
        *_data(result),
        *(each.code for each in sources.values()),
        _scripts.table({role: _function(role) for role in sources}, elsewhere) if sources else "",
        _scripts.check(chosen, result),
        _scripts.end(elsewhere=any(elsewhere.values())),
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _needed(side: Side, chosen: str) -> bool:
    return chosen in _scripts.RUNS_SIDES and side.role in ("expected", "actual", "backend")


def _function(role: str) -> str:
    return f"run_{role}"


def _head(result: Result, chosen: str, requirements: list[str]) -> str:
    wanted = dict.fromkeys(["numpy", f"onnx=={onnx.__version__}", *requirements])
    if chosen == "oracle":
        wanted |= dict.fromkeys(_distributions(result.oracle.packages))
    if chosen == "page":
        wanted["playwright"] = None
    bug = docstring(result.verdict.detail or result.oracle.summary or "see the oracle")
    install = " ".join(f"'{word}'" if "<" in word else word for word in wanted)
    return _scripts.HEAD.format(bug=bug, install=install, more=_scripts.NEEDS.get(chosen, ""))


def _distributions(packages: tuple[str, ...]) -> list[str]:
    """What to install for the packages that an oracle imports: pinned, since what it says may
    depend on their versions."""
    known = metadata.packages_distributions()
    found = []
    for package in packages:
        name = known.get(package, [""])[0]
        if package == "onnxreduce":
            found.append(package)
        elif name and package not in ("numpy", "onnx", *sys.stdlib_module_names):
            found.append(f"{name}=={metadata.version(name)}")
    return found


def _data(result: Result) -> list[str]:
    case = result.reduced
    model = model_source(case)
    if model is not None:
        shown = _scripts.MODEL_TEXT.format(text=model)
    else:
        lines = model_text(case, 0).splitlines()[: _scripts.SHOWN]
        comment = "\n".join(f"# {line(each, 110)}" for each in lines)
        shown = f"{_scripts.MODEL_FILE}\n{comment}" if comment else _scripts.MODEL_FILE
    inputs = inputs_source(case.inputs)
    if inputs is not None:
        return [shown, _scripts.INPUTS.format(inputs=inputs)]
    exotic = any(
        isinstance(value, list) or part.dtype.isbuiltin != 1
        for value in case.inputs.values()
        for part in parts_of(value)
    )
    return [shown, _scripts.INPUTS_EXOTIC if exotic else _scripts.INPUTS_FILE]
