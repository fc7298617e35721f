"""A backend that is a file of the user's own: ``plugin:mine.py`` or ``plugin:mine.py,key=value``.

The file needs one function, ``run(model_path, inputs, **options)``, which returns the outputs by
name. It may have ``run_all`` with the same parameters (every value by name), ``version()`` and
``close()``, and may raise `BackendError` to say how it failed; any other exception is a failure
of the run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnxreduce.backends.base import Backend, BackendError, Info, Value
from onnxreduce.backends.spec import Option, Spec, flag
from onnxreduce.errors import UsageError


class PluginBackend(Backend):
    """The functions of a Python file."""

    def __init__(self, spec: Spec) -> None:
        given = dict(spec.options)
        files = [key for key, value in given.items() if key.endswith(".py") and value == "true"]
        if len(files) != 1 or spec.version:
            raise UsageError(f"backend '{spec}': write plugin:FILE.py or plugin:FILE.py,key=value")
        self.spec = spec
        self._path = Path(files[0]).expanduser()
        self._module = _load(self._path, str(spec))
        del given[files[0]]
        self._function("run", str(spec))
        self._options = _arguments(self._module.run, given, spec)

    def version(self) -> str:
        if hasattr(self._module, "version"):
            return str(self._module.version())
        return f"{self._path.name} {hashlib.sha256(self._path.read_bytes()).hexdigest()[:12]}"

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        return self._outputs(self._module.run, model_path, inputs)

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        if not hasattr(self._module, "run_all"):
            return super().run_all(model_path, inputs)
        return self._outputs(self._module.run_all, model_path, inputs)

    def close(self) -> None:
        if hasattr(self._module, "close"):
            self._module.close()

    def _function(self, name: str, spec: str) -> None:
        if not callable(getattr(self._module, name, None)):
            raise UsageError(f"backend '{spec}': {self._path} has no function {name}")

    def _outputs(
        self, function: Callable[..., Any], model_path: str, inputs: Mapping[str, Value]
    ) -> dict[str, Value]:
        with _failures_told():
            outputs = function(model_path, dict(inputs), **self._options)
        if not isinstance(outputs, Mapping):
            raise UsageError(
                f"backend '{self.spec}': {function.__name__} returned "
                f"{type(outputs).__name__}, not the outputs by name"
            )
        return {name: _value(value) for name, value in outputs.items()}

    @classmethod
    def probe(cls) -> list[Info]:
        return [Info("plugin:FILE.py", "", "a file with run(model_path, inputs)")]


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        raise BackendError("run", f"{type(error).__name__}: {error}") from error


def _load(path: Path, spec: str) -> Any:
    if not path.is_file():
        raise UsageError(f"backend '{spec}': no file {path}")
    name = f"onnxreduce_plugin_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"backend '{spec}': {path} is no Python file")
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        message = f"{path} cannot be imported: {type(error).__name__}: {error}"
        raise BackendError("unsupported", message) from error
    return module


def _arguments(
    function: Callable[..., Any], given: Mapping[str, str], spec: Spec
) -> dict[str, Any]:
    """Options as the types of the function's defaults."""
    parameters = list(inspect.signature(function).parameters.values())[2:]
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    defaults = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}
    if not open_ended:
        Spec(spec.name, None, given).check({name: Option("") for name in defaults})
    return {key: _typed(text, defaults.get(key), spec, key) for key, text in given.items()}


def _typed(text: str, default: Any, spec: Spec, key: str) -> Any:

    if isinstance(default, bool):
        return flag(text, f"backend '{spec}': {key}")
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            raise UsageError(f"backend '{spec}': {key} is a number, not '{text}'") from None
    return text


def _value(value: Any) -> Value:
    if value is None or isinstance(value, (np.ndarray, list)):
        return value
    return np.asarray(value)
