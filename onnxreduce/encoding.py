"""From `onnx_ir` to the bytes of a message, piece by piece.

A candidate differs from the case before it in a few places, and protobuf allows to write a message
as the concatenation of its parts (https://protobuf.dev/programming-guides/encoding/). So what each
node and each initializer comes to in bytes is remembered, and a model is put together from that.
What a piece is remembered by is read anew every time from the node itself, so nothing has to be
told when a node changes. The bytes are those that protobuf's deterministic serialisation gives.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir
from onnx_ir import serde

from onnxreduce.cloning import meta_of, props_of
from onnxreduce.proto import SMALL, Payload
from onnxreduce.tensors import SparseInitializer, named_bodies, payload, string_items

QUANTIZATION = "quant_parameter_tensor_names"
"""Where `onnx_ir` keeps a value's quantization annotation in `Value.meta`."""

TRAINING_INFO = "onnxreduce.training_info"
"""Where the loader keeps serialised `TrainingInfoProto` messages in the main graph's `meta`."""

_FIELDS = ("node", "initializer", "value_info", "quantization_annotation", "sparse_initializer")
"""Of a graph: what its nodes and values add to."""

REMEMBERED = 1 << 15
"""So many nodes are remembered, then all are forgotten: some 20 MB."""


class Encoded(NamedTuple):
    """A skeleton.

    Attributes:
        content: the serialised `ModelProto`.
        payloads: the tensors whose bytes are left out.
    """

    content: bytes
    payloads: list[Payload]

    def message(self) -> onnx.ModelProto:
        message = onnx.ModelProto()
        message.ParseFromString(self.content)
        return message


def encode(model: ir.Model) -> Encoded:
    """The canonical message of a model without the bytes of tensors above `SMALL`."""
    writer = _Writer(model.ir_version)
    before = onnx.ModelProto(ir_version=model.ir_version)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if content := getattr(model, field):
            setattr(before, field, content)
    after = onnx.ModelProto()
    _write_opsets(after.opset_import, model.opset_imports)
    _write_strings(after.metadata_props, model.metadata_props)
    for info in model.graph.meta.get(TRAINING_INFO, ()):
        after.training_info.add().ParseFromString(info)
    if model.ir_version >= 11:
        for configuration in model.device_configurations:
            after.configuration.append(serde.serialize_model_configuration(configuration))
    columns = writer.columns(model.graph)
    more = onnx.GraphProto()
    for function in model.functions.values():
        writer.write_function(after, more, function)
    graph = columns.joined(model.graph, _bytes(more))
    opening = tag(onnx.ModelProto.GRAPH_FIELD_NUMBER) + varint(len(graph))
    content = b"".join((_bytes(before), opening, graph, _bytes(after)))
    return Encoded(content, writer.payloads)


class _Piece(NamedTuple):
    """What a node, or a value, adds to its graph.

    Attributes:
        parts: bytes for each of `_FIELDS`.
        large: whether the bytes of the initializer are left out.
        kept: what the piece is remembered by the identity of, so that no other gets it.
    """

    parts: tuple[bytes, ...] = (b"",) * len(_FIELDS)
    large: bool = False
    kept: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, scratch: onnx.GraphProto, *, large: bool = False, kept: tuple[Any, ...] = ()
    ) -> _Piece:
        """Each field serialised by itself."""
        there = [name for name in _FIELDS if getattr(scratch, name)]
        if len(there) == 1:  # as most often: nothing has to be taken apart
            whole = _bytes(scratch)
            return cls(tuple(whole if name in there else b"" for name in _FIELDS), large, kept)
        return cls(tuple(_only(scratch, name) for name in _FIELDS), large, kept)


_NOTHING = _Piece()


def _only(scratch: onnx.GraphProto, name: str) -> bytes:
    content = getattr(scratch, name)
    if not content:
        return b""
    only = onnx.GraphProto()
    getattr(only, name).extend(content)
    return _bytes(only)


class _Columns(list[_Piece]):
    """The pieces of a graph."""

    def joined(self, graph: ir.Graph, more: bytes = b"") -> bytes:
        """The whole graph, its fields in the order of their numbers.

        Args:
            more: value_info beside that of the pieces.
        """
        nodes, tensors, infos, annotations, sparse = (
            b"".join([piece.parts[place] for piece in self]) for place in range(len(_FIELDS))
        )
        name, ends, props = onnx.GraphProto(), onnx.GraphProto(), onnx.GraphProto()
        if graph.name:
            name.name = graph.name
        if graph.doc_string:
            ends.doc_string = graph.doc_string
        for value in graph.inputs:
            serde.serialize_value_into(ends.input.add(), value)
        for value in graph.outputs:
            serde.serialize_value_into(ends.output.add(), value)
        _write_strings(props.metadata_props, graph.metadata_props)
        whole = (nodes, _bytes(name), tensors, _bytes(ends), infos, more, annotations, sparse)
        return b"".join((*whole, _bytes(props)))


class _Writer:
    """Writes parts of a model, collecting the payloads that are left out."""

    def __init__(self, ir_version: int) -> None:
        self.ir_version = ir_version
        self.payloads: list[Payload] = []
        self.depth = 0

    def columns(self, graph: ir.Graph) -> _Columns:
        pieces = _Columns()
        inputs = {value.name for value in graph.inputs}
        pieces += [
            _annotated(value) for value in graph.inputs if value.name not in graph.initializers
        ]
        place = 0
        for value in graph.initializers.values():
            piece = _initializer(value, value.name in inputs)
            if piece.large:
                assert value.const_value is not None
                self.payloads.append(Payload(value.const_value, None if self.depth else place))
            place += bool(piece.parts[1])
            pieces.append(piece)
        self.depth += 1
        pieces += [self._node(node) for node in graph]
        self.depth -= 1
        pieces += [_annotated(value) for value in graph.outputs if value.producer() is not None]
        return pieces

    def _node(self, node: ir.Node) -> _Piece:
        key = _node_key(node)
        known = _nodes.get(key)
        if known is not None:
            return known
        scratch = onnx.GraphProto()
        before = len(self.payloads)
        self.write_node(scratch.node.add(), node)
        for output in node.outputs:
            if not output.is_graph_output():
                _write_annotation(scratch, output)
                _write_value_info(scratch.value_info, output)
        kept = (
            *node.attributes.data.values(),
            *((value.type, value.shape) for value in node.outputs),
        )
        piece = _Piece.of(scratch, kept=kept)
        # Bodies change without their node, and no large tensor may be held on to.
        if (
            not named_bodies(node)
            and len(self.payloads) == before
            and not node.device_configurations
        ):
            if len(_nodes) >= REMEMBERED:
                _nodes.clear()
            _nodes[key] = piece
        return piece

    def write_node(self, proto: onnx.NodeProto, node: ir.Node) -> None:
        proto.op_type = node.op_type
        for field in ("domain", "name", "overload", "doc_string"):
            if content := getattr(node, field):
                setattr(proto, field, content)
        _write_strings(proto.metadata_props, node.metadata_props)
        proto.input.extend("" if value is None else value.name or "" for value in node.inputs)
        outputs = [value.name or "" for value in node.outputs]
        while outputs and not outputs[-1]:
            outputs.pop()
        proto.output.extend(outputs)
        for attribute in node.attributes.values():
            self.write_attribute(proto.attribute.add(), attribute)
        if self.ir_version >= 11:
            for configuration in node.device_configurations:
                proto.device_configurations.append(
                    serde.serialize_node_device_configuration(configuration)
                )

    def write_attribute(self, proto: onnx.AttributeProto, attribute: ir.Attr) -> None:
        if attribute.is_ref():
            serde.serialize_reference_attribute_into(proto, attribute)
            return
        kind = attribute.type
        if kind in _PLAIN:
            serde.serialize_attribute_into(proto, attribute)
            return
        proto.name = attribute.name
        proto.type = kind.value  # type: ignore[assignment]
        if attribute.doc_string:
            proto.doc_string = attribute.doc_string
        if kind == ir.AttributeType.GRAPH:
            self._write_body(proto.g, attribute.as_graph())
        elif kind == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                self._write_body(proto.graphs.add(), graph)
        elif kind == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            self._write_tensor(proto.t, tensor)
        elif kind == ir.AttributeType.TENSORS:
            for tensor in attribute.as_tensors():
                self._write_tensor(proto.tensors.add(), tensor)
        elif kind == ir.AttributeType.SPARSE_TENSOR:
            proto.sparse_tensor.CopyFrom(attribute.value.proto)
        elif kind == ir.AttributeType.SPARSE_TENSORS:
            proto.sparse_tensors.extend(sparse.proto for sparse in attribute.value)

    def _write_tensor(self, proto: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        if _write_tensor(proto, tensor, tensor.name):
            self.payloads.append(Payload(tensor, None))

    def _write_body(self, proto: onnx.GraphProto, graph: ir.Graph) -> None:
        proto.ParseFromString(self.columns(graph).joined(graph))

    def write_function(
        self, model: onnx.ModelProto, main: onnx.GraphProto, function: ir.Function
    ) -> None:
        """Into a model's message, and into the graph's before IR version 10."""
        proto = model.functions.add(name=function.name)
        for field in ("domain", "overload", "doc_string"):
            if content := getattr(function, field):
                setattr(proto, field, content)
        _write_opsets(proto.opset_import, function.opset_imports)
        _write_strings(proto.metadata_props, function.metadata_props)
        proto.input.extend(value.name or "" for value in function.inputs)
        proto.output.extend(value.name or "" for value in function.outputs)
        for attribute in function.attributes.values():
            if attribute.value is not None:
                self.write_attribute(proto.attribute_proto.add(), attribute)
            else:
                proto.attribute.append(attribute.name)
        values = list(function.inputs)
        self.depth += 1
        for node in function:
            self.write_node(proto.node.add(), node)
            values.extend(node.outputs)
        self.depth -= 1
        # Functions hold value_info of their own since IR version 10; before, exporters put it
        # into the main graph's, under a qualified name.
        for value in values:
            if self.ir_version >= 10:
                _write_value_info(proto.value_info, value)
            else:
                prefix = f"{function.domain}::{function.name}/"
                _write_value_info(main.value_info, value, prefix)


def _initializer(value: ir.Value, is_input: bool) -> _Piece:
    """Of a value with a tensor; its declaration is among the inputs if it is one as well."""
    tensor = value.const_value
    told = (is_input, *_told(value))
    if tensor is not None:
        known, piece = _initializers.get(tensor, (None, _NOTHING))
        if known == told:
            return piece
    scratch, large = onnx.GraphProto(), False
    _write_annotation(scratch, value)
    if not is_input and not _as_its_tensor(value):
        _write_value_info(scratch.value_info, value)
    if type(tensor) is SparseInitializer:
        sparse = scratch.sparse_initializer.add()
        sparse.CopyFrom(tensor.proto)
        sparse.values.name = value.name or ""
    elif tensor is not None:
        large = _write_tensor(scratch.initializer.add(), tensor, value.name)
    piece = _Piece.of(scratch, large=large, kept=(value.type, value.shape))
    if tensor is not None:
        _initializers[tensor] = told, piece
    return piece


def _annotated(value: ir.Value) -> _Piece:
    if not meta_of(value):
        return _NOTHING
    scratch = onnx.GraphProto()
    _write_annotation(scratch, value)
    return _Piece.of(scratch)


def _node_key(node: ir.Node) -> Hashable:
    """All that a node's piece depends on, save its bodies."""
    return (
        node.op_type,
        node.domain,
        node.name,
        node.overload,
        node.doc_string,
        _items(props_of(node)),
        tuple([None if value is None else value.name for value in node.inputs]),
        tuple([(value.is_graph_output(), *_told(value)) for value in node.outputs]),
        tuple([id(attribute) for attribute in node.attributes.data.values()]),
    )


def _told(value: ir.Value) -> tuple[Hashable, ...]:
    """What a message says of a value. Its type and shape count by identity: so that they stay as
    they are, nobody may change them in place any more."""
    kind, shape, props = value.type, value.shape, props_of(value)
    if shape is not None:
        shape.freeze()
    meta = meta_of(value)
    return (
        value.name,
        (kind.dtype, kind.denotation) if isinstance(kind, ir.TensorType) else id(kind),
        id(shape),
        value.doc_string,
        _items(props) if props else None,
        _items(meta.get(QUANTIZATION)) if meta else None,
    )


def _items(strings: Mapping[str, str] | None) -> Hashable:
    return tuple(strings.items()) if strings else None


def _write_tensor(proto: onnx.TensorProto, tensor: ir.TensorProtocol, name: str | None) -> bool:
    """Whether its bytes were left out."""
    proto.dims.extend(tensor.shape.numpy())
    proto.data_type = tensor.dtype.value
    if name:
        proto.name = name
    if tensor.doc_string:
        proto.doc_string = tensor.doc_string
    _write_strings(proto.metadata_props, tensor.metadata_props)
    if tensor.dtype == ir.DataType.STRING:
        proto.string_data.extend(string_items(tensor))
    elif tensor.nbytes <= SMALL:
        proto.raw_data = bytes(payload(tensor))
    else:
        return True
    return False


_PLAIN = {
    ir.AttributeType.FLOAT,
    ir.AttributeType.INT,
    ir.AttributeType.STRING,
    ir.AttributeType.FLOATS,
    ir.AttributeType.INTS,
    ir.AttributeType.STRINGS,
    ir.AttributeType.TYPE_PROTO,
    ir.AttributeType.TYPE_PROTOS,
}


def _write_opsets(into: object, opsets: Mapping[str, int]) -> None:
    for domain, version in opsets.items():
        into.add(domain=domain, version=version)  # type: ignore[attr-defined]


def _write_strings(into: object, strings: Mapping[str, str] | None) -> None:
    for key in sorted(strings or ()):
        into.add(key=key, value=strings[key])  # type: ignore[attr-defined, index]


def _write_annotation(proto: onnx.GraphProto, value: ir.Value) -> None:
    if names := meta_of(value).get(QUANTIZATION):
        annotation = proto.quantization_annotation.add(tensor_name=value.name)
        _write_strings(annotation.quant_parameter_tensor_names, names)


def _as_its_tensor(value: ir.Value) -> bool:
    """Does an initializer's declaration say no more than its tensor does? `onnx_ir` declares every
    initializer when it reads a model."""
    tensor = value.const_value
    return (
        tensor is not None
        and value.type == ir.TensorType(tensor.dtype)
        and value.shape == tensor.shape
        and not (value.metadata_props or value.doc_string)
    )


def _write_value_info(into: object, value: ir.Value, prefix: str = "") -> None:
    if value.name and (value.type or value.shape or value.metadata_props or value.doc_string):
        info = into.add()  # type: ignore[attr-defined]
        serde.serialize_value_into(info, value, name=prefix + value.name)


def _bytes(message: Any) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(field: int) -> bytes:
    """What stands before a length-delimited field."""
    return varint(field << 3 | 2)


_nodes: dict[Hashable, _Piece] = {}
_initializers: weakref.WeakKeyDictionary[Any, tuple[Hashable, _Piece]] = weakref.WeakKeyDictionary()
