"""The graph as a mermaid diagram, as issue trackers draw it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxreduce.changes import type_text
from onnxreduce.emit.escape import diagram

MOST = 40
"""Nodes of a diagram that can still be looked at."""


def mermaid(model: ir.Model) -> str | None:
    """The main graph; ``None`` when it is too large to draw."""
    if len(model.graph) > MOST:
        return None
    return "\n".join(["flowchart TD", *(f"  {line}" for line in _lines(model.graph))])


def _lines(graph: ir.Graph) -> Iterator[str]:
    ids: dict[ir.Value, str] = {}
    for index, value in enumerate(graph.inputs):
        if not value.is_initializer():
            ids[value] = f"i{index}"
            yield f'i{index}(["{_declared(value)}"])'
    for index, value in enumerate(graph.initializers.values()):
        ids[value] = f"w{index}"
        yield f'w{index}[/"{_declared(value)}"/]'
    for index, node in enumerate(graph):
        attributes = [
            diagram(f"{name} = {attribute_text(attribute)}")
            for name, attribute in node.attributes.items()
        ]
        yield f'n{index}["{"<br/>".join([f"<b>{diagram(node.op_type)}</b>", *attributes])}"]'
        ids |= dict.fromkeys(node.outputs, f"n{index}")
    outputs = [*graph.outputs]
    for index, value in enumerate(outputs):
        yield f'o{index}(["{_declared(value)}"])'
    for index, node in enumerate(graph):
        for value in _read(node):
            if value in ids:
                label = f'|"{diagram(value.name, 30)}"| ' if ids[value][0] == "n" else ""
                yield f"{ids[value]} -->{label}n{index}"
    for index, value in enumerate(outputs):
        if value in ids:
            yield f"{ids[value]} --> o{index}"


def _read(node: ir.Node) -> list[ir.Value]:
    """What a node reads, its bodies included; in order, each once."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            found += [value for inner in attribute.as_graph() for value in _read(inner)]
    return list(dict.fromkeys(found))


def _declared(value: ir.Value) -> str:
    return diagram(f"{(value.name or '')[:30]}: {type_text(value)}")


def attribute_text(attribute: ir.Attr) -> str:
    """An attribute's value in a few words."""
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return f"{tensor.dtype.name.lower()}{[*tensor.shape.numpy()]}"
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "a body"
    value = attribute.value
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
