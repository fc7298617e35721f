"""Model files: reading them with care, and writing candidates without copying weights."""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx_ir import serde

from onnxreduce.case import Case, declared_inputs
from onnxreduce.errors import UsageError
from onnxreduce.files import replacing
from onnxreduce.modelcheck import FileSpan, all_graphs, all_tensors, check_model, check_tensor
from onnxreduce.proto import TRAINING_INFO, Payload, hollow
from onnxreduce.tensors import SparseInitializer, graphs, nested, payload, tensor_digest

__all__ = ["Store", "declared_inputs", "is_external", "load_model", "save_model"]

PROTOBUF_LIMIT = (1 << 31) - 1
"""No protobuf message can be larger; what is takes external data."""

EXTERNAL = "onnxreduce.external"
SOURCE = "onnxreduce.source"
_HELD = "onnxreduce.held"
_CHUNK = 1 << 24

_log = logging.getLogger(__name__)


def load_model(path: Path | str) -> ir.Model:
    """Read a model. Its external data is mapped into memory, not read.

    Raises:
        UsageError: the file is missing, is no whole ONNX model, or its data does not fit.
    """
    path = Path(path)
    proto = _read_proto(path)
    check_model(path, proto)
    spans = [check_tensor(path, tensor) for tensor in all_tensors(proto)]
    held = _hold_sparse(path, proto)
    training = [info.SerializeToString() for info in proto.training_info]
    mapped = _map_external(proto, spans)
    try:
        model = serde.deserialize_model(proto)
        _settle(model, held, mapped)
    except (serde.SerdeError, ValueError, TypeError, NotImplementedError) as error:
        raise UsageError(f"{path} cannot be read: {_root_cause(error)}") from error
    if "ai.onnx" in model.opset_imports and "" not in model.opset_imports:
        model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
    _sort(path, model)
    meta = model.graph.meta
    meta[SOURCE] = str(path.resolve())
    if mapped:
        meta[EXTERNAL] = True
    if training:
        meta[TRAINING_INFO] = tuple(training)
    return model


def is_external(model: ir.Model) -> bool:
    """Whether candidates should keep their weights outside the model file: the original does, or
    it is too large for one file to be handled quickly."""
    return bool(model.graph.meta.get(EXTERNAL)) or weight(Case(model, {})) > 1 << 30


def _read_proto(path: Path) -> onnx.ModelProto:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory: give the .onnx file in it")
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
        proto.ParseFromString(content)
    except DecodeError:
        raise UsageError(f"{path} is not an ONNX model, or it is cut off") from None
    return proto


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).split("\n")[0]


def _hold_sparse(path: Path, proto: onnx.ModelProto) -> list[onnx.SparseTensorProto]:
    """Take the sparse tensors out of a message, leaving marked dense ones in their place."""
    held: list[onnx.SparseTensorProto] = []

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
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        if not all(_is_sorted(graph) for graph in nested(root)):
            try:
                root.sort()
            except ValueError:
                raise UsageError(f"{path}: the graph has a cycle") from None
            _log.warning("%s: nodes were not in topological order; sorted", path)


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


def weight(case: Case) -> int:
    """Bytes of the tensors above 1 kB."""
    return sum(part.tensor.nbytes for part in case.payloads)


class Store:
    """A directory of candidate files for oracles.

    Args:
        directory: made when it does not exist.
        external: keep tensors outside the model files. Each distinct one is written once, under
            its digest, into ``pool/`` and candidates refer to it. ONNX refuses external data
            that is a link or lies above the model's folder, so the candidates share a folder.
    """

    def __init__(self, directory: Path, external: bool) -> None:
        self.directory = directory
        self.external = external
        self.pool = directory / "pool"
        (self.pool if external else directory).mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count(1)

    def write(self, case: Case) -> Path:
        """A new model file; safe to call from several threads.

        Raises:
            UsageError: it cannot be written, as on a full disk.
        """
        try:
            if self.external:
                content = self._external(case)
                path, file = self._new_file()
                with file:
                    file.write(content)
                return path
            path = self._new_folder() / "model.onnx"
            with path.open("wb") as file:
                write_inline(case, file)
            return path
        except OSError as error:
            raise UsageError(
                f"a candidate cannot be written to {self.directory}: {error.strerror}"
            ) from error

    def discard(self, path: Path) -> None:
        """Remove a candidate that `write` made. Pooled tensors stay."""
        if self.external:
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)

    def _new_folder(self) -> Path:
        while True:
            folder = self.directory / str(next(self._numbers))
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder

    def _new_file(self) -> tuple[Path, BinaryIO]:
        while True:
            path = self.directory / f"{next(self._numbers)}.onnx"
            try:
                return path, path.open("xb")
            except FileExistsError:
                continue

    def _external(self, case: Case) -> bytes:
        proto = onnx.ModelProto()
        proto.CopyFrom(case.skeleton)
        for message, part in _places(proto, case.payloads):
            name = f"{tensor_digest(part.tensor)}.bin"
            self._pool(name, part.tensor)
            _refer(message, f"pool/{name}", 0, part.tensor.nbytes)
        content: bytes = proto.SerializeToString(deterministic=True)
        return content

    def _pool(self, name: str, tensor: ir.TensorProtocol) -> None:
        path = self.pool / name
        if path.exists():
            return
        with replacing(path) as temporary, temporary.open("wb") as file:
            _stream(tensor, file)


def _places(
    proto: onnx.ModelProto, payloads: list[Payload]
) -> Iterator[tuple[onnx.TensorProto, Payload]]:
    """The message in a copy of a skeleton that each payload belongs to."""
    inner = [part for part in payloads if part.index is None]
    for part in payloads:
        if part.index is not None:
            yield proto.graph.initializer[part.index], part
    if inner:
        yield from zip(list(hollow(proto)), inner, strict=True)


def _refer(message: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    message.data_location = onnx.TensorProto.EXTERNAL
    for key, content in (("location", location), ("offset", offset), ("length", length)):
        message.external_data.add(key=key, value=str(content))


def _stream(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    """Write a tensor's bytes piece by piece, so that a mapped one never fills the memory."""
    content = payload(tensor)
    for start in range(0, len(content), _CHUNK):
        file.write(content[start : start + _CHUNK])


def write_inline(case: Case, file: BinaryIO) -> None:
    """Write a model with its tensors inside, each copied straight from its array.

    The wire format allows it: a message's length is known before its content is assembled, so the
    graph is written as its own fields, then one initializer after the other (protobuf encoding,
    https://protobuf.dev/programming-guides/encoding/).
    """
    if not case.payloads:
        file.write(case.skeleton.SerializeToString(deterministic=True))
        return
    rest = onnx.ModelProto()
    rest.CopyFrom(case.skeleton)
    inner = [part for part in case.payloads if part.index is None]
    if inner:
        for message, part in zip(list(hollow(rest)), inner, strict=True):
            message.raw_data = bytes(payload(part.tensor))
    tensors = {p.index: p.tensor for p in case.payloads if p.index is not None}
    heads: list[bytes] = []
    bodies: list[memoryview] = []
    for index, message in enumerate(rest.graph.initializer):
        head = message.SerializeToString(deterministic=True)
        body = memoryview(b"")
        if index in tensors:
            body = payload(tensors[index])
            head += _key(onnx.TensorProto.RAW_DATA_FIELD_NUMBER) + _varint(len(body))
        length = len(head) + len(body)
        heads.append(_key(onnx.GraphProto.INITIALIZER_FIELD_NUMBER) + _varint(length) + head)
        bodies.append(body)
    rest.graph.ClearField("initializer")
    graph = rest.graph.SerializeToString(deterministic=True)
    rest.ClearField("graph")
    total = len(graph) + sum(map(len, heads)) + sum(map(len, bodies))
    file.write(rest.SerializeToString(deterministic=True))
    file.write(_key(onnx.ModelProto.GRAPH_FIELD_NUMBER) + _varint(total) + graph)
    for head, body in zip(heads, bodies, strict=True):
        file.write(head)
        file.write(body)


def _key(field: int) -> bytes:
    """The tag of a length-delimited field."""
    return _varint(field << 3 | 2)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def save_model(model: ir.Model | Case, path: Path) -> None:
    """Write a model that needs no other file, or, above 2 GB, one file of data beside it.

    What was there stays whole until the new content is on the disk.

    Raises:
        UsageError: `path` is the file that the model was read from, or cannot be written.
    """
    case = model if isinstance(model, Case) else Case(model, {})
    if case.model.graph.meta.get(SOURCE) == str(path.resolve()):
        raise UsageError(f"{path} is the input model, which is never written to: name another file")
    slack = 1 << 20
    size = weight(case) + case.skeleton.ByteSize() + slack
    try:
        if size < PROTOBUF_LIMIT:
            with replacing(path) as temporary, temporary.open("wb") as file:
                write_inline(case, file)
        else:
            _save_external(case, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _save_external(case: Case, path: Path) -> None:
    data = path.with_name(path.name + ".data")
    proto = onnx.ModelProto()
    proto.CopyFrom(case.skeleton)
    written: dict[str, int] = {}
    with replacing(data) as temporary, temporary.open("wb") as file:
        for message, part in _places(proto, case.payloads):
            digest = tensor_digest(part.tensor)
            if digest not in written:
                # Runtimes map tensors straight from the file: keep them aligned.
                file.write(bytes(-file.tell() % 64))
                written[digest] = file.tell()
                _stream(part.tensor, file)
            _refer(message, data.name, written[digest], part.tensor.nbytes)
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString(deterministic=True))
