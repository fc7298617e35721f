"""Reading model files, which may come from strangers, without reading their weights twice."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx_ir import serde

from onnxreduce.cloning import clone_model
from onnxreduce.encoding import TRAINING_INFO, encode
from onnxreduce.errors import UsageError
from onnxreduce.files import check_regular
from onnxreduce.modelcheck import FileSpan, all_graphs, all_tensors, check_model, check_tensor
from onnxreduce.proto import PROTOBUF_LIMIT
from onnxreduce.tensors import SparseInitializer, graphs, nested
from onnxreduce.wire import parse

EXTERNAL = "onnxreduce.external"
"""In the main graph's `meta`: the model was read with external data."""

SOURCE = "onnxreduce.source"
"""In the main graph's `meta`: the file that the model was read from."""

SORTED = "onnxreduce.sorted"
"""In the main graph's `meta`: nodes were not in topological order, and are now."""

_HELD = "onnxreduce.held"

_log = logging.getLogger(__name__)


def load_model(path: Path | str) -> ir.Model:
    """Read a model. Its external data is mapped into memory, not read.

    Raises:
        UsageError: the file is missing, is no whole ONNX model, or its data does not fit.
    """
    path = Path(path)
    model = model_of(_read_proto(path), path)
    model.graph.meta[SOURCE] = str(path.resolve())
    return model


def model_of(proto: onnx.ModelProto, path: Path) -> ir.Model:
    """A model from its message, which is changed.

    Args:
        proto: the message.
        path: what to call it; external data is looked for beside this.

    Raises:
        UsageError: as `load_model`.
    """
    check_model(path, proto)
    spans = [check_tensor(path, tensor) for tensor in all_tensors(proto)]
    held = _hold_sparse(path, proto)
    training = [info.SerializeToString() for info in proto.training_info]
    mapped = _map_external(proto, spans)
    try:
        model = serde.deserialize_model(proto)
        _settle(model, held, mapped)
        _sort(path, model)
        encode(clone_model(model))  # what cannot be written again (bad UTF-8, say) shows now
    except (serde.SerdeError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be read: {_reason(error)}") from error
    if "ai.onnx" in model.opset_imports and "" not in model.opset_imports:
        model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
    meta = model.graph.meta
    if mapped:
        meta[EXTERNAL] = True
    if training:
        meta[TRAINING_INFO] = tuple(training)
    return model


def _read_proto(path: Path) -> onnx.ModelProto:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory: give the .onnx file in it")
        check_regular(path)
        size = path.stat().st_size
        if size == 0:
            raise UsageError(f"{path} is empty: not an ONNX model")
        if size > PROTOBUF_LIMIT:
            raise UsageError(f"{path} is larger than 2 GB: save its weights as external data")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    proto = onnx.ModelProto()
    try:
        parse(path, content, proto)
    except DecodeError:
        raise UsageError(f"{path} is not an ONNX model, or it is cut off") from None
    return proto


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, NotImplementedError):
        # The one thing that onnx_ir cannot hold, once sparse tensors are out of the way.
        return "it uses map types; export classifiers without ZipMap"
    return str(error).split("\n")[0][:200]


def _hold_sparse(path: Path, proto: onnx.ModelProto) -> list[onnx.SparseTensorProto]:
    """Take the sparse tensors out of a message, leaving marked dense ones in their place."""
    held: list[onnx.SparseTensorProto] = []

    for tensor in all_tensors(proto):
        if mark := _mark(tensor):
            raise UsageError(f"{path}: tensor {tensor.name!r} bears a reserved mark {mark!r}")

    def stand_in(into: onnx.TensorProto, sparse: onnx.SparseTensorProto) -> None:
        for part in (sparse.values, sparse.indices):
            if check_tensor(path, part) is not None:
                raise UsageError(f"{path}: sparse tensor {part.name!r} is external, unsupported")
        into.name = sparse.values.name
        into.data_type = sparse.values.data_type
        into.metadata_props.add(key=_HELD, value=str(len(held)))
        held.append(onnx.SparseTensorProto.FromString(sparse.SerializeToString()))

    for graph in all_graphs(proto):
        for sparse in graph.sparse_initializer:
            stand_in(graph.initializer.add(), sparse)
        graph.ClearField("sparse_initializer")
    for owner in (*all_graphs(proto), *proto.functions):
        for attribute in (a for node in owner.node for a in node.attribute):
            if attribute.HasField("sparse_tensor"):
                stand_in(attribute.t, attribute.sparse_tensor)
                attribute.ClearField("sparse_tensor")
                attribute.type = onnx.AttributeProto.TENSOR
            if attribute.sparse_tensors:
                raise UsageError(
                    f"{path}: attribute {attribute.name!r} is a list of sparse tensors"
                )
    return held


def _map_external(
    proto: onnx.ModelProto, spans: list[FileSpan | None]
) -> list[tuple[FileSpan, mmap.mmap | None]]:
    """Mark the external tensors of a message with their place in the list that is returned."""
    maps: dict[Path, mmap.mmap | None] = {}
    mapped: list[tuple[FileSpan, mmap.mmap | None]] = []
    tensors = [tensor for tensor in all_tensors(proto) if not _mark(tensor)]
    for tensor, span in zip(tensors, spans, strict=True):
        if span is None:
            continue
        if span.path not in maps:
            with span.path.open("rb") as file:
                empty = os.fstat(file.fileno()).st_size == 0
                maps[span.path] = (
                    None if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                )
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.metadata_props.add(key=_HELD, value=f"@{len(mapped)}")
        mapped.append((span, maps[span.path]))
    return mapped


def _mark(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.metadata_props if entry.key == _HELD), "")


def _settle(
    model: ir.Model,
    held: list[onnx.SparseTensorProto],
    mapped: list[tuple[FileSpan, mmap.mmap | None]],
) -> None:
    """Give every tensor its final form: plain arrays, mapped arrays, sparse tensors."""

    def settle(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        mark = tensor.metadata_props.pop(_HELD, "")
        if mark.startswith("@"):
            return _mapped_tensor(tensor, *mapped[int(mark[1:])])
        if mark:
            return SparseInitializer(held[int(mark)])
        if not isinstance(tensor, serde.TensorProtoTensor):
            return tensor
        return ir.Tensor(tensor.numpy(), **_identity(tensor))

    for graph in graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = settle(value.const_value)
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.TENSOR:
                    tensor = settle(attribute.as_tensor())
                    sparse = isinstance(tensor, SparseInitializer)
                    kind = ir.AttributeType.SPARSE_TENSOR if sparse else attribute.type
                    node.attributes[name] = ir.Attr(
                        name, kind, tensor, doc_string=attribute.doc_string
                    )
                elif attribute.type == ir.AttributeType.TENSORS:
                    node.attributes[name] = ir.AttrTensors(
                        name,
                        [settle(tensor) for tensor in attribute.as_tensors()],
                        doc_string=attribute.doc_string,
                    )


def _identity(tensor: ir.TensorProtocol) -> dict[str, Any]:
    return {
        "dtype": tensor.dtype,
        "shape": ir.Shape(tensor.shape.numpy()),
        "name": tensor.name,
        "doc_string": tensor.doc_string,
        "metadata_props": dict(tensor.metadata_props) or None,
    }


def _mapped_tensor(
    tensor: ir.TensorProtocol, span: FileSpan, source: mmap.mmap | None
) -> ir.TensorProtocol:
    identity = _identity(tensor)
    shape = tensor.shape.numpy()
    if span.length == 0 or source is None:
        return ir.Tensor(np.zeros(shape, tensor.dtype.numpy()), **identity)
    if tensor.dtype.bitwidth < 8:
        packed = np.frombuffer(source, np.uint8, span.length, span.offset)
        return ir.PackedTensor(packed, **identity)
    dtype = np.dtype(tensor.dtype.numpy())
    count = span.length // dtype.itemsize
    array = np.frombuffer(source, dtype, count, span.offset).reshape(shape)
    return ir.Tensor(array, **identity)


def _sort(path: Path, model: ir.Model) -> None:
    """Put nodes into topological order, which everything after relies on."""
    _check_reads(path, model)
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        if not all(_is_sorted(graph) for graph in nested(root)):
            try:
                root.sort()
            except ValueError:
                raise UsageError(f"{path}: the graph has a cycle") from None
            model.graph.meta[SORTED] = True
            _log.warning("%s: nodes were not in topological order; sorted", path)


def _check_reads(path: Path, model: ir.Model) -> None:
    """Refuse what no order of the nodes can put right."""
    for graph in graphs(model):
        for node in graph:
            reads = (value for inner in _with_subgraphs(node) for value in inner.inputs)
            if any(value is not None and value.producer() is node for value in reads):
                made = next((v.name for v in node.outputs if v.name), "")
                raise UsageError(
                    f"{path}: the {node.op_type} node of {made!r} reads its own result"
                )
        if graph is model.graph:
            continue
        for value in graph.outputs:
            if not (value.producer() or value.is_graph_input() or value.is_initializer()):
                raise UsageError(
                    f"{path}: {graph.name!r} gives {value.name!r}, which it does not make: "
                    "pass it through an Identity node there"
                )


def _is_sorted(graph: ir.Graph) -> bool:
    pending = {id(node) for node in graph}
    for node in graph:
        reads = [value for inner in _with_subgraphs(node) for value in inner.inputs]
        for value in reads:
            producer = value.producer() if value is not None else None
            if producer is not None and id(producer) in pending and producer is not node:
                return False
        pending.discard(id(node))
    return True


def _with_subgraphs(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            inner = [attribute.as_graph()]
        elif attribute.type == ir.AttributeType.GRAPHS:
            inner = list(attribute.as_graphs())
        else:
            continue
        for root in inner:
            for graph in nested(root):
                yield from graph
