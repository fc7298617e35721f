"""What a rule sees of a node, and all that it can say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxreduce.dims.expr import UNIT, Axes, Expr, Prod, Sum, Sym, normal, product, total
from onnxreduce.dims.provenance import Dim, Element, Lit, Vector
from onnxreduce.dims.solve import Check, Driven, Size, SizeFn
from onnxreduce.tensors import Array

if TYPE_CHECKING:
    from onnxreduce.dims.analysis import Analysis


class Unruly(Exception):
    """A rule does not cover this node; its axes are frozen (or probed) instead."""


class Frozen(Unruly):
    """Nor may it be probed: its axes are frozen."""


class Site:
    """One node under analysis.

    A rule reads axes, shapes and values of inputs, unifies expressions, says what the axes of the
    outputs are, and names what must be mended when sizes change. It raises `Unruly` (or
    `SizeMismatch`, from `unify`) for a node that it does not cover.
    """

    def __init__(self, analysis: Analysis, node: ir.Node, key: str) -> None:
        self.analysis = analysis
        self.node = node
        self.key = key
        self.op_type = node.op_type
        self.domain = node.domain
        self.opset = analysis.opset(node.domain)
        self.results: dict[int, Axes] = {}
        self.open: set[int] = set()

    # --- reading ---------------------------------------------------------------------------

    @property
    def arity(self) -> int:
        return len(self.node.inputs)

    def has(self, i: int) -> bool:
        """Whether the optional input `i` is there."""
        return i < len(self.node.inputs) and self.node.inputs[i] is not None

    def ax(self, i: int) -> Axes:
        """The axes of input `i`, normalised."""
        value = self.node.inputs[i] if i < len(self.node.inputs) else None
        axes = self.analysis.axes_of(value)
        if axes is None:
            raise Unruly(f"input {i} has no known shape")
        return tuple(map(normal, axes))

    def sh(self, i: int) -> tuple[int, ...]:
        """The current shape of input `i`."""
        return tuple(axis.size for axis in self.ax(i))

    def rank(self, i: int) -> int:
        return len(self.ax(i))

    def val(self, i: int) -> Array | None:
        """The current value of input `i`, where it is stored or recorded."""
        value = self.node.inputs[i] if self.has(i) else None
        return None if value is None else self.analysis.array_of(value)

    def need(self, i: int) -> Array:
        array = self.val(i)
        if array is None:
            raise Unruly(f"input {i} is not known")
        return array

    def prov(self, i: int) -> Vector | None:
        """Where each element of input `i` came from, where that is known."""
        return self.analysis.vector_of(self.node, i, self.key)

    def shape_out(self, j: int = 0) -> tuple[int, ...]:
        """The current shape of output `j`."""
        shape = self.analysis.shape_of(self.node.outputs[j])
        if shape is None:
            raise Unruly(f"output {j} has no known shape")
        return shape

    def value_out(self, j: int = 0) -> Array | None:
        return self.analysis.array_of(self.node.outputs[j])

    def wants(self, j: int) -> bool:
        """Whether the optional output `j` is there."""
        return j < len(self.node.outputs) and bool(self.node.outputs[j].name)

    def given(self, name: str) -> bool:
        return name in self.node.attributes

    def _attribute(self, name: str) -> ir.Attr | None:
        attribute = self.node.attributes.get(name)
        return attribute if isinstance(attribute, ir.Attr) else None

    def number(self, name: str, default: int = 0) -> int:
        attribute = self._attribute(name)
        return default if attribute is None else attribute.as_int()

    def numbers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        attribute = self._attribute(name)
        return list(default) if attribute is None else [int(i) for i in attribute.as_ints()]

    def text(self, name: str, default: str = "") -> str:
        attribute = self._attribute(name)
        return default if attribute is None else attribute.as_string()

    # --- making ----------------------------------------------------------------------------

    def fresh(self, size: int, anchor: tuple[Any, ...] | None = None) -> Expr:
        """A new symbol; with an anchor (attribute name, index), a class that can be asked for."""
        expr = self.analysis.space.fresh(size)
        if anchor is not None and isinstance(expr, Sym):
            self.analysis.anchor(("attribute", self.key, *anchor), expr)
        return expr

    def slack(self, size: int, anchor: tuple[Any, ...] | None = None) -> Expr:
        """A piece of a sum that may vanish."""
        expr = self.analysis.space.slack(size)
        if anchor is not None:
            self.analysis.anchor(("attribute", self.key, *anchor), expr)
        return expr

    def rigid(self, size: int) -> Expr:
        return self.analysis.space.fresh(size, rigid=True)

    def body(self, name: str, inputs: Sequence[Axes]) -> list[Axes | None]:
        """Looks into a subgraph whose inputs have these axes: the axes of its outputs, ``None``
        where they are not known."""
        return self.analysis.enter(self.node, self.graph(name), inputs)

    def graph(self, name: str) -> ir.Graph:
        """A subgraph."""
        attribute = self._attribute(name)
        if attribute is None:
            raise Frozen(f"no {name}")
        return attribute.as_graph()

    # --- saying ----------------------------------------------------------------------------

    def unify(self, left: Expr, right: Expr) -> None:
        self.analysis.space.unify(left, right)

    def match(self, left: Iterable[Expr], right: Iterable[Expr]) -> None:
        """Unify two equally long lists of axes."""
        for a, b in zip(left, right, strict=True):
            self.unify(a, b)

    def out(self, axes: Iterable[Expr], j: int = 0) -> None:
        """The axes of output `j`; an optional output that is not there is skipped."""
        if not self.wants(j):
            return
        result = tuple(map(normal, axes))
        shape = self.analysis.shape_of(self.node.outputs[j])
        if shape is not None and tuple(axis.size for axis in result) != shape:
            raise Unruly(f"output {j} is {shape}, not {tuple(a.size for a in result)}")
        self.results[j] = result

    def tell(self, vector: Vector | None, j: int) -> None:
        """The elements of output `j`, where they are known."""
        name = self.node.outputs[j].name
        if vector is not None and name:
            self.analysis.vectors[name] = vector

    def out_by_values(self, j: int = 0) -> None:
        """The size of output `j` depends on values: whatever it becomes is right, as long as it is
        a graph output that no node reads.

        Raises:
            Frozen: a node reads it.
        """
        value = self.node.outputs[j]
        if value.uses():
            raise Frozen(f"a node reads output {j}, whose size depends on values")
        self.open.add(j)

    def driven(self, size: int, function: SizeFn, why: str = "") -> Expr:
        """A new axis whose size is a function of others."""
        axis = self.analysis.space.fresh(size)
        self.equal(axis, function, why)
        return axis

    def equal(self, axis: Expr, function: SizeFn, why: str = "") -> None:
        """The size of an axis is that of a function."""
        reason = f"{self.op_type} {self.key}{': ' if why else ''}{why}"
        self.analysis.system.driven.append(Driven(axis, function, reason))

    def check(self, holds: Callable[[Size], bool], why: str) -> None:
        """A condition that any plan must keep."""
        self.analysis.system.checks.append(Check(holds, f"{self.op_type} {self.key}: {why}"))

    def attr(self, name: str, function: Callable[[Size], Any]) -> None:
        """An attribute that follows the sizes; nothing happens where it is not given."""
        if self.given(name):
            self.analysis.attribute_mends.append((self.key, name, function))

    def lit(self, i: int, index: int, function: SizeFn) -> None:
        """The stored element of input `i` follows the sizes.

        Raises:
            Unruly: it is computed.
        """
        vector = self.prov(i)
        element = vector.elements[index] if vector is not None else None
        if not isinstance(element, Lit):
            raise Unruly(f"element {index} of input {i} is computed")
        self.literal(element, function)

    def literal(self, element: Lit, function: SizeFn) -> None:
        self.analysis.literal_mends.append((element, function))

    def sized(self, axis: Expr, element: Element) -> None:
        """An axis whose size is written in (or computed to) an element of a vector."""
        if isinstance(element, Dim):
            self.unify(axis, element.axis)
        elif isinstance(element, Lit):
            where = (element.root, element.edge, element.index)
            known = self.analysis.literal_axes.setdefault(where, axis)
            self.analysis.space.tie(known, axis)  # readers that share a literal
            self.literal(element, lambda size: size(axis))
        else:
            self.equal(axis, lambda size: int(element.at(size)), "computed size")

    def clamp(self, i: int, axis: Expr, counts: bool = False) -> None:
        """Input `i` holds indices into `axis` (or lengths along it): they follow what is kept. The
        axis is frozen when they are computed."""
        self.analysis.index_into(self.node, i, axis, counts)

    def fix(self, *inputs: int) -> None:
        """The axes of these inputs may not change."""
        for i in inputs:
            if self.has(i):
                for axis in self.analysis.axes_of(self.node.inputs[i]) or ():
                    self.freeze(axis)

    def freeze(self, axis: Expr) -> None:
        self.analysis.space.freeze(axis)

    # --- common shapes of rules --------------------------------------------------------------

    def axis(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """An axis attribute, negative values resolved against the rank of the first input."""
        rank = self.rank(0) if rank is None else rank
        axis = self.number(name, default)
        return axis + rank if axis < 0 else axis

    def broadcast(self, inputs: Iterable[int]) -> Axes:
        """Unify the axes of inputs under multidirectional broadcasting."""
        return self.spread([self.ax(i) for i in inputs])

    def spread(self, shapes: Sequence[Axes]) -> Axes:
        rank = max((len(axes) for axes in shapes), default=0)
        result: list[Expr] = [UNIT] * rank
        for axes in shapes:
            offset = rank - len(axes)
            for at, axis in enumerate(axes):
                if axis.size == 1:
                    continue
                if result[offset + at].size == 1:
                    result[offset + at] = axis
                else:
                    self.unify(result[offset + at], axis)
        return tuple(result)

    def slices(self) -> list[tuple[int, int, int, int]] | None:
        """(axis, start, end, step) of a Slice as given, unclamped; ``None`` where not known."""
        if self.opset < 10:
            starts, ends = self.numbers("starts"), self.numbers("ends")
            axes, steps = self.numbers("axes", range(len(starts))), [1] * len(starts)
        else:
            arrays = [self.val(i) for i in range(1, 5)]
            if arrays[0] is None or arrays[1] is None:
                return None
            starts, ends = arrays[0].tolist(), arrays[1].tolist()
            axes = list(range(len(starts))) if arrays[2] is None else arrays[2].tolist()
            steps = [1] * len(starts) if arrays[3] is None else arrays[3].tolist()
        rank = self.rank(0)
        return [(a % rank, s, e, t) for a, s, e, t in zip(axes, starts, ends, steps, strict=True)]


__all__ = ["UNIT", "Prod", "Site", "Sum", "Unruly", "normal", "product", "total"]
