"""One walk over a case: expressions for every axis, and everything that follows their sizes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod as multiply
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.dims import provenance, rules
from onnxreduce.dims.bodies import body_shapes, scopes, within
from onnxreduce.dims.classes import (
    Anchor,
    AxisClass,
    find_classes,
    find_products,
    find_vanishing,
)
from onnxreduce.dims.expected import Expected, expected
from onnxreduce.dims.expr import Axes as AxisTuple
from onnxreduce.dims.expr import Expr, SizeMismatch, Space, Sym, leaves, settled
from onnxreduce.dims.probe import probe
from onnxreduce.dims.provenance import Lit, Vector
from onnxreduce.dims.roots import Root, Trail, find_roots, origin
from onnxreduce.dims.site import Frozen, Site, Unruly
from onnxreduce.dims.solve import Check, Plan, Size, System, solve
from onnxreduce.edits import Conflict, key
from onnxreduce.tensors import Array


@dataclass(frozen=True, eq=False)
class IndexMend:
    """A stored tensor that holds indices into an axis."""

    root: str
    edge: provenance.Edge
    axis: Expr
    counts: bool
    """Whether it holds lengths, one more than a last index."""


@dataclass(eq=False)
class Analysis:
    """The state that rules write to; see `Site` for what they may say."""

    case: Case
    loose: bool = False
    """See `Space`."""
    system: System = field(default_factory=System)
    axes: dict[str, AxisTuple | None] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    attribute_mends: list[tuple[str, str, Callable[[Size], Any]]] = field(default_factory=list)
    literal_mends: list[tuple[Lit, Callable[[Size], Any]]] = field(default_factory=list)
    index_mends: list[IndexMend] = field(default_factory=list)
    anchors: dict[Anchor, Expr] = field(default_factory=dict)
    literal_axes: dict[tuple[str, provenance.Edge, int], Expr] = field(default_factory=dict)
    kernels: list[Expr] = field(default_factory=list)
    unruly: dict[str, str] = field(default_factory=dict)
    """Nodes whose axes are frozen, and why."""
    turns: dict[str, Expr] = field(default_factory=dict)
    """How often a loop runs at most, by the name of the value that counts its turns."""

    def __post_init__(self) -> None:
        self.space = Space(self.loose)
        self.scopes = scopes(self.case.model)
        self.entered = {0}  # indices of scopes
        self.inner: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, int] = {}  # element types of values in bodies
        self.roots: dict[str, Root] = find_roots(self.case, self.scopes)
        self.trail = Trail(self.roots)
        self.expected = expected(self.case)
        recording = self.case.recording
        self.made_up = self.expected.made_up if recording is None else recording.made_up
        named: dict[str, Expr] = {}
        for name, root in self.roots.items():
            self.axes[name] = self._root_axes(root, named)
        for node in self.case.model.graph:
            self._node(node)
        self._tie_outputs(named)
        self._finish()

    # --- reading the case --------------------------------------------------------------------

    def opset(self, domain: str) -> int:
        imports = self.case.model.opset_imports
        return imports.get(domain, imports.get("ai.onnx", 1) if domain == "" else 1)

    def axes_of(self, value: ir.Value | None) -> AxisTuple | None:
        return None if value is None or value.name is None else self.axes.get(value.name)

    def array_of(self, value: ir.Value) -> Array | None:
        name = value.name or ""
        root = self.roots.get(name)
        if root is not None:
            return root.array
        if self.case.recording is not None:
            recorded = self.case.recording.get(name)
            if isinstance(recorded, np.ndarray):
                return recorded
        array = self.expected.array(name)
        if array is not None or name not in self.vectors:
            return array
        return self.vectors[name].array(lambda axis: axis.size)

    def shape_of(self, value: ir.Value) -> tuple[int, ...] | None:
        if isinstance(value.type, ir.SequenceType | ir.OptionalType):
            return None  # what is declared are the shapes of elements
        array = self.array_of(value)
        if array is not None:
            return tuple(array.shape)
        name = value.name or ""
        shape = self.inner.get(name, self.expected.shapes.get(name))
        if shape is not None or value.shape is None or not value.shape.is_static():
            return shape
        return tuple(value.shape.numpy())

    def vector_of(self, node: ir.Node, i: int, node_key: str) -> Vector | None:
        value = node.inputs[i] if i < len(node.inputs) else None
        if value is None or value.name is None:
            return None
        root = self.roots.get(value.name)
        if root is not None:
            array = root.small
            return None if array is None else provenance.stored(array, root.name, (node_key, i))
        return self.vectors.get(value.name)

    # --- building ----------------------------------------------------------------------------

    def anchor(self, anchor: Anchor, expr: Expr) -> None:
        self.anchors[anchor] = expr

    def index_into(self, node: ir.Node, i: int, axis: Expr, counts: bool) -> None:
        edges = self.trail.follow(node, i)
        if edges is not None:
            self.index_mends.extend(IndexMend(root, edge, axis, counts) for root, edge in edges)
            return
        turns = self.turns.get(origin(node.inputs[i]))
        if turns is None or turns.size > axis.size:
            self.space.freeze(axis)
            return
        # The number of a turn is an index as long as there are no more turns than indices.
        why = f"{node.op_type} {key(node)}: more turns than indices"
        self.system.checks.append(Check(lambda size: size(turns) <= size(axis), why))

    def _root_axes(self, root: Root, named: dict[str, Expr]) -> AxisTuple | None:
        if root.shape is None:
            return None
        axes = [self.space.fresh(size) for size in root.shape]
        if root.rigid:
            for axis in axes:
                self.space.freeze(axis)
        for at, name in enumerate(root.dim_params):
            if name is not None and at < len(axes) and axes[at].size > 1:
                self._tie_named(named, name, axes[at])
        return tuple(axes)

    def _tie_named(self, named: dict[str, Expr], name: str, axis: Expr) -> None:
        """Runtimes reuse buffers by the names of dims: equal names must stay equal sizes."""
        known = named.setdefault(name, axis)
        if known.size == axis.size:
            self.space.unify(known, axis)

    def _tie_outputs(self, named: Mapping[str, Expr]) -> None:
        for value in self.case.model.graph.outputs:
            axes = self.axes_of(value)
            if axes is None or value.shape is None or len(value.shape) != len(axes):
                continue
            for dim, axis in zip(value.shape, axes, strict=True):
                known = named.get(str(dim.value)) if isinstance(dim, ir.SymbolicDim) else None
                if known is not None and known.size == axis.size:
                    self.space.tie(known, axis)

    def _node(self, node: ir.Node) -> None:
        try:
            node_key = key(node)
        except Conflict:
            return
        if node_key in self.roots:
            return
        around, self.space.node = self.space.node, node_key
        self._place(node, node_key)
        self.space.node = around

    def _place(self, node: ir.Node, node_key: str) -> None:
        """Axes for the outputs of a node, by its rule or else by probing."""
        site = Site(self, node, node_key)
        found = rules.find(node.domain, node.op_type)
        why = Unruly("no rule") if found is None else self._try(site, found)
        if why is not None:
            failure = why if isinstance(why, Frozen) else self._try(site, probe)
            self.unruly[node_key] = f"{node.op_type}: {why}; {failure or 'probed'}"
            if failure is not None and self.made_up and not isinstance(failure, Frozen):
                # It need not run, so nothing is known of its result, and nothing holds its inputs.
                self._unknown(node)
                return
            if failure is not None:
                site.fix(*range(site.arity))
                self._freeze_bodies(node)
        for j, value in enumerate(node.outputs):
            if value.name and j in site.open:
                self.axes[value.name] = None
            elif value.name:
                self.axes[value.name] = site.results.get(j) or self._frozen(value)
        self._trace(site, node)

    def _try(self, site: Site, rule: rules.Rule) -> Exception | None:
        """Apply a rule; where it fails, why. A node that no rule covers, or that is malformed,
        keeps its axes."""
        marks = self._marks()
        try:
            rule(site)
        except (Unruly, SizeMismatch, LookupError, TypeError, ValueError, ArithmeticError) as error:
            self._undo(marks)
            site.results.clear()
            site.open.clear()
            return error
        return None

    def _trace(self, site: Site, node: ir.Node) -> None:
        first = node.outputs[0].name
        if not first:
            return
        try:
            if not provenance.traced(site):
                return
            vector = provenance.trace(
                site, [self.vector_of(node, i, site.key) for i in range(site.arity)]
            )
        except (Unruly, LookupError, TypeError, ValueError, ArithmeticError):
            return
        if vector is not None:
            self.vectors[first] = vector

    def _unknown(self, node: ir.Node) -> None:
        self._freeze_bodies(node)
        self.axes.update({value.name: None for value in node.outputs if value.name})

    def _frozen(self, value: ir.Value) -> AxisTuple | None:
        shape = self.shape_of(value)
        return None if shape is None else tuple(self.space.fresh(n, rigid=True) for n in shape)

    def enter(
        self, node: ir.Node, graph: ir.Graph, inputs: Sequence[AxisTuple]
    ) -> list[AxisTuple | None]:
        """Analyse a body of a node whose inputs have these axes; the axes of its outputs."""
        at = next((i for i, scope in enumerate(self.scopes) if scope is graph), None)
        if at is None:
            raise Frozen("names of its body are used elsewhere too")
        self.entered.add(at)
        self.inner.update(body_shapes(self, node, graph, inputs))
        for value, axes in zip(graph.inputs, inputs, strict=True):
            self.axes[value.name or ""] = axes
        for inner in graph:
            self._node(inner)
        return [self.axes_of(value) for value in graph.outputs]

    def _freeze_bodies(self, node: ir.Node) -> None:
        """Subgraphs that are not understood keep their axes, and so does what they read."""
        inside = list(within(node))
        for inner in inside:
            for value in (*inner.inputs, *inner.outputs):
                for axis in self.axes_of(value) or ():
                    self.space.freeze(axis)
        names = {value.name for inner in (node, *inside) for value in inner.outputs}
        for anchor, expr in self.anchors.items():
            if anchor[1] in names:
                self.space.freeze(expr)

    def _marks(self) -> tuple[int, ...]:
        return tuple(len(entries) for entries in self._pending())

    def _pending(self) -> tuple[list[Any], ...]:
        mends = (self.attribute_mends, self.literal_mends, self.index_mends)
        return (*mends, self.system.driven, self.system.checks)

    def _undo(self, marks: Iterable[int]) -> None:
        for entries, mark in zip(self._pending(), marks, strict=True):
            del entries[mark:]

    def _finish(self) -> None:
        self.system.same = self.space.constraints
        self.axes = {
            name: None if axes is None else tuple(map(settled, axes))
            for name, axes in self.axes.items()
        }
        weights: dict[Sym, int] = {}
        for name in self.roots:
            for axis in self.axes[name] or ():
                for leaf in leaves(axis):
                    weights[leaf] = weights.get(leaf, 0) + 1
        find_vanishing(self.system, self.axes.values())
        self.system.settle(weights)

    # --- using -------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> dict[Sym, AxisClass]:
        """The free symbols, the largest first."""
        return find_classes(self)

    @cached_property
    def products(self) -> list[tuple[AxisClass, ...]]:
        """Classes whose product a bug may count, the largest products first."""
        return find_products(self)

    def plan(self, asked: Mapping[Sym, int], wished: Mapping[Sym, int] | None = None) -> Plan:
        """Sizes for all symbols. `asked` is exact, `wished` gives way.

        Raises:
            Conflict: no consistent sizes were found.
        """
        return solve(self.system, asked, wished)

    def elements(self, plan: Plan) -> int:
        """Elements of all stored tensors under a plan."""
        count, before, _ = self._stored
        for name in self.touched(plan.changed()):
            axes = self.axes[name] or ()
            count += multiply([plan.size(axis) for axis in axes]) - before[name]
        return count

    def touched(self, symbols: Iterable[Sym]) -> set[str]:
        """The stored tensors whose axes are made of these."""
        _, _, having = self._stored
        return {name for symbol in symbols for name in having.get(symbol, ())}

    @cached_property
    def _stored(self) -> tuple[int, dict[str, int], dict[Sym, list[str]]]:
        """Elements of all stored tensors, of each, and which of them a symbol is part of."""
        counts: dict[str, int] = {}
        having: dict[Sym, list[str]] = {}
        for name in self.roots:
            axes = self.axes[name]
            if axes is not None:
                counts[name] = multiply([axis.size for axis in axes])
                for leaf in {leaf for axis in axes for leaf in leaves(axis)}:
                    having.setdefault(leaf, []).append(name)
        return sum(counts.values()), counts, having

    def find(self, anchor: Anchor) -> Sym:
        """The class that an anchor names.

        Raises:
            Conflict: there is none now, or it cannot change.
        """
        if anchor[0] == "axis":
            _, name, at, factor = anchor
            axes = self.axes.get(name) if name in self.roots else None
            symbols = [] if axes is None or at >= len(axes) else list(leaves(axes[at]))
        else:
            factor, expr = 0, self.anchors.get(anchor)
            symbols = [] if expr is None else list(leaves(expr))
        if factor >= len(symbols) or symbols[factor] not in self.classes:
            raise Conflict(f"no class of axes at {anchor}")
        return symbols[factor]


def planned(analysis: Analysis, plan: Plan) -> Expected:
    """The shapes, and the small integer vectors, that the case of a plan will have."""
    shapes = {
        name: tuple(map(plan.size, axes))
        for name, axes in analysis.axes.items()
        if axes is not None and name not in analysis.roots
    }
    return Expected(shapes, analysis.vectors, plan.size, analysis.made_up)


_analyses: weakref.WeakKeyDictionary[Case, dict[bool, Analysis]] = weakref.WeakKeyDictionary()


def analyse(case: Case, loose: bool = False) -> Analysis:
    """The axes of a case; made once for a case."""
    known = _analyses.setdefault(case, {})
    if loose not in known:
        known[loose] = Analysis(case, loose)
    return known[loose]
