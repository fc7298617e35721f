"""Turn a plan into a smaller case: slice what is stored, mend what names sizes.

Nothing downstream is touched: the axes of every computed value follow by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.dims.analysis import Analysis, IndexMend, planned
from onnxreduce.dims.bodies import scopes
from onnxreduce.dims.expected import expect
from onnxreduce.dims.expr import Expr, Sym
from onnxreduce.dims.keep import Indices, keep
from onnxreduce.dims.provenance import Edge
from onnxreduce.dims.roots import Root
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict, key, keyed
from onnxreduce.tensors import Array

Version = tuple[bytes, tuple[int, ...]]


def emit(analysis: Analysis, plan: Plan, chosen: Mapping[Sym, Indices] | None = None) -> Case:
    """The case at the sizes of a plan.

    Args:
        chosen: the indices to keep of a symbol; the first ones where it is not named.

    Raises:
        Conflict: two readers of one graph input need it to be different.
    """
    return _Emitter(analysis, plan, chosen or {}).run()


class _Emitter:
    def __init__(self, analysis: Analysis, plan: Plan, chosen: Mapping[Sym, Indices]) -> None:
        self.analysis = analysis
        self.plan = plan
        self.kept: dict[Sym, Indices] = {
            symbol: np.arange(size, dtype=np.int64) for symbol, size in plan.changed().items()
        }
        self.kept.update(chosen)
        self._maps: dict[Expr, Indices | None] = {}
        self.model = analysis.case.copy_model()
        self.inputs: dict[str, InputValue] = dict(analysis.case.inputs)
        self.scopes = scopes(self.model)
        self.nodes = {key(node): node for scope in self.scopes for node in keyed(scope)}
        self.values = {value.name: value for value in self.model.graph.inputs}
        for scope in self.scopes:
            self.values.update(scope.initializers)

    def run(self) -> Case:
        touched = self.analysis.touched(self.kept)
        contents = {
            name: self._sliced(root) if name in touched else None
            for name, root in self.analysis.roots.items()
        }
        self._mend_stored(contents)
        self._mend_attributes()
        self._declare()
        case = Case(self.model, self.inputs)
        expect(case, planned(self.analysis, self.plan))
        return case

    def _sliced(self, root: Root) -> Array | None:
        """The content at the new sizes; ``None`` where it stays as it is."""
        axes = self.analysis.axes[root.name]
        if axes is None:
            return None
        indices = [self._index_map(axis) for axis in axes]
        if all(index is None for index in indices) or root.array is None:
            return None
        array = root.array
        for at, index in enumerate(indices):
            if index is None:
                continue
            if index.size and index[-1] == index.size - 1:
                array = array[(slice(None),) * at + (slice(index.size),)]
            else:
                array = np.take(array, index, at)
        return np.array(array, order="C")

    def _mend_stored(self, contents: dict[str, Array | None]) -> None:
        literals: dict[str, dict[Edge, list[tuple[int, Any]]]] = {}
        for literal, function in self.analysis.literal_mends:
            new = function(self.plan.size)
            by_edge = literals.setdefault(literal.root, {})
            by_edge.setdefault(literal.edge, []).append((literal.index, new))
        indices: dict[str, dict[Edge, list[IndexMend]]] = {}
        for mend in self.analysis.index_mends:
            if self._index_map(mend.axis) is not None:
                indices.setdefault(mend.root, {}).setdefault(mend.edge, []).append(mend)
        for name, content in contents.items():
            root = self.analysis.roots[name]
            if name in literals or name in indices:
                base = root.array if content is None else content
                assert base is not None
                versions = self._versions(
                    base, literals.get(name, {}), indices.get(name, {}), content is None
                )
                content = self._share_out(root, base, versions, content, name in literals)
            if content is not None:
                self._store(root, content)

    def _versions(
        self,
        base: Array,
        literals: Mapping[Edge, Iterable[tuple[int, Any]]],
        indices: Mapping[Edge, Iterable[IndexMend]],
        whole: bool,
    ) -> dict[Edge, Array]:
        """What each reader with a need of its own must see."""
        versions: dict[Edge, Array] = {}
        for edge in [*literals, *(edge for edge in indices if edge not in literals)]:
            array = np.array(base, order="C")
            flat = array.reshape(-1)
            seen: dict[int, Any] = {}
            for at, new in literals.get(edge, ()):
                if not whole or seen.setdefault(at, new) != new:
                    raise Conflict("a literal is needed with two values at once")
                flat[at] = new
            for mend in indices.get(edge, ()):
                self._remap(flat, mend)
            versions[edge] = array
        return versions

    def _index_map(self, axis: Expr) -> Indices | None:
        """What is kept of an axis, ``None`` for all: worked out once an expression."""
        if axis not in self._maps:
            self._maps[axis] = keep(axis, self.kept)
        return self._maps[axis]

    def _remap(self, flat: Array, mend: IndexMend) -> None:
        """Kept indices follow; the others go to the next one that is kept."""
        axis, kept = mend.axis, self._index_map(mend.axis)
        assert kept is not None
        if mend.counts:
            flat[:] = np.minimum(flat, kept.size)
            return
        old = flat.astype(np.int64)
        negative = old < 0
        new = np.minimum(np.searchsorted(np.sort(kept), old % max(axis.size, 1)), kept.size - 1)
        if not np.all(np.diff(kept) > 0):
            new = np.minimum(old % max(axis.size, 1), kept.size - 1)
        flat[:] = np.where(negative, new - kept.size, new)

    def _share_out(
        self,
        root: Root,
        base: Array,
        versions: dict[Edge, Array],
        sliced: Array | None,
        literal: bool,
    ) -> Array | None:
        """Give every reader its version: in place when all agree, else private copies."""
        changed = {edge: v for edge, v in versions.items() if not _equal(v, base)}
        if not changed:
            return sliced
        uses = self._uses(root.name)
        first = next(iter(changed.values()))
        if all(_equal(versions.get(edge, base), first) for edge in uses):
            return first
        if root.kind == "input":
            if len({tuple(v.reshape(-1).tolist()) for v in changed.values()}) > 1 or literal:
                raise Conflict(f"the readers of input {root.name} need different values")
            return first  # indices: what else is computed from them is data
        for edge, array in changed.items():
            self._private(root, edge, array)
        return sliced

    def _uses(self, name: str) -> list[Edge]:
        value = self._value(name)
        edges: list[Edge] = []
        for node, i in value.uses():
            edges.append((key(node) if any(node.graph is s for s in self.scopes) else "", i))
        if value.is_graph_output():
            edges.append(("", -1))
        return edges

    def _value(self, name: str) -> ir.Value:
        known = self.values.get(name)
        return known if known is not None else self.nodes[name].outputs[0]

    def _private(self, root: Root, edge: Edge, array: Array) -> None:
        node = self.nodes[edge[0]]
        name = self._unused(f"{root.name}_{edge[1]}")
        tensor = ir.Tensor(array, dtype=self._dtype(root), name=name)
        if root.kind == "constant":
            made = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1)
            made.outputs[0].name = name
            assert isinstance(node.graph, ir.Graph)
            node.graph.insert_before(node, made)
            node.replace_input_with(edge[1], made.outputs[0])
            return
        value = ir.Value(
            name=name,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        self.values[name] = value
        node.replace_input_with(edge[1], value)

    def _unused(self, name: str) -> str:
        taken = {value.name for scope in self.scopes for value in _declared(scope)}
        taken.update(self.values)
        while name in taken:
            name += "_"
        return name

    def _dtype(self, root: Root) -> ir.DataType | None:
        return root.source.dtype if isinstance(root.source, ir.TensorProtocol) else None

    def _store(self, root: Root, array: Array) -> None:
        if root.kind == "input":
            self.inputs[root.name] = array
            value = self.values[root.name]
            if value.const_value is None:
                return
            array = array.astype(value.const_value.numpy().dtype, copy=False)
        if root.kind == "constant":
            self._store_constant(root, array)
            return
        value = self.values[root.name]
        value.const_value = tensor_like(array, value.const_value, root.name)
        if value.shape is not None and not value.is_graph_input():
            value.shape = ir.Shape(array.shape)

    def _store_constant(self, root: Root, array: Array) -> None:
        node = self.nodes[root.name]
        for name, attribute in list(node.attributes.items()):
            if not isinstance(attribute, ir.Attr):
                continue
            if name == "value":
                tensor = tensor_like(array, attribute.as_tensor(), attribute.as_tensor().name)
                node.attributes[name] = ir.AttrTensor(name, tensor)
            elif name in ("value_ints", "value_floats", "value_int", "value_float"):
                node.attributes[name] = ir.Attr(name, attribute.type, array.tolist())

    def _mend_attributes(self) -> None:
        for node_key, name, function in self.analysis.attribute_mends:
            node = self.nodes[node_key]
            old = node.attributes[name]
            new = function(self.plan.size)
            if isinstance(old, ir.Attr) and _plain(old.value) != _plain(new):
                node.attributes[name] = ir.Attr(name, old.type, new)

    def _declare(self) -> None:
        """Declared sizes follow; names of dims stay; wrong declarations stay wrong."""
        ports = {*self.model.graph.inputs, *self.model.graph.outputs}
        scopes = (self.scopes[at] for at in sorted(self.analysis.entered))
        for value in (value for scope in scopes for value in _declared(scope)):
            if value.shape is None or value.name is None:
                continue
            axes = self.analysis.axes.get(value.name)
            if axes is None or len(axes) != len(value.shape):
                if value not in ports:
                    value.shape = None
                elif axes is None and value.producer() is not None and self.plan.changed():
                    value.shape = ir.Shape([None] * len(value.shape))
                continue
            dims = [
                self.plan.size(axis) if isinstance(dim, int) and dim == axis.size else dim
                for dim, axis in zip(value.shape, axes, strict=True)
            ]
            if list(value.shape) != dims:
                value.shape = ir.Shape(dims)


def _declared(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from graph.inputs
    yield from graph.outputs
    for node in graph:
        yield from node.outputs


def tensor_like(array: Array, old: ir.TensorProtocol | None, name: str | None) -> ir.TensorProtocol:
    if array.dtype.kind in "OSU":
        raw = [s if isinstance(s, bytes) else str(s).encode() for s in array.reshape(-1).tolist()]
        return ir.StringTensor(raw, shape=ir.Shape(array.shape), name=name)
    return ir.Tensor(array, dtype=None if old is None else old.dtype, name=name)


def _equal(left: Array, right: Array) -> bool:
    return left.shape == right.shape and bool(np.array_equal(left, right))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value
