"""What runs inside the worker processes of the runners; called by name, never imported there.

One process holds one Python oracle: it is loaded by `prepare` and stays in this module's state.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxreduce.oracle.contract import Candidate, as_verdict
from onnxreduce.verdict import Verdict

_oracle: ModuleType | None = None


def prepare(path: str, module: str | None) -> None:
    """Load the oracle, by module name if it has one, and call its `setup`."""
    global _oracle
    _oracle = importlib.import_module(module) if module else _load(Path(path))
    if hasattr(_oracle, "setup"):
        _oracle.setup()


def ask(settings: Mapping[str, Any], model_path: Path, inputs_path: Path) -> Verdict:
    """One question."""
    return as_verdict(_loaded().interesting(Candidate(model_path, inputs_path), **settings))


def suspects(settings: Mapping[str, Any], model_path: Path, inputs_path: Path) -> list[str]:
    """Names to look at first; none if the oracle has no opinion."""
    find = getattr(_loaded(), "suspects", None)
    if find is None:
        return []
    candidate = Candidate(model_path, inputs_path)
    return [str(name) for name in find(candidate, **_taken(find, settings))]


def hold(settings: Mapping[str, Any], model_path: Path, inputs_path: Path) -> dict[str, Any]:
    """Settings that the oracle measures on the original and holds from then on."""
    measure = getattr(_loaded(), "hold", None)
    if measure is None:
        return {}
    candidate = Candidate(model_path, inputs_path)
    return dict(measure(candidate, **_taken(measure, settings)))


def identity(settings: Mapping[str, Any]) -> str:
    tell = getattr(_loaded(), "identity", None)
    return str(tell(**_taken(tell, settings))) if tell else ""


def teardown() -> None:
    finish = getattr(_loaded(), "teardown", None)
    if finish:
        finish()


def run(command: Sequence[str], directory: str) -> int:
    """The exit status of an executable; what it printed goes where this process prints.

    What it leaves running is killed, whether or not it detached itself.
    """
    from onnxreduce.process import kill_leftovers  # only this needs psutil

    try:
        return subprocess.run(command, cwd=directory, start_new_session=True).returncode
    finally:
        kill_leftovers()


def _taken(function: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that a function has parameters for."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(settings)
    return {name: value for name, value in settings.items() if name in parameters}


def _loaded() -> ModuleType:
    if _oracle is None:
        raise RuntimeError("prepare() comes first")
    return _oracle


def _load(path: Path) -> ModuleType:
    """Like running a script: its folder comes first on `sys.path`."""
    sys.path.insert(0, str(path.parent))
    name = f"_oracle_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module
