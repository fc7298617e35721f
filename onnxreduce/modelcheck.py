"""What a model file must satisfy before anything is allocated for it.

A model may come from a stranger: its dims may promise terabytes, its external data may point
outside its folder. Every check compares what the file claims with what is there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir

from onnxreduce.errors import UsageError
from onnxreduce.proto import nested_graphs, nested_tensors

MAX_ELEMENTS = 1 << 48
"""No tensor has more elements than this; a larger product of dims is a broken file."""


@dataclass(frozen=True)
class FileSpan:
    """Where in a file of external data a tensor's bytes are."""

    path: Path
    offset: int
    length: int


def check_model(path: Path, proto: onnx.ModelProto) -> None:
    """That a parsed message is a whole model.

    Raises:
        UsageError: it is not, as when the file is another kind or was cut off.
    """
    if not proto.HasField("graph") or not proto.ir_version:
        raise UsageError(f"{path} is not an ONNX model (no graph in it), or it is cut off")
    if proto.ir_version >= 3 and not proto.opset_import:
        raise UsageError(f"{path} imports no operator set: it is cut off, or was written wrongly")
    if not proto.graph.node and not proto.graph.output:
        raise UsageError(f"{path} has an empty graph: nothing to reduce")
    _check_reads(path, proto.graph, set())
    for function in proto.functions:
        _check_reads(path, function, set())


def all_tensors(proto: onnx.ModelProto) -> Iterable[onnx.TensorProto]:
    """Every dense tensor of a message."""
    yield from proto.graph.initializer
    for root in (proto.graph, *proto.functions):
        yield from nested_tensors(root)


def _check_reads(path: Path, graph: onnx.GraphProto | onnx.FunctionProto, outer: set[str]) -> None:
    """That every value that is read exists somewhere, and is defined once in its graph."""
    if isinstance(graph, onnx.GraphProto):
        inputs = {value.name for value in graph.input}
        known = inputs | {tensor.name for tensor in graph.initializer}
        known |= {tensor.values.name for tensor in graph.sparse_initializer}
        results = [value.name for value in graph.output]
    else:
        known = set(graph.input)
        results = list(graph.output)
    for node in graph.node:
        for name in node.output:
            if name and name in known:
                raise UsageError(f"{path}: value {name!r} is defined more than once")
            known.add(name)
    visible = outer | known | {""}
    for node in graph.node:
        for name in node.input:
            if name not in visible:
                where = f"{node.op_type} node {node.name!r}"
                raise UsageError(f"{path}: {where} reads {name!r}, which nothing defines")
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_reads(path, inner, visible)
    for name in results:
        if name not in visible:
            raise UsageError(f"{path}: output {name!r} is produced by no node")


def check_tensor(path: Path, tensor: onnx.TensorProto) -> FileSpan | None:
    """That a tensor holds as much data as its dims and type say.

    Returns:
        Where its bytes are, when they are outside the model file.

    Raises:
        UsageError: too little or too much data, or external data that cannot be used.
    """
    name = tensor.name or "(unnamed)"
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        raise UsageError(f"{path}: tensor {name!r} has type {tensor.data_type}, unknown") from None
    if dtype == ir.DataType.UNDEFINED:
        raise UsageError(f"{path}: tensor {name!r} has no element type")
    if any(dim < 0 for dim in tensor.dims):
        raise UsageError(f"{path}: tensor {name!r} has a negative dim in {list(tensor.dims)}")
    count = math.prod(tensor.dims)
    if count > MAX_ELEMENTS:
        raise UsageError(f"{path}: tensor {name!r} claims {count} elements: {list(tensor.dims)}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external_span(path, tensor, dtype, count)
    if dtype == ir.DataType.STRING:
        held, wanted, unit = len(tensor.string_data), count, "strings"
    elif tensor.HasField("raw_data"):
        held, wanted, unit = len(tensor.raw_data), nbytes(dtype, count), "bytes"
    else:
        held, wanted, unit = _typed_count(tensor, dtype, count)
    if held != wanted:
        raise UsageError(
            f"{path}: tensor {name!r} holds {held} {unit}, but {dtype.name}{list(tensor.dims)} "
            f"takes {wanted}: the file is damaged"
        )
    return None


def nbytes(dtype: ir.DataType, count: int) -> int:
    """How many bytes `count` elements of a type take, 4-bit types packed two to a byte."""
    return (count * dtype.bitwidth + 7) // 8


_FIELDS = {
    ir.DataType.FLOAT: "float_data",
    ir.DataType.COMPLEX64: "float_data",
    ir.DataType.DOUBLE: "double_data",
    ir.DataType.COMPLEX128: "double_data",
    ir.DataType.INT64: "int64_data",
    ir.DataType.UINT32: "uint64_data",
    ir.DataType.UINT64: "uint64_data",
}


def _typed_count(tensor: onnx.TensorProto, dtype: ir.DataType, count: int) -> tuple[int, int, str]:
    """Numbers held and numbers wanted, in the field that the type's numbers belong into."""
    held = len(getattr(tensor, _FIELDS.get(dtype, "int32_data")))
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return held, 2 * count, "numbers"
    if dtype.bitwidth in (2, 4):
        return held, nbytes(dtype, count), "numbers"
    return held, count, "numbers"


def _external_span(
    path: Path, tensor: onnx.TensorProto, dtype: ir.DataType, count: int
) -> FileSpan:
    name = tensor.name or "(unnamed)"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if dtype == ir.DataType.STRING:
        raise UsageError(f"{path}: string tensor {name!r} cannot be external data")
    file = _inside(path, name, location)
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries["length"]) if "length" in entries else None
    except ValueError:
        raise UsageError(
            f"{path}: tensor {name!r} has an external offset or length that is no number"
        ) from None
    wanted = nbytes(dtype, count)
    if offset < 0 or (length is not None and length != wanted):
        raise UsageError(
            f"{path}: tensor {name!r} claims {length} bytes at {offset} of {location!r}, but "
            f"{dtype.name}{list(tensor.dims)} takes {wanted}"
        )
    there = file.stat().st_size
    if offset + wanted > there:
        raise UsageError(
            f"{path}: tensor {name!r} needs bytes {offset} to {offset + wanted} of {location!r}, "
            f"which has only {there}: the external data is cut off"
        )
    return FileSpan(file, offset, wanted)


def _inside(path: Path, name: str, location: str) -> Path:
    """The file of external data, which must be in the model's folder (or below it)."""
    if not location or "\0" in location:
        raise UsageError(f"{path}: tensor {name!r} has external data without a usable location")
    pure = PurePosixPath(location.replace("\\", "/"))
    if pure.is_absolute() or PureWindowsPath(location).is_absolute() or ".." in pure.parts:
        raise UsageError(
            f"{path}: tensor {name!r} has external data at {location!r}, outside the model's "
            "folder: move it beside the model"
        )
    file = path.parent / location
    if not file.is_file():
        raise UsageError(
            f"{path}: external data {location!r} of tensor {name!r} is missing: it must lie "
            f"beside the model, at {file}"
        )
    real = file.resolve()
    # A download cache links model and data alike into one folder: that is inside too.
    homes = (path.parent.resolve(), path.resolve().parent)
    if not any(real.is_relative_to(home) for home in homes):
        raise UsageError(
            f"{path}: external data {location!r} of tensor {name!r} is a link out of the model's "
            "folder: copy the file there"
        )
    if not os.access(real, os.R_OK):
        raise UsageError(f"{path}: external data {location!r} cannot be read: no permission")
    return real


def all_graphs(proto: onnx.ModelProto) -> Iterable[onnx.GraphProto]:
    """The main graph and every subgraph, those in functions too."""
    yield proto.graph
    for root in (proto.graph, *proto.functions):
        yield from nested_graphs(root)
