"""Stored tensors: graph inputs, initializers and constants. Slicing starts, and ends, there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod as multiply

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.dims.provenance import LONGEST, Edge
from onnxreduce.edits import key
from onnxreduce.tensors import Array, SparseInitializer

PASSING = {
    *("Identity", "Reshape", "Unsqueeze", "Squeeze", "Cast", "Transpose", "Flatten", "Expand"),
    *("Concat", "Slice", "Split"),
}
"""Operators that move elements but do not compute them."""
COPYING = {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Cast", "Flatten"}
"""Those that keep all of them, in their order."""


@dataclass(frozen=True)
class Root:
    """A stored tensor.

    Attributes:
        kind: ``input``, ``initializer`` or ``constant`` (a Constant node).
        shape: ``None`` for what is no tensor.
        rigid: it cannot be sliced (a sparse tensor).
        dim_params: names of declared symbolic dims.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    rigid: bool
    dim_params: tuple[str | None, ...]
    source: Array | ir.TensorProtocol | None

    @cached_property
    def count(self) -> int:
        return multiply(self.shape or ())

    @cached_property
    def array(self) -> Array | None:
        """The content. For an external tensor this reads the file."""
        if isinstance(self.source, np.ndarray) or self.source is None:
            return self.source
        return self.source.numpy()

    @property
    def small(self) -> Array | None:
        """The content where it can be a shape or the like."""
        return self.array if self.shape is not None and self.count <= LONGEST else None


def find_roots(case: Case, scopes: Iterable[ir.Graph]) -> dict[str, Root]:
    """All stored tensors of the main graph and of these bodies by name, in their order."""
    graph = case.model.graph
    roots: dict[str, Root] = {}
    for value in graph.inputs:
        if value.name is not None:
            held = case.inputs.get(value.name)
            source = held if isinstance(held, np.ndarray) else None
            if source is None and value.const_value is not None:
                continue
            shape = None if source is None else tuple(source.shape)
            roots[value.name] = Root(value.name, "input", shape, False, _names(value), source)
    for scope in scopes:
        for name, value in scope.initializers.items():
            if name not in roots and value.const_value is not None:
                roots[name] = _stored(name, "initializer", value.const_value, _names(value))
        for node in scope:
            tensor = constant_tensor(node)
            if tensor is not None and node.outputs[0].name:
                roots[node.outputs[0].name] = _stored(node.outputs[0].name, "constant", tensor, ())
    return roots


def _stored(name: str, kind: str, tensor: ir.TensorProtocol, names: tuple[str | None, ...]) -> Root:
    shape = tuple(int(n) for n in tensor.shape.numpy())
    return Root(name, kind, shape, type(tensor) is SparseInitializer, names, tensor)


def _names(value: ir.Value) -> tuple[str | None, ...]:
    if value.shape is None:
        return ()
    return tuple(None if isinstance(dim, int) else dim.value for dim in value.shape)


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor that a Constant node gives; ``None`` for other nodes and sparse values."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for name, attribute in node.attributes.items():
        if not isinstance(attribute, ir.Attr):
            continue
        if name == "value":
            return attribute.as_tensor()
        if name in ("value_int", "value_ints"):
            return ir.tensor(np.array(attribute.value, np.int64))
        if name in ("value_float", "value_floats"):
            return ir.tensor(np.array(attribute.value, np.float32))
    return None


@dataclass(frozen=True)
class Trail:
    """The way from where a value is read back to where it is stored.

    Attributes:
        operands: what an input of a body runs over, such as the input of a Scan.
    """

    roots: Mapping[str, Root]
    operands: dict[str, tuple[ir.Node, int]] = field(default_factory=dict)

    def follow(self, node: ir.Node, i: int) -> list[tuple[str, Edge]] | None:
        """The stored tensors whose elements reach input `i` unchanged, each with its first reader;
        ``None`` when some are computed."""
        value = node.inputs[i]
        if value is None:
            return []
        if value.name is not None and value.name in self.roots:
            return [(value.name, (key(node), i))]
        if value.name in self.operands:
            return self.follow(*self.operands[value.name])
        producer = value.producer()
        if producer is None or producer.op_type not in PASSING or producer.domain != "":
            return None
        found: list[tuple[str, Edge]] = []
        for at in range(len(producer.inputs) if producer.op_type == "Concat" else 1):
            below = self.follow(producer, at)
            if below is None:
                return None
            found.extend(below)
        return found


def origin(value: ir.Value | None) -> str:
    """The name of the value that this one is a copy of, reshaped or cast at most."""
    while value is not None:
        producer = value.producer()
        if producer is None or producer.op_type not in COPYING or producer.domain != "":
            break
        value = producer.inputs[0]
    return "" if value is None else value.name or ""
