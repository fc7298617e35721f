"""Finding an oracle by its spec: a Python file, an executable, or a ready-made name.

Nothing of the oracle is run here: Python files are parsed, so that a mistake in one costs a clear
line and not a strange reduction.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnxreduce
from onnxreduce.errors import UsageError
from onnxreduce.oracle import source
from onnxreduce.oracle.runners import ExecutableRunner, PythonRunner, Runner
from onnxreduce.oracle.settings import Signature, signature_of

ENTRY_POINTS = "onnxreduce.oracles"

MOST = "JOBS"
"""A constant of a Python oracle: how many questions may be asked at a time, without ``--jobs``."""


@dataclass(frozen=True)
class OracleSource:
    """Where an oracle is and how to start it.

    Attributes:
        name: as the user gave it.
        path: its file, absolute.
        settings: keyword arguments for `interesting`, converted.
        command: how an executable is started; empty for a Python oracle.
        module: the name by which a Python oracle is imported, if not by its path.
        source_hash: of the file, what it imports from its own folder, and versions.
        most: how many questions it bears at a time (its `JOBS`); None: any number.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    command: tuple[str, ...]
    module: str | None
    source_hash: str
    most: int | None = None

    @property
    def jobs(self) -> int:
        """How many questions to ask at a time: one for each core, but a GPU is there once."""
        if self.most is not None:
            return self.most
        once = any(_is_there_once(str(value)) for value in self.settings.values())
        return 1 if once else len(os.sched_getaffinity(0))

    def open(self) -> Runner:
        """A runner; its process starts with the first question."""
        if self.command:
            return ExecutableRunner(self.command)
        return PythonRunner(self.path, self.module, self.settings)

    def holding(self, held: Mapping[str, Any]) -> OracleSource:
        """The same oracle with what it measured on the original (see `contract`)."""
        return replace(self, settings={**self.settings, **held})

    def fingerprint(self, identity: str = "") -> str:
        """What answers depend on besides the candidate: source, settings, versions.

        Args:
            identity: what the oracle says itself (`runners.identity_of`).
        """
        parts = [self.source_hash, repr(sorted(self.settings.items())), identity]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _is_there_once(value: str) -> bool:
    """Does a setting name a backend on a device of which there is one: a GPU, a phone, a browser
    that somebody has opened?"""
    name, _, options = value.partition(":")
    words = options.split(",")
    if name.partition("@")[0] == "web":
        return "wasm" not in words or any(w.startswith(("agent", "cdp=")) for w in words)
    asked = [word.partition("=")[2] for word in words if word.startswith(("ep=", "device="))]
    return any(not device.startswith("CPU") for device in asked)


@dataclass(frozen=True)
class OracleInfo:
    """A line of ``onnxreduce oracles``."""

    name: str
    summary: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        parameters = f"\n    --set {', '.join(self.parameters)}" if self.parameters else ""
        return f"{self.name}: {self.summary}{parameters}"


@dataclass(frozen=True)
class Place:
    """Where a ready-made oracle is: a file, or a module of an installed package."""

    path: Path | None = None
    module: str | None = None

    def file(self) -> Path:
        """Raises UsageError when the module is gone."""
        if self.path:
            return self.path
        try:
            found = importlib.util.find_spec(self.module or "")
        except (ImportError, ValueError):
            found = None
        if found is None or not found.origin:
            raise UsageError(f"there is no module {self.module}: reinstall the package it is of")
        return Path(found.origin)


def find_oracle(spec: str, settings: Mapping[str, str] | None = None) -> OracleSource:
    """The oracle that ``--oracle`` and ``--set`` describe.

    A bare word is first looked up among the ready-made ones; ``./word`` is always a file.

    Raises:
        UsageError: there is no such oracle, it cannot work as one, or a setting does not fit it.
    """
    settings = settings or {}
    if os.sep not in spec and not spec.endswith(".py"):
        ready_made = dict(_ready_made())
        if spec in ready_made:
            place = ready_made[spec]
            return _python(spec, place.file(), place.module, settings)
        if not Path(spec).is_file():
            raise UsageError(_no_such(spec, sorted(ready_made)))
    path = Path(spec).expanduser().absolute()
    _check_file(path, spec)
    if path.suffix == ".py":
        return _python(spec, path, None, settings)
    return _executable(spec, path, (str(path),), settings)


def list_oracles() -> list[OracleInfo]:
    """The ready-made oracles: the shipped ones, then those of installed packages."""
    return [_describe(name, place) for name, place in _ready_made()]


def _describe(name: str, place: Place) -> OracleInfo:
    try:
        tree = source.parse(place.file())
    except UsageError as error:
        return OracleInfo(name, f"not usable: {error}", ())
    function = source.find_function(tree)
    if function is None:
        return OracleInfo(name, f"not usable: it defines no {source.FUNCTION}()", ())
    summary = source.docstring_line(function) or source.docstring_line(tree)
    parameters = signature_of(function).parameters
    return OracleInfo(name, summary, tuple(str(parameter) for parameter in parameters))


def _check_file(path: Path, spec: str) -> None:
    if path.is_dir():
        raise UsageError(f"oracle {spec} is a directory: give a file")
    if not path.exists():
        raise UsageError(f"oracle {spec}: there is no such file")
    if path.suffix != ".py" and not os.access(path, os.X_OK):
        raise UsageError(f"oracle {spec} is not executable: chmod +x it, or name it *.py")


def _python(spec: str, path: Path, module: str | None, settings: Mapping[str, str]) -> OracleSource:
    tree = source.parse(path)
    function = source.find_function(tree)
    if isinstance(function, ast.AsyncFunctionDef):
        raise UsageError(f"oracle {spec}: {source.FUNCTION}() must not be async")
    if function:
        arguments = function.args
        if not (arguments.posonlyargs or arguments.args or arguments.vararg):
            raise UsageError(f"oracle {spec}: {source.FUNCTION}() must take the case")
        values = signature_of(function).convert(settings, spec)
    elif source.binds(tree, source.FUNCTION):  # imported: its parameters are not in sight
        values = Signature((), anything=True).convert(settings, spec)
    elif source.does_something(tree):
        return _executable(spec, path, (sys.executable, str(path)), settings, tree)
    else:
        near = difflib.get_close_matches(source.FUNCTION, source.functions(tree), 1, 0.7)
        hint = f" (is {near[0]}() meant?)" if near else ""
        raise UsageError(
            f"oracle {spec} defines no {source.FUNCTION}(case){hint}, "
            "and as a script it does nothing: it would find every model interesting"
        )
    most = source.whole_number(tree, MOST)
    return OracleSource(spec, path, values, (), module, source.fingerprint(path, tree), most)


def _executable(
    spec: str,
    path: Path,
    command: tuple[str, ...],
    settings: Mapping[str, str],
    tree: ast.Module | None = None,
) -> OracleSource:
    if settings:
        raise UsageError(
            f"--set {next(iter(settings))}: the oracle {spec} is an executable; "
            f"only a Python file with {source.FUNCTION}(case) has parameters"
        )
    return OracleSource(spec, path, {}, command, None, source.fingerprint(path, tree))


def _no_such(spec: str, names: list[str]) -> str:
    near = difflib.get_close_matches(spec, names, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    there_are = f"; there are: {', '.join(names)}" if names else ""
    return f"oracle {spec}: no such file or ready-made oracle{hint}{there_are}"


def _ready_made() -> Iterator[tuple[str, Place]]:
    package = Path(onnxreduce.__file__).resolve().parent
    for folder in (package / "_oracles", package.parent / "oracles"):
        if folder.is_dir():
            for path in sorted(folder.glob("[!_]*.py")):
                yield path.stem, Place(path)
            break
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        yield entry.name, Place(module=entry.module)
