"""Control flow: what goes into a body and what comes out of it are the axes outside.

Bodies are analysed with the sizes of the first iteration. A value that is carried from one
iteration to the next must keep them, or the node keeps its axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxreduce.dims.expr import Axes, Expr
from onnxreduce.dims.provenance import Calc, Element, Vector
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Frozen, Site

ALWAYS = Calc(lambda: True, (), True)
"""The condition of a loop that has none."""


@rule("If")
def if_(n: Site) -> None:
    """Either branch gives the outputs, unless a condition on sizes says which one."""
    n.fix(0)
    names = ("then_branch", "else_branch")
    branches = [n.body(name, ()) for name in names]
    condition = n.prov(0)
    taken = None if condition is None else int(not condition.elements[0].value)
    for j, (left, right) in enumerate(zip(*branches, strict=True)):
        if n.wants(j):
            n.out(_either(n, j, left, right, taken), j)
            if taken is not None:
                n.tell(_vector(n, n.graph(names[taken]).outputs[j]), j)


def _vector(n: Site, value: ir.Value) -> Vector | None:
    """What a branch gives, where it is short and made of sizes: then the branch stays taken."""
    vector = n.analysis.vectors.get(value.name or "")
    if vector is not None:
        _stays(n)
    return vector


def _either(n: Site, j: int, left: Axes | None, right: Axes | None, taken: int | None) -> Axes:
    if left is not None and right is not None and _sizes(left) == _sizes(right):
        n.match(left, right)
        return left
    chosen = None if taken is None else (left, right)[taken]
    if chosen is None:
        raise Frozen(f"which shape output {j} has depends on values")
    _stays(n)
    return chosen


def _sizes(axes: Axes) -> tuple[int, ...]:
    return tuple(axis.size for axis in axes)


def _stays(n: Site) -> None:
    """The branch that is taken gives a shape of its own: the other one must not be taken."""
    vector = n.prov(0)
    if vector is None:
        raise Frozen("which of two shapes it gives depends on values")
    _holds(n, vector.elements[0])


def _holds(n: Site, condition: Element) -> None:
    now = bool(condition.value)
    n.check(lambda size: bool(condition.at(size)) == now, "the condition")


@rule("Loop")
def loop(n: Site) -> None:
    graph = n.graph("body")
    carried = [n.ax(i) for i in range(2, n.arity)]
    stacked = range(len(carried), len(n.node.outputs))
    turns = _turns(n)
    number, condition = (value.name or "" for value in graph.inputs[:2])
    if turns is not None:
        n.analysis.turns[number] = turns
    _tell(n, condition)
    out = n.body("body", ((), (), *carried))
    n.fix(0, 1)
    _carry(n, carried, out[1:])
    if not _goes_on(n, graph.outputs[0]):
        if turns is not None:
            n.freeze(turns)
        if any(n.wants(j) for j in stacked):
            raise Frozen("how many turns it takes depends on values")
    for j in stacked:
        if n.wants(j):
            length = n.rigid(n.shape_out(j)[0]) if turns is None else turns
            n.out((length, *_known(out[j + 1])), j)


def _turns(n: Site) -> Expr | None:
    """How often the body runs unless its condition ends that; ``None`` where it is not written."""
    vector = n.prov(0) if n.has(0) else None
    if vector is None:
        return None
    element = vector.elements[0]
    if int(element.value) < 1:
        return n.rigid(0)
    turns = n.fresh(int(element.value), ("trips", 0))
    n.sized(turns, element)
    return turns


def _tell(n: Site, condition: str) -> None:
    """What the condition is in the first turn, where it is not computed from data."""
    vector = n.prov(1) if n.has(1) else Vector((ALWAYS,), 0, np.dtype(np.bool_))
    if vector is not None and vector.elements[0].value:
        n.analysis.vectors[condition] = vector


def _goes_on(n: Site, condition: ir.Value) -> bool:
    """Whether each turn says that there is another one, given that it is one."""
    name = condition.name or ""
    root = n.analysis.roots.get(name)
    if root is not None and root.array is not None:
        return bool(root.array.item())
    vector = n.analysis.vectors.get(name)
    if vector is None or not vector.elements[0].value:
        return False
    _holds(n, vector.elements[0])
    return True


@rule("Scan")
def scan(n: Site) -> None:
    if n.opset < 9:
        raise Frozen("before opset 9 it scans batches")
    scanned = n.number("num_scan_inputs")
    states = n.arity - scanned
    carried = [n.ax(i) for i in range(states)]
    along = n.numbers("scan_input_axes", [0] * scanned)
    slices: list[Axes] = []
    steps: Expr | None = None
    for i, axis in enumerate(along):
        axes = list(n.ax(states + i))
        step = axes.pop(axis % len(axes))
        if steps is None:
            steps = step
        n.unify(steps, step)
        slices.append(tuple(axes))
    if steps is None:
        raise Frozen("nothing is scanned")
    for i, value in enumerate(n.graph("body").inputs[states:], states):
        n.analysis.trail.operands[value.name or ""] = (n.node, i)
    out = n.body("body", (*carried, *slices))
    _carry(n, carried, out)
    stacked = n.numbers("scan_output_axes", [0] * (len(out) - states))
    for j, axis in enumerate(stacked, states):
        if n.wants(j):
            axes = list(_known(out[j]))
            axes.insert(axis % (len(axes) + 1), steps)
            n.out(axes, j)


def _carry(n: Site, carried: Sequence[Axes], out: Sequence[Axes | None]) -> None:
    for j, axes in enumerate(carried):
        n.match(axes, _known(out[j]))
        n.out(axes, j)


def _known(axes: Axes | None) -> Axes:
    if axes is None:
        raise Frozen("the body gives a value of unknown shape")
    return axes
