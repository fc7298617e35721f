"""Reductions over axes."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site


@rule(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
def reduce(n: Site) -> None:
    axes = n.numbers("axes") if n.given("axes") else None
    if n.has(1):
        axes = n.need(1).reshape(-1).tolist()
        n.fix(1)
    if not axes and n.number("noop_with_empty_axes"):
        n.out(n.ax(0))
        return
    _drop(n, axes if axes else range(n.rank(0)))


@rule("ArgMax", "ArgMin")
def arg(n: Site) -> None:
    _drop(n, [n.number("axis", 0)])


def _drop(n: Site, axes: range | list[int]) -> None:
    x = n.ax(0)
    gone = {axis % len(x) for axis in axes} if x else set()
    if n.number("keepdims", 1):
        n.out(UNIT if at in gone else axis for at, axis in enumerate(x))
    else:
        n.out(axis for at, axis in enumerate(x) if at not in gone)


@rule("Det")
def det(n: Site) -> None:
    x = n.ax(0)
    n.unify(x[-1], x[-2])
    n.out(x[:-2])
