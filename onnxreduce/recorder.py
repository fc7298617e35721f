"""The child's side of recording: runs a model and writes all its values into one file."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.tensors import Array

ALIGNMENT = 64


@dataclass(frozen=True)
class Entry:
    """Where a recorded value lies in the file.

    Attributes:
        dtype: of the tensor; None for a sequence and for strings.
        shape: of the tensor.
        offset: in bytes.
        items: the elements of a sequence.
        strings: of a string tensor, row-major.
    """

    dtype: int | None
    shape: tuple[int, ...] = ()
    offset: int = 0
    items: tuple[Entry, ...] | None = None
    strings: tuple[str, ...] | None = None

    def read(self, content: mmap.mmap | bytes) -> Array | list[Array]:
        """The value, as a read-only view of the file's content."""
        if self.items is not None:
            return [np.asarray(item.read(content)) for item in self.items]
        if self.strings is not None:
            flat = np.empty(len(self.strings), dtype=object)
            flat[:] = self.strings
            return flat.reshape(self.shape)
        kind = ir.DataType(self.dtype or 0).numpy()
        count = int(np.prod(self.shape, dtype=np.int64))
        if not count:
            return np.zeros(self.shape, kind)
        return np.frombuffer(content, kind, count, self.offset).reshape(self.shape)


def record(
    backend: str,
    model_path: str,
    inputs: Mapping[str, Any],
    names: Sequence[str],
    hidden: Sequence[str],
    path: str,
) -> dict[str, Entry]:
    """Run a model with its values as outputs, and write them to `path`.

    Args:
        backend: a key of `BACKENDS`.
        model_path: the model, external data beside it.
        inputs: by graph input.
        names: the values wanted; those that the backend cannot show are left out.
        hidden: those of them that are not outputs of the model.
        path: a file to be made.
    """
    with Path(path).open("wb+") as file:
        return BACKENDS[backend](Path(model_path), inputs, names, hidden, file)


def run(backend: str, model_path: str, inputs: Mapping[str, Any]) -> None:
    """Run a model as it is; raises what the backend raises.

    Args:
        backend: a key of `BACKENDS`.
        model_path: the model, external data beside it.
        inputs: by graph input.
    """
    if backend == "reference":
        _evaluate(Path(model_path), inputs, intermediate=False)
        return
    session = open_session(Path(model_path))
    if all(type_.startswith("tensor(") for type_ in _types(session)):
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, _ort_value(value))
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        session.run_with_iobinding(binding)
    else:
        session.run(None, dict(inputs))


def _types(session: Any) -> list[str]:
    return [value.type for value in (*session.get_inputs(), *session.get_outputs())]


def _evaluate(model_path: Path, inputs: Mapping[str, Any], *, intermediate: bool) -> Any:
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        evaluator = ReferenceEvaluator(str(model_path))
        return evaluator.run(None, dict(inputs), intermediate=intermediate)


def _record_reference(
    model_path: Path,
    inputs: Mapping[str, Any],
    names: Sequence[str],
    hidden: Sequence[str],
    file: IO[bytes],
) -> dict[str, Entry]:
    values = _evaluate(model_path, inputs, intermediate=True)
    found = {name: _write(file, values[name]) for name in names if name in values}
    return {name: entry for name, entry in found.items() if entry is not None}


def _record_onnxruntime(
    model_path: Path,
    inputs: Mapping[str, Any],
    names: Sequence[str],
    hidden: Sequence[str],
    file: IO[bytes],
) -> dict[str, Entry]:
    session = open_session(model_path, hidden)
    wanted = set(names)
    outputs = [output for output in session.get_outputs() if output.name in wanted]
    if all(type_.startswith("tensor(") for type_ in _types(session)):
        try:
            return _run_bound(session, inputs, outputs, file, into_file=True)
        except Exception:  # a declared shape is wrong: let the runtime find the sizes
            file.truncate(0)
            return _run_bound(session, inputs, outputs, file, into_file=False)
    values = session.run([output.name for output in outputs], dict(inputs))
    found = {o.name: _write(file, value) for o, value in zip(outputs, values, strict=True)}
    return {name: entry for name, entry in found.items() if entry is not None}


BACKENDS: dict[str, Callable[..., dict[str, Entry]]] = {
    "onnxruntime": _record_onnxruntime,
    "reference": _record_reference,
}


def open_session(model_path: Path, hidden: Sequence[str] = ()) -> Any:
    """A session on the CPU without optimisations, with more of the model's values as outputs.

    The outputs are added to the serialised model without reading it: protobuf merges a message
    that is appended to another. They have no type, so the runtime infers it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    if not hidden:
        return onnxruntime.InferenceSession(str(model_path), options, providers=providers)
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(model_path.parent)
    )
    more = onnx.ModelProto()
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in hidden)
    content = model_path.read_bytes() + more.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=providers)


def _run_bound(
    session: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
    file: IO[bytes],
    *,
    into_file: bool,
) -> dict[str, Entry]:
    """Run with outputs of known size bound into the file, so that they need no memory twice."""
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, _ort_value(value))
    placed, size = _place(outputs) if into_file else ({}, 0)
    content = None
    if size:
        file.truncate(size)
        content = np.memmap(file, np.uint8, "r+", shape=(size,))
    for output in outputs:
        entry = placed.get(output.name)
        if entry is None or content is None:
            binding.bind_output(output.name, "cpu")
        else:
            address = content.ctypes.data + entry.offset
            binding.bind_output(output.name, "cpu", 0, entry.dtype, entry.shape, address)
    session.run_with_iobinding(binding)
    file.seek(size)
    found = dict(placed)
    for output, value in zip(outputs, binding.get_outputs(), strict=True):
        if output.name not in placed:
            entry = _write(file, _numpy(value))
            if entry is not None:
                found[output.name] = entry
    return found


def _place(outputs: Sequence[Any]) -> tuple[dict[str, Entry], int]:
    """Room in the file for the outputs whose size is known."""
    placed: dict[str, Entry] = {}
    size = 0
    for output in outputs:
        dtype = _data_type(output.type)
        shape = output.shape
        if dtype == ir.DataType.STRING or dtype.bitwidth < 8 or not shape:
            continue
        if not all(isinstance(dim, int) and dim > 0 for dim in shape):
            continue
        placed[output.name] = Entry(dtype.value, tuple(shape), size)
        size += int(np.prod(shape, dtype=np.int64)) * dtype.bitwidth // 8
        size += -size % ALIGNMENT
    return placed, size


def _data_type(name: str) -> ir.DataType:
    """The element type of a runtime's ``tensor(float)``."""
    return ir.DataType[name.removeprefix("tensor(").removesuffix(")").upper()]


def _ort_value(value: Array) -> Any:
    import onnxruntime

    array = np.asarray(value, order="C")  # ascontiguousarray would make a scalar a vector
    if array.dtype.kind in "OUST" or array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    dtype = ir.DataType.from_numpy(array.dtype)
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, dtype.value)


def _numpy(value: Any) -> Array:
    """The content of an OrtValue; read from memory where numpy lacks the element type."""
    dtype = _data_type(value.data_type())
    if dtype == ir.DataType.STRING or dtype.numpy().isbuiltin == 1:
        return np.asarray(value.numpy())
    shape = value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    raw = ctypes.string_at(value.data_ptr(), -(-count * dtype.bitwidth // 8)) if count else b""
    proto = onnx.TensorProto(dims=shape, data_type=dtype.value, raw_data=raw)
    return np.asarray(ir.serde.deserialize_tensor(proto).numpy())


def _write(file: IO[bytes], value: Any) -> Entry | None:
    """Append a value; None for what is no tensor or sequence of tensors."""
    if isinstance(value, (list, tuple)):
        items = [_write(file, item) for item in value]
        whole = tuple(item for item in items if item is not None)
        return Entry(None, items=whole) if len(whole) == len(items) else None
    if value is None or isinstance(value, dict):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        strings = tuple(
            item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
            for item in array.ravel().tolist()
        )
        return Entry(None, array.shape, strings=strings)
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    offset = file.tell()
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return Entry(ir.DataType.from_numpy(array.dtype).value, array.shape, offset)
