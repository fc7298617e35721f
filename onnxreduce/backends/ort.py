"""ONNX Runtime: the one that is installed, another version, or that of another interpreter."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import ml_dtypes
import numpy as np

from onnxreduce.backends import ort_session
from onnxreduce.backends.base import Backend, BackendError, Info, Job, Value
from onnxreduce.backends.child import Child
from onnxreduce.backends.expose import exposed
from onnxreduce.backends.spec import Option, Spec
from onnxreduce.errors import UsageError

LEVELS = {
    "disable_all": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "enable_basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "enable_extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "enable_layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
    "enable_all": "ORT_ENABLE_ALL",
}

SUFFIX = "ExecutionProvider"
PROVIDERS: tuple[str, ...] = ("CPU", "CUDA", "CoreML", "Dml", "Dnnl", "MIGraphX", "OpenVINO", "QNN")
PROVIDERS += ("ROCM", "Tensorrt", "WebGpu", "Xnnpack")
"""Spelled as the runtime spells them, without the suffix."""


class Runner(Protocol):
    """What `ort_session.Runner` offers, here or in another interpreter."""

    def version(self) -> str: ...
    def providers(self) -> list[str]: ...
    def run(self, model: str, feeds: dict[str, Any], keep: bool) -> dict[str, Any]: ...
    def timed(self, model: str, feeds: dict[str, Any], repeats: int) -> list[float]: ...
    def save_optimized(self, model: str, path: str) -> None: ...
    def close(self) -> None: ...


class OrtBackend(Backend):
    """``ort``, ``ort@VERSION``, ``ort:python=PATH``: sessions of ONNX Runtime.

    The installed version runs in this process, others in a child of their own. One thread and
    the CPU unless told otherwise, so that two runs agree to the bit.
    """

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "opt": Option("graph optimisation level (the runtime's own: enable_all)", "", (*LEVELS,)),
        "ep": Option("execution providers, joined by +", "CPUExecutionProvider"),
        "threads": Option("threads of an operator", "1"),
        "disabled": Option("names of optimizers to leave out, joined by +"),
        "provider.*": Option("an option of the first provider, as in provider.device_id=0"),
        "session.*": Option("a session configuration entry, as in session.disable_prepacking=1"),
        "optimization.*": Option("a session configuration entry of the optimizers"),
        "mlas.*": Option("a session configuration entry of the kernels"),
        "ep.*": Option("a session configuration entry of a provider"),
        "library": Option("plugin provider: NAME+PATH, or a package that knows both"),
        "python": Option("run in this interpreter, which has its own onnxruntime"),
        "package": Option("with @VERSION: the package to install", "onnxruntime"),
        "timeout": Option("with @VERSION or python=: seconds for one call", "600"),
    }

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._runner = self._start()

    def version(self) -> str:
        with _translated():
            return f"onnxruntime {self._runner.version()}"

    def describe(self) -> str:
        return f"{self.name} ({self.version()}, {', '.join(self._providers())})"

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        return self._run(model_path, inputs, keep=False)

    def run_batch(self, jobs: Sequence[Job]) -> list[dict[str, Value] | BackendError]:
        results: list[dict[str, Value] | BackendError] = []
        for index, (model_path, inputs) in enumerate(jobs, 1):
            try:
                results.append(self._run(model_path, inputs, keep=index < len(jobs)))
            except BackendError as error:
                results.append(error)
        return results

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        with exposed(model_path) as path:
            return self.run(path, inputs)

    def run_rewritten(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        plain = {**self.spec.without("opt", "disabled").options, "opt": "disable_all"}
        other = OrtBackend(Spec(self.spec.name, self.spec.version, plain))
        with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
            path = str(Path(folder, "rewritten.onnx"))
            self.rewrite(model_path, path)
            try:
                return other.run_all(path, inputs)
            finally:
                other.close()

    def run_timed(
        self, model_path: str, inputs: Mapping[str, Value], repeats: int = 1
    ) -> list[float]:
        """As in `Backend`; the session stays open until another model comes."""
        with _translated():
            return self._runner.timed(model_path, _feeds(inputs), repeats)

    def rewrite(self, model_path: str, target: str) -> None:
        try:
            with _translated():
                self._runner.save_optimized(model_path, target)
        except BackendError:
            # A model that is refused for what its rewrites left behind was written before that.
            if not Path(target).is_file():
                raise

    def close(self) -> None:
        self._runner.close()

    def _run(self, model_path: str, inputs: Mapping[str, Value], keep: bool) -> dict[str, Value]:
        with _translated():
            outputs = self._runner.run(model_path, _feeds(inputs), keep)
        return {name: _rich(value) for name, value in outputs.items()}

    def _start(self) -> Runner:
        options = self._session_options()
        python = self.option("python")
        if self.spec.version and python:
            raise UsageError(f"backend '{self.spec}': give a version or python=, not both")
        if self.spec.version:
            from onnxreduce.backends.versions import ort_environment

            python = str(ort_environment(self.spec.version, self.option("package")))
        if python:
            timeout = _number(self.spec, "timeout", self.option("timeout"))
            return ForeignRunner(Child(python, timeout), options)
        return ort_session.Runner(options)

    def _session_options(self) -> dict[str, Any]:
        given = self.spec.options
        entries = {key: value for key, value in given.items() if "." in key}
        level = self.option("opt")
        return {
            "opt": LEVELS[level] if level else "",
            "providers": self._providers(),
            "provider_options": {
                key.removeprefix("provider."): value
                for key, value in entries.items()
                if key.startswith("provider.")
            },
            "config": {k: v for k, v in entries.items() if not k.startswith("provider.")},
            "threads": int(_number(self.spec, "threads", self.option("threads"))),
            "disabled": [name for name in self.option("disabled").split("+") if name],
            "libraries": _library(self.option("library")),
        }

    def _providers(self) -> list[str]:
        names = [name for name in self.option("ep").split("+") if name]
        return [provider_name(name) for name in names]

    @classmethod
    def probe(cls) -> list[Info]:
        import onnxruntime

        version = f"onnxruntime {onnxruntime.__version__}"
        names = [n for n in onnxruntime.get_available_providers() if n != "AzureExecutionProvider"]
        infos = [
            Info("ort" if name == "CPUExecutionProvider" else f"ort:ep={name}", version, name)
            for name in sorted(names, key=lambda name: name != "CPUExecutionProvider")
        ]
        from onnxreduce.backends.versions import probe_versions

        return [*infos, *probe_versions()]


class ForeignRunner:
    """A `Runner` of another interpreter."""

    def __init__(self, python: Child, options: dict[str, Any]) -> None:
        self._python = python
        self._options = options

    def version(self) -> str:
        return str(self._call("version"))

    def providers(self) -> list[str]:
        return list(self._call("providers"))

    def run(self, model: str, feeds: dict[str, Any], keep: bool) -> dict[str, Any]:
        return dict(self._call("run", str(Path(model).resolve()), feeds, keep))

    def timed(self, model: str, feeds: dict[str, Any], repeats: int) -> list[float]:
        return list(self._call("timed", str(Path(model).resolve()), feeds, repeats))

    def save_optimized(self, model: str, path: str) -> None:
        self._call("save_optimized", str(Path(model).resolve()), str(Path(path).resolve()))

    def close(self) -> None:
        self._python.close()

    def _call(self, method: str, *args: Any) -> Any:
        packed = [ort_session.pack(argument) for argument in args]
        reply = self._python.call(f"{ort_session.__file__}:call", self._options, method, *packed)
        if reply[0] == "failure":
            raise ort_session.Failure(reply[1], reply[2])
        return ort_session.unpack(reply[1])


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ort_session.Failure as failure:
        if failure.kind == "load":
            raise BackendError("load", failure.message) from failure
        if failure.kind == "run":
            raise BackendError("run", failure.message) from failure
        raise BackendError("unsupported", failure.message) from failure


def provider_name(name: str) -> str:
    """``cpu`` is CPUExecutionProvider; full names are taken as they are."""
    if name.endswith(SUFFIX):
        return name
    return {known.lower(): known for known in PROVIDERS}.get(name.lower(), name) + SUFFIX


def _library(text: str) -> dict[str, str]:
    """The registration name and path of a plugin provider; a package is asked for both."""
    if not text:
        return {}
    name, plus, path = text.partition("+")
    if plus:
        return {name: path}
    module = text.replace("-", "_")
    if importlib.util.find_spec(module) is None:
        raise BackendError("unsupported", f"no package {text} here; pip install {text}")
    package = importlib.import_module(module)
    return {package.get_ep_name(): package.get_library_path()}


def _number(spec: Spec, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number < 0:
        raise UsageError(f"backend '{spec}': {key} is a number, not '{text}'")
    return number


def _feeds(inputs: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in inputs.items()}


def _plain(value: Value) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        exotic = _EXOTIC.get(value.dtype)
        if exotic:
            bits = ort_session.EXOTIC[exotic][1]
            return ort_session.Bits(exotic, np.ascontiguousarray(value).view(bits))
        if value.dtype.kind == "U":
            return value.astype(object)
    return value


def _rich(value: Any) -> Value:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if isinstance(value, ort_session.Bits):
        dtype = next(dtype for dtype, name in _EXOTIC.items() if name == value.type_name)
        return value.array.view(dtype)
    if value is None or isinstance(value, np.ndarray):
        return value
    return np.asarray(value)


_EXOTIC: dict[np.dtype[Any], str] = {
    np.dtype(ml_dtypes.bfloat16): "bfloat16",
    np.dtype(ml_dtypes.float8_e4m3fn): "float8e4m3fn",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "float8e4m3fnuz",
    np.dtype(ml_dtypes.float8_e5m2): "float8e5m2",
    np.dtype(ml_dtypes.float8_e5m2fnuz): "float8e5m2fnuz",
}
