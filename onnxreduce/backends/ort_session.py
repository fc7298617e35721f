"""ONNX Runtime sessions, for this interpreter and for others.

This file stands alone on purpose: it imports nothing of its package and keeps to Python 3.8 and
numpy 1.17, so that the interpreter of another environment can load it by path and talk to it in
plain data (`call`, with tensors in the form that `pack` gives).
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

EXOTIC = {
    "bfloat16": (16, np.uint16),
    "float8e4m3fn": (17, np.uint8),
    "float8e4m3fnuz": (18, np.uint8),
    "float8e5m2": (19, np.uint8),
    "float8e5m2fnuz": (20, np.uint8),
}
"""Element types that numpy lacks: their number in TensorProto.DataType and how their bits are
held here, as `Bits`."""


class Failure(Exception):
    """The runtime gave no result; `kind` is load, run or unsupported."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class Bits:
    """A tensor of an element type that numpy lacks, as unsigned integers of the same width."""

    def __init__(self, type_name: str, array: np.ndarray[Any, Any]) -> None:
        self.type_name = type_name
        self.array = array


class Runner:
    """Runs models under one set of options; keeps the last session while its model stays.

    Options: ``opt`` (a name of GraphOptimizationLevel), ``providers`` (names), ``provider_options``
    (of the first provider), ``config`` (session configuration entries), ``threads``, ``disabled``
    (optimizers), ``libraries`` (plugin execution providers: registration name -> path).
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._session: Any = None
        self._key: Any = None
        onnxruntime.set_default_logger_severity(4)

    def version(self) -> str:
        return str(onnxruntime.__version__)

    def providers(self) -> list[str]:
        return list(onnxruntime.get_available_providers())

    def run(self, model: str, feeds: dict[str, Any], keep: bool = False) -> dict[str, Any]:
        """Outputs by name: arrays, `Bits`, lists of them for sequences, None.

        With `keep` the session stays open for the next run of the same model.

        Raises:
            Failure: the model is refused, or fails.
        """
        try:
            return self._run(self._open(model), feeds)
        finally:
            if not keep:
                self.close()

    def timed(self, model: str, feeds: dict[str, Any], repeats: int) -> list[float]:
        """Seconds of each run in a warm session."""
        session = self._open(model)
        self._run(session, feeds)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            self._run(session, feeds)
            seconds.append(time.perf_counter() - start)
        return seconds

    def save_optimized(self, model: str, path: str) -> None:
        """Write the model as the session holds it after its rewrites."""
        self._create(model, path)

    def close(self) -> None:
        """Let go of the session that is kept."""
        self._session = self._key = None

    def _open(self, model: str) -> Any:
        stat = Path(model).stat()
        key = (model, stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._session is None or key != self._key:
            self.close()
            self._session, self._key = self._create(model), key
        return self._session

    def _create(self, model: str, optimized: str | None = None) -> Any:
        wanted = self.options.get("providers") or ["CPUExecutionProvider"]
        self._register_libraries()
        missing = [name for name in wanted if name not in onnxruntime.get_available_providers()]
        devices = self._plugin_devices(missing) if missing else []
        try:
            settings = self._settings(optimized)
        except AttributeError as error:
            raise Failure(
                "unsupported", f"this ONNX Runtime has no such option: {error}"
            ) from error
        provider_options = [self.options.get("provider_options") or {}] + [{}] * (len(wanted) - 1)
        arguments: dict[str, Any] = {"providers": wanted, "provider_options": provider_options}
        if devices:
            settings.add_provider_for_devices(devices, provider_options[0])
            arguments = {}
        if self.options.get("disabled"):
            arguments["disabled_optimizers"] = list(self.options["disabled"])
        # Where a provider does not start, ONNX Runtime's default is the CPU with a warning.
        arguments["enable_fallback"] = 0
        try:
            session = onnxruntime.InferenceSession(model, settings, **arguments)
        except Exception as error:
            raise Failure("load", str(error)) from error
        if absent := [name for name in wanted if name not in session.get_providers()]:
            raise Failure("load", f"{absent[0]} did not start")  # versions that fall back anyhow
        return session

    def _settings(self, optimized: str | None) -> Any:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = settings.inter_op_num_threads = self.options["threads"]
        if self.options.get("opt"):
            levels = onnxruntime.GraphOptimizationLevel
            settings.graph_optimization_level = getattr(levels, self.options["opt"])
        for key, value in (self.options.get("config") or {}).items():
            settings.add_session_config_entry(key, value)
        if optimized:
            settings.optimized_model_filepath = optimized
        return settings

    def _register_libraries(self) -> None:
        for name, path in (self.options.get("libraries") or {}).items():
            try:
                if name not in _registered:
                    onnxruntime.register_execution_provider_library(name, path)
                    _registered.add(name)
            except Exception as error:
                raise Failure("unsupported", f"{path} cannot be loaded: {error}") from error

    def _plugin_devices(self, missing: list[str]) -> list[Any]:
        if self.options.get("libraries"):
            devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name in missing]
            if devices:
                return devices
            raise Failure("unsupported", f"the library of {missing[0]} finds no device here")
        have = ", ".join(onnxruntime.get_available_providers())
        raise Failure("unsupported", f"no execution provider {missing[0]} here; there are: {have}")

    def _run(self, session: Any, feeds: dict[str, Any]) -> dict[str, Any]:
        names = [value.name for value in session.get_outputs()]
        types = [value.type for value in session.get_inputs() + session.get_outputs()]
        try:
            if any(_exotic(type_) for type_ in types):
                values = _run_bits(session, names, feeds)
            else:
                values = session.run(names, feeds)
        except Exception as error:
            raise Failure("run", str(error)) from error
        return {name: _tidy(value) for name, value in zip(names, values)}  # noqa: B905 (3.10)


_registered: set[str] = set()


def _exotic(type_: str) -> bool:
    return type_[len("tensor(") : -1] in EXOTIC


def _run_bits(session: Any, names: list[str], feeds: dict[str, Any]) -> list[Any]:
    values = {}
    for name, value in feeds.items():
        if isinstance(value, Bits):
            number = EXOTIC[value.type_name][0]
            make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            values[name] = make(np.ascontiguousarray(value.array), number)
        else:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
    return [_from_ort_value(value) for value in session.run_with_ort_values(names, values)]


def _from_ort_value(value: Any) -> Any:
    type_name = value.data_type()[len("tensor(") : -1]
    if type_name not in EXOTIC:
        return value.numpy()
    # numpy() of an OrtValue refuses bfloat16, so the bits are read from where they are.
    dtype = np.dtype(EXOTIC[type_name][1])
    count = int(np.prod(value.shape(), dtype=np.int64))
    raw = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return Bits(type_name, np.frombuffer(raw, dtype).reshape(value.shape()))


def _tidy(value: Any) -> Any:
    """Maps (of the classifiers in ai.onnx.ml) as a list of keys and values."""
    if isinstance(value, dict):
        return [np.array(list(value)), np.array(list(value.values()))]
    if isinstance(value, (list, tuple)):
        return [_tidy(item) for item in value]
    return value


# Plain data: what pickles of any numpy version can carry.

_runners: dict[str, Runner] = {}


def call(options: dict[str, Any], method: str, *args: Any) -> tuple[Any, ...]:
    """Call a method of a `Runner` kept warm for these options; feeds and results packed.

    Returns:
        ``("result", packed)`` or ``("failure", kind, message)``.
    """
    try:
        runner = _runners.setdefault(repr(options), Runner(options))
        result = getattr(runner, method)(*[unpack(arg) for arg in args])
    except Failure as failure:
        return "failure", failure.kind, failure.message
    return "result", pack(result)


def pack(value: Any) -> Any:
    """Tensors as tagged tuples of plain data; containers item by item; the rest as it is."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            return ("strings", value.shape, [_text(item) for item in value.ravel().tolist()])
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Bits):
        return ("bits", value.type_name, pack(value.array))
    if isinstance(value, dict):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, list):
        return [pack(item) for item in value]
    return value


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if isinstance(value, tuple):
        if value[0] == "strings":
            return np.array(value[2], dtype=object).reshape(value[1])
        if value[0] == "array":
            return np.frombuffer(value[3], np.dtype(value[1])).reshape(value[2]).copy()
        if value[0] == "bits":
            return Bits(value[1], unpack(value[2]))
    if isinstance(value, dict):
        return {key: unpack(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unpack(item) for item in value]
    return value


def _text(item: Any) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
