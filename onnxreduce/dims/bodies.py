"""Bodies of control flow: the values of a subgraph join the analysis of the graph around it.

A body sees its own inputs and everything outside, so its axes are made of the same symbols. Values
are known by name; a body that shares a name with another one is not looked into.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxreduce.dims.expr import Axes
from onnxreduce.dims.provenance import fits
from onnxreduce.encoding import encode
from onnxreduce.shapes import FAILURES, inferred

if TYPE_CHECKING:
    from onnxreduce.dims.analysis import Analysis


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if isinstance(attribute, ir.Attr):
            if attribute.type == ir.AttributeType.GRAPH:
                yield attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                yield from attribute.as_graphs()


def scopes(model: ir.Model) -> list[ir.Graph]:
    """The main graph and, after the graph around it, each body whose names are its own."""
    found = [model.graph]
    if next(_bodies(model.graph), None) is None:  # then no name is looked at
        return found
    taken = set(_names(model.graph))

    def enter(graph: ir.Graph) -> None:
        for body in _bodies(graph):
            names = set(_names(body))
            if taken.isdisjoint(names):
                taken.update(names)
                found.append(body)
                enter(body)

    enter(model.graph)
    return found


def _bodies(graph: ir.Graph) -> Iterator[ir.Graph]:
    for node in graph:
        if node.attributes:
            yield from subgraphs(node)


def _names(graph: ir.Graph) -> Iterator[str]:
    values = [*graph.inputs, *graph.initializers.values()]
    values.extend(value for node in graph for value in node.outputs)
    return (value.name for value in values if value.name)


def within(node: ir.Node) -> Iterable[ir.Node]:
    """All nodes of its bodies, and of the bodies inside them."""
    for graph in subgraphs(node):
        yield from graph.all_nodes()


def body_shapes(
    analysis: Analysis, node: ir.Node, graph: ir.Graph, inputs: Sequence[Axes]
) -> dict[str, tuple[int, ...]]:
    """The shapes of the values of a body, where shape inference finds them from those of its
    inputs and of what it reads from outside. Types that its inputs do not declare are those of
    the inputs of the node, one by one."""
    model = analysis.case.model
    message = encode(ir.Model(graph, ir_version=model.ir_version)).message()
    del message.opset_import[:]
    for domain, version in model.opset_imports.items():
        message.opset_import.append(helper.make_opsetid(domain, version))
    for at, (declared, axes) in enumerate(zip(message.graph.input, inputs, strict=True)):
        shape = declared.type.tensor_type.shape
        shape.ClearField("dim")
        value = node.inputs[at] if at < len(node.inputs) else None
        kind = None if value is None else _kind(analysis, value)
        if not declared.type.tensor_type.elem_type and kind is not None:
            declared.type.tensor_type.elem_type = kind
        for axis in axes:
            shape.dim.add(dim_value=axis.size)
    _declare_captures(analysis, graph, message.graph)
    with contextlib.suppress(*FAILURES):
        message = onnx.shape_inference.infer_shapes(message, data_prop=True)
    known = (*message.graph.input, *message.graph.value_info, *message.graph.output)
    analysis.kinds.update({info.name: info.type.tensor_type.elem_type for info in known})
    return {info.name: shape for info in known if (shape := _static(info.type)) is not None}


def _declare_captures(analysis: Analysis, graph: ir.Graph, proto: onnx.GraphProto) -> None:
    own = set(_names(graph))
    for value in dict.fromkeys(v for node in graph.all_nodes() for v in node.inputs if v):
        if not value.name or value.name in own:
            continue
        array = analysis.array_of(value)
        shape = analysis.shape_of(value)
        if array is not None and array.dtype.kind in "iu" and fits(array.shape):
            proto.initializer.append(numpy_helper.from_array(array, value.name))
            own.add(value.name)
            continue
        kind = _kind(analysis, value)
        if shape is not None and kind is not None:
            proto.input.append(helper.make_tensor_value_info(value.name, kind, shape))
            own.add(value.name)


def _kind(analysis: Analysis, value: ir.Value) -> int | None:
    """The element type of a value, ``None`` where nothing tells it."""
    name = value.name or ""
    known = value.type or getattr(inferred(analysis.case.model).get(name), "type", None)
    if isinstance(known, ir.TensorType):
        return known.dtype.value
    return analysis.kinds.get(name) or None


def _static(proto: onnx.TypeProto) -> tuple[int, ...] | None:
    if not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)
