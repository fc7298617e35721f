"""Every intermediate value of a case: recorded on a trusted backend, or made up.

ONNX Runtime on the CPU with all its optimisations off is asked first, onnx's ReferenceEvaluator
second; both in a child process, because either may crash. Where neither runs the model, values of
the inferred type and shape are made up: the oracle decides then what they are worth.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.graph import index
from onnxreduce.process import WorkerError
from onnxreduce.recorder import Entry
from onnxreduce.shapes import ValueType, bind, inferred, is_size, symbol
from onnxreduce.tensors import Array

UNKNOWN_DIM = 2
"""The size made up for a dim that nothing tells about."""


class Caller(Protocol):
    """What runs functions in a child process; see `process.Worker`."""

    def call(
        self, target: str, *args: Any, timeout: float | None = None, memory: int | None = None
    ) -> Any: ...


class Files(Protocol):
    """What writes models for backends to read; see `modelio.Store`."""

    def write(self, case: Case) -> Path: ...

    def discard(self, path: Path) -> None: ...


class Recorded:
    """Values recorded in a file, read when they are asked for.

    The file is unlinked as soon as it is mapped: its space is free again when the last case that
    uses the recording is gone, whatever happens to this process.

    Args:
        entries: where each value lies.
        path: the file; deleted here.
        types: inferred types and symbolic shapes, by value.
        backend: what recorded them, for a person.
    """

    made_up = False

    def __init__(
        self,
        entries: Mapping[str, Entry],
        path: Path,
        types: Mapping[str, ValueType],
        backend: str,
    ) -> None:
        self.backend = backend
        self.notice = ""
        self._entries = entries
        self._types = types
        with path.open("rb") as file:
            size = path.stat().st_size
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        path.unlink()

    def get(self, name: str) -> InputValue:
        """The recorded tensor or sequence; ``None`` when the value was not recorded."""
        entry = self._entries.get(name)
        return None if entry is None else entry.read(self._map)

    def type_of(self, name: str) -> ValueType | None:
        """What shape inference says of a value."""
        return self._types.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._entries


class MadeUp:
    """Values of the inferred type and shape, the same for a name every time.

    Args:
        types: by value.
        sizes: of the named dims.
        notice: why there is nothing better, for a person.
        guesses: for values whose type or shape inference does not tell, as behind a custom
            operator: they may be wrong, so nothing is declared by them.
    """

    made_up = True
    backend = "made up"

    def __init__(
        self,
        types: Mapping[str, ValueType],
        sizes: Mapping[str, int],
        notice: str = "",
        guesses: Mapping[str, ValueType] | None = None,
    ) -> None:
        self.notice = notice
        self._guesses = guesses or {}
        self._types = types
        self._sizes = dict(sizes)

    @classmethod
    def of(cls, case: Case, notice: str = "") -> MadeUp:
        """Made-up values for a case, with the sizes of dims that its inputs tell."""
        sizes: dict[str, int] = {}
        for value in case.model.graph.inputs:
            array = case.inputs.get(value.name or "")
            if isinstance(array, np.ndarray):
                bind(value.shape, array.shape, sizes)
        types = inferred(case.model)
        return cls(types, sizes, notice, _guessed(case, types))

    def get(self, name: str) -> InputValue:
        """A tensor; ``None`` for what is no tensor, or when its type cannot even be guessed."""
        known = self._guesses.get(name) or self._types.get(name)
        if known is None or known.shape is None or not isinstance(known.type, ir.TensorType):
            return None
        dims = [
            dim if is_size(dim) else self._sizes.get(symbol(dim), UNKNOWN_DIM)
            for dim in known.shape
        ]
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
        return _random_array(known.type.dtype, dims, np.random.default_rng(seed))

    def type_of(self, name: str) -> ValueType | None:
        """What shape inference says of a value."""
        return self._types.get(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


def _guessed(case: Case, types: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Types of tensors that inference leaves open: like the first tensor that the producer reads,
    else like one that a reader reads beside it. What is guessed serves further guesses."""
    known = index(case.model)
    guesses: dict[str, ValueType] = {}
    for order, near in ((known.order, known.reads), (known.order[::-1], None)):
        for key in order:
            for name in known.writes[key] if near else known.reads[key]:
                if known.producer(name) is None or not _is_open(guesses.get(name, types.get(name))):
                    continue
                beside = near[key] if near else (*known.reads[key], *known.writes[key])
                like = next((t for n in beside if (t := _tensor(n, guesses, types))), None)
                if like is not None:
                    told = types.get(name)
                    guesses[name] = like if told is None else _filled(told, like)
    return guesses


def _is_open(known: ValueType | None) -> bool:
    """Whether something is missing to make a tensor; what is no tensor stays as it is."""
    if known is None:
        return True
    tensor = isinstance(known.type, ir.TensorType)
    return tensor and (known.shape is None or known.type.dtype == ir.DataType.UNDEFINED)


def _tensor(name: str, *sources: Mapping[str, ValueType]) -> ValueType | None:
    for source in sources:
        found = source.get(name)
        if found is not None and isinstance(found.type, ir.TensorType) and not _is_open(found):
            return found
    return None


def _filled(told: ValueType, like: ValueType) -> ValueType:
    kind = like.type if told.type.dtype == ir.DataType.UNDEFINED else told.type
    return ValueType(kind, like.shape if told.shape is None else told.shape)


def record(
    case: Case,
    model_path: Path,
    worker: Caller,
    directory: Path,
    timeout: float | None = None,
) -> Recorded | MadeUp:
    """Record the values of a case's main graph.

    Args:
        case: its inputs are fed.
        model_path: a file of its model, external data beside it.
        worker: runs the backends; a crash or a timeout costs that backend.
        directory: where the values are written; they take no room there afterwards.
        timeout: seconds for each backend.

    A cut computes bit for bit what was recorded, save for chains of float16: ONNX Runtime
    computes those in float32, so a cut inside one rounds once more.

    Returns:
        A `Recorded`; a `MadeUp` with a notice when no backend runs the model.
    """
    known = index(case.model)
    outputs = set(known.outputs)
    made = [value for key in known.order for value in known.writes[key]]
    # What nothing reads is left alone: asking for it would change which kernels run.
    names = [value for value in made if value in outputs or known.readers(value)]
    types = inferred(case.model)
    tensors = [v for v in names if v not in types or isinstance(types[v].type, ir.TensorType)]
    reasons = []
    for backend, wanted in (
        ("onnxruntime", names),
        ("onnxruntime", tensors if len(tensors) < len(names) else None),
        ("reference", names),
    ):
        if wanted is None:
            continue
        hidden = [name for name in wanted if name not in outputs]
        path = _new_file(directory)
        arguments = (backend, str(model_path), dict(case.inputs), wanted, hidden, str(path))
        try:
            entries = worker.call("onnxreduce.recorder:record", *arguments, timeout=timeout)
            return Recorded(entries, path, types, backend)
        except WorkerError as error:
            path.unlink(missing_ok=True)
            reasons.append(f"{backend}: {error}")
    reason = "; ".join(dict.fromkeys(reasons))
    return MadeUp.of(case, f"intermediate values are made up, for no backend runs it ({reason})")


def _new_file(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="recording-", dir=directory)
    os.close(handle)
    return Path(name)


class LazyRecorder:
    """Gives a case its recording when somebody asks for one, and remembers the last; from any
    thread.

    Args:
        store: writes candidates (`modelio.Store`).
        worker: see `record`.
        directory: see `record`.
        timeout: seconds for each backend.
    """

    def __init__(
        self, store: Files, worker: Caller, directory: Path, timeout: float | None = None
    ) -> None:
        self._store = store
        self._worker = worker
        self._directory = directory
        self._timeout = timeout
        self._last: tuple[str, Recorded | MadeUp] | None = None
        self._lock = threading.Lock()

    def recorded(self, case: Case) -> Case:
        """The case with its recording; recorded only if it has none."""
        if case.recording is not None:
            return case
        with self._lock:
            if self._last is None or self._last[0] != case.digest:
                path = self._store.write(case)
                try:
                    recording = record(case, path, self._worker, self._directory, self._timeout)
                finally:
                    self._store.discard(path)
                self._last = case.digest, recording
            return case.with_recording(self._last[1])


def _random_array(dtype: ir.DataType, dims: list[int], rng: np.random.Generator) -> Array:
    if dtype == ir.DataType.STRING:
        words = rng.integers(0, 10, dims).astype(str)
        return np.asarray(words, dtype=object).reshape(dims)
    kind = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return np.asarray(rng.integers(0, 2, dims), dtype=kind)
    if dtype.is_integer():
        return np.asarray(rng.integers(0, 3 if dtype.bitwidth > 2 else 2, dims)).astype(kind)
    return np.asarray(rng.uniform(-1, 1, dims)).astype(kind)
