"""Messages without the weights.

`onnx_ir.to_proto` copies every tensor into the message. A reducer writes thousands of candidates
that share nearly all of theirs, so here the message and the payloads are kept apart: a *skeleton*
holds everything but the bytes of large tensors, and says which tensor belongs where. It is made in
`encoding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx_ir as ir

SMALL = 1024
"""Tensors up to this many bytes are whole in the skeleton: shape inference reads them."""

PROTOBUF_LIMIT = (1 << 31) - 1
"""No protobuf message can be larger; what is takes external data."""


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
