"""Control flow: what goes into a body and what comes out of it are the axes outside.

Bodies are analysed with the sizes of the first iteration. A value that is carried from one
iteration to the next must keep them, or the node keeps its axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxreduce.dims.expr import Axes, Expr
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Frozen, Site


@rule("If")
def if_(n: Site) -> None:
    """Either branch gives the outputs; an axis on which they differ keeps its size."""
    n.fix(0)
    branches = [n.body(name, ()) for name in ("then_branch", "else_branch")]
    for j, (left, right) in enumerate(zip(*branches, strict=True)):
        if n.wants(j):
            n.out(_either(n, j, left, right), j)


def _either(n: Site, j: int, left: Axes | None, right: Axes | None) -> Axes:
    sides = [side for side in (left, right) if side is not None]
    shape = n.shape_out(j)
    same = [side for side in sides if tuple(axis.size for axis in side) == shape]
    if not same:
        raise Frozen(f"neither branch is known to give output {j}")
    for side in sides:
        alike = len(side) == len(shape) and len(sides) == 2
        for at, axis in enumerate(side):
            if alike and axis.size == shape[at]:
                n.unify(axis, same[0][at])
            else:
                n.freeze(axis)
                if at < len(shape):
                    n.freeze(same[0][at])
    return same[0]


@rule("Loop")
def loop(n: Site) -> None:
    n.fix(0, 1)
    carried = [n.ax(i) for i in range(2, n.arity)]
    out = n.body("body", ((), (), *carried))
    _carry(n, carried, out[1:])
    for j in range(len(carried), len(out) - 1):
        if n.wants(j):
            n.out((_trips(n, j), *_known(out[j + 1])), j)


def _trips(n: Site, j: int) -> Expr:
    """How often the body ran: as often as is written, or as it happens to be."""
    ran = n.shape_out(j)[0]
    vector = n.prov(0) if n.has(0) else None
    if vector is None or vector.elements[0].value != ran:
        return n.rigid(ran)
    trips = n.fresh(ran, ("trips", 0))
    n.sized(trips, vector.elements[0])
    return trips


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
