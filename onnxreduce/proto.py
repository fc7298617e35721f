"""From `onnx_ir` to protobuf without the weights.

`onnx_ir.to_proto` copies every tensor into the message. A reducer writes thousands of candidates
that share nearly all of theirs, so here the message and the payloads are kept apart: a *skeleton*
holds everything but the bytes of large tensors, and says which tensor belongs where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir import serde

from onnxreduce.tensors import SparseInitializer, payload, string_items

SMALL = 1024
"""Tensors up to this many bytes are whole in the skeleton: shape inference reads them."""

PROTOBUF_LIMIT = (1 << 31) - 1
"""No protobuf message can be larger; what is takes external data."""

QUANTIZATION = "quant_parameter_tensor_names"
"""Where `onnx_ir` keeps a value's quantization annotation in `Value.meta`."""

TRAINING_INFO = "onnxreduce.training_info"
"""Where the loader keeps serialised `TrainingInfoProto` messages in the main graph's `meta`."""


@dataclass(frozen=True)
class Payload:
    """A tensor whose bytes are left out of a skeleton.

    Attributes:
        tensor: the tensor that belongs there.
        index: its place among the main graph's initializers; ``None`` for a tensor in a
            subgraph, function or attribute. Those come in the order of `hollow`.
    """

    tensor: ir.TensorProtocol
    index: int | None


def skeleton(model: ir.Model) -> tuple[onnx.ModelProto, list[Payload]]:
    """The canonical message of a model without the bytes of tensors above `SMALL`."""
    writer = _Writer(model.ir_version)
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if content := getattr(model, field):
            setattr(proto, field, content)
    _write_opsets(proto.opset_import, model.opset_imports)
    _write_strings(proto.metadata_props, model.metadata_props)
    if model.ir_version >= 11:
        for configuration in model.device_configurations:
            proto.configuration.append(serde.serialize_model_configuration(configuration))
    writer.write_graph(proto.graph, model.graph)
    for function in model.functions.values():
        writer.write_function(proto, function)
    for info in model.graph.meta.get(TRAINING_INFO, ()):
        proto.training_info.add().ParseFromString(info)
    return proto, writer.payloads


class _Writer:
    """Writes parts of a model, collecting the payloads that are left out."""

    def __init__(self, ir_version: int) -> None:
        self.ir_version = ir_version
        self.payloads: list[Payload] = []
        self.depth = 0

    def write_graph(self, proto: onnx.GraphProto, graph: ir.Graph) -> None:
        if graph.name:
            proto.name = graph.name
        if graph.doc_string:
            proto.doc_string = graph.doc_string
        inputs = {value.name for value in graph.inputs}
        for value in graph.inputs:
            serde.serialize_value_into(proto.input.add(), value)
            if value.name not in graph.initializers:
                _write_annotation(proto, value)
        for value in graph.initializers.values():
            _write_annotation(proto, value)
            if value.name not in inputs and not _as_its_tensor(value):
                _write_value_info(proto.value_info, value)
            self.write_initializer(proto, value)
        self.depth += 1
        for node in graph:
            self.write_node(proto.node.add(), node)
            for output in node.outputs:
                if not output.is_graph_output():
                    _write_annotation(proto, output)
                    _write_value_info(proto.value_info, output)
        self.depth -= 1
        for value in graph.outputs:
            serde.serialize_value_into(proto.output.add(), value)
            if value.producer() is not None:
                _write_annotation(proto, value)
        _write_strings(proto.metadata_props, graph.metadata_props)

    def write_initializer(self, proto: onnx.GraphProto, value: ir.Value) -> None:
        tensor = value.const_value
        if type(tensor) is SparseInitializer:
            sparse = proto.sparse_initializer.add()
            sparse.CopyFrom(tensor.proto)
            sparse.values.name = value.name or ""
        elif tensor is not None:
            index = None if self.depth else len(proto.initializer)
            self.write_tensor(proto.initializer.add(), tensor, value.name, index)

    def write_tensor(
        self,
        proto: onnx.TensorProto,
        tensor: ir.TensorProtocol,
        name: str | None,
        index: int | None = None,
    ) -> None:
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
            self.payloads.append(Payload(tensor, index))

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
            self.write_graph(proto.g, attribute.as_graph())
        elif kind == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                self.write_graph(proto.graphs.add(), graph)
        elif kind == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            self.write_tensor(proto.t, tensor, tensor.name)
        elif kind == ir.AttributeType.TENSORS:
            for tensor in attribute.as_tensors():
                self.write_tensor(proto.tensors.add(), tensor, tensor.name)
        elif kind == ir.AttributeType.SPARSE_TENSOR:
            proto.sparse_tensor.CopyFrom(attribute.value.proto)
        elif kind == ir.AttributeType.SPARSE_TENSORS:
            proto.sparse_tensors.extend(sparse.proto for sparse in attribute.value)

    def write_function(self, model: onnx.ModelProto, function: ir.Function) -> None:
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
        for node in function:
            self.write_node(proto.node.add(), node)
            values.extend(node.outputs)
        # Functions hold value_info of their own since IR version 10; before, exporters put it
        # into the main graph's, under a qualified name.
        for value in values:
            if self.ir_version >= 10:
                _write_value_info(proto.value_info, value)
            else:
                prefix = f"{function.domain}::{function.name}/"
                _write_value_info(model.graph.value_info, value, prefix)


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
    if names := value.meta.get(QUANTIZATION):
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


def hollow(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensor messages of a skeleton outside the main graph's initializers that lack their
    bytes, in the order in which `skeleton` lists their payloads."""
    for root in (proto.graph, *proto.functions):
        for tensor in nested_tensors(root):
            if not tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
                yield tensor


def nested_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """The tensors in a graph's nodes: attributes, and all those of subgraphs."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from inner.initializer
                yield from nested_tensors(inner)


def nested_graphs(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs below a graph or function, outermost first."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield inner
                yield from nested_graphs(inner)
