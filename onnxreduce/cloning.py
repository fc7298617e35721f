"""Copies of models and graphs that may be changed in place.

Every candidate begins as one, so what a copy costs counts: graphs, nodes and values are new, all
that nobody changes in place is shared: tensors, types, shapes, and attributes without a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir


def clone_model(model: ir.Model) -> ir.Model:
    """A copy of a model. Shapes are shared, so they are frozen: to change one, replace it.

    Raises:
        ValueError: a node reads what is made after it, or nowhere.
    """
    return ir.Model(
        clone_graph(model.graph),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=[function.clone() for function in model.functions.values()],
        metadata_props=dict(model.metadata_props),
        device_configurations=model.device_configurations,
    )


def clone_graph(graph: ir.Graph | ir.GraphView) -> ir.Graph:
    """A copy of a graph, or of the part of one that a view shows. See `clone_model`."""
    return _Cloner().graph(graph)


class _Cloner:
    """Copies, by what they are copies of."""

    def __init__(self) -> None:
        self._values: dict[ir.Value, ir.Value] = {}

    def graph(self, graph: ir.Graph | ir.GraphView) -> ir.Graph:
        inputs = [self._root(value) for value in graph.inputs]
        initializers = [self._root(value) for value in graph.initializers.values()]
        nodes = [self._node(node) for node in graph]
        copy = ir.Graph(
            inputs,
            [self._known(value, graph.name) for value in graph.outputs],
            nodes=nodes,
            initializers=initializers,
            doc_string=graph.doc_string,
            opset_imports=dict(graph.opset_imports),
            name=graph.name,
            metadata_props=_props(graph),
        )
        _copy_meta(graph, copy)
        return copy

    def _root(self, value: ir.Value) -> ir.Value:
        """An input or initializer, which may be both. In a view a node may have made it."""
        known = self._values.get(value)
        return self._value(value) if known is None else known

    def _known(self, value: ir.Value, where: str | None) -> ir.Value:
        try:
            return self._values[value]
        except KeyError:
            raise ValueError(f"{where} reads {value.name} before it is made") from None

    def _node(self, node: ir.Node) -> ir.Node:
        inputs = [None if v is None else self._known(v, node.name) for v in node.inputs]
        outputs = [self._value(value) for value in node.outputs]
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            [self._attribute(attribute) for attribute in node.attributes.data.values()],
            overload=node.overload,
            outputs=outputs,
            version=node.version,
            name=node.name,
            doc_string=node.doc_string,
            metadata_props=_props(node),
        )
        _copy_meta(node, copy)
        if node.device_configurations:
            copy.device_configurations = tuple(map(self._sharded, node.device_configurations))
        return copy

    def _value(self, value: ir.Value) -> ir.Value:
        shape = value.shape
        if shape is not None:
            shape.freeze()
        copy = self._values[value] = ir.Value(
            name=value.name,
            shape=shape,
            type=value.type,
            doc_string=value.doc_string,
            const_value=value.const_value,
            metadata_props=_props(value),
        )
        _copy_meta(value, copy)
        return copy

    def _attribute(self, attribute: ir.Attr) -> ir.Attr:
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            content: Any = self.graph(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            content = [self.graph(body) for body in attribute.as_graphs()]
        else:
            return attribute
        return ir.Attr(attribute.name, attribute.type, content, doc_string=attribute.doc_string)

    def _sharded(self, configuration: Any) -> Any:
        """Where a node runs; it names values."""
        specs = tuple(
            replace(spec, value=self._values.get(spec.value, spec.value))
            for spec in configuration.sharding_specs
        )
        return replace(configuration, sharding_specs=specs)


def meta_of(holder: Any) -> Mapping[str, Any]:
    """The `meta` of a value, node or graph, for reading.

    `onnx_ir` makes a store of four objects when it is first asked for one, which most values never
    need; a candidate has thousands of values, and each costs the garbage collector time.
    """
    store: Mapping[str, Any] | None = getattr(holder, "_metadata", None)
    return {} if store is None else store


def props_of(holder: Any) -> Mapping[str, str]:
    """As `meta_of`, for `metadata_props`."""
    props: Mapping[str, str] | None = getattr(holder, "_metadata_props", None)
    return {} if props is None else props


def _props(holder: Any) -> dict[str, str] | None:
    return dict(props) if (props := props_of(holder)) else None


def _copy_meta(old: Any, new: Any) -> None:
    if kept := meta_of(old):
        new.meta.data.update(kept)
