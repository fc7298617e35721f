"""Operators whose output sizes depend on values: what they read may shrink where what they give is
read by no node, or where the values that decide are stored."""

from __future__ import annotations

from itertools import groupby
from math import prod

import numpy as np

from onnxreduce.dims.expr import Expr, product, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site


@rule("NonZero")
def non_zero(n: Site) -> None:
    """Where everything is known to be non-zero the count is a size."""
    x = n.ax(0)
    source = n.node.inputs[0]
    producer = None if source is None else source.producer()
    value = n.val(0)
    filled = producer is not None and producer.op_type == "ConstantOfShape"
    if filled and value is not None and np.all(value):
        n.out((n.rigid(len(x)), product(x)))
    else:
        n.out_by_values()


@rule("Unique")
def unique(n: Site) -> None:
    for j in range(len(n.node.outputs)):
        if n.wants(j):
            n.out_by_values(j)


@rule("NonMaxSuppression")
def non_max_suppression(n: Site) -> None:
    boxes, scores = n.ax(0), n.ax(1)
    n.unify(boxes[0], scores[0])
    n.unify(boxes[1], scores[2])
    n.freeze(boxes[2])
    n.fix(2, 3, 4)
    n.out_by_values()


@rule("Compress")
def compress(n: Site) -> None:
    """Stored conditions cut the axis into runs that stay and runs that go."""
    x, (condition,) = n.ax(0), n.ax(1)
    at = n.axis() if n.given("axis") else 0
    stored = n.node.inputs[1]
    if not n.given("axis") and len(x) > 1:
        n.check(lambda size: size(condition) <= prod(map(size, x)), "a condition for each element")
        n.out_by_values()
        return
    if stored is None or stored.name not in n.analysis.roots:
        n.freeze(condition)
        n.freeze(x[at])
        n.out((*x[:at], n.rigid(n.shape_out()[at]), *x[at + 1 :]))
        return
    parts: list[Expr] = []
    kept: list[Expr] = []
    for stays, run in groupby(n.need(1).tolist()):
        part = n.slack(len(list(run)))
        parts.append(part)
        if stays:
            kept.append(part)
    n.unify(condition, total(parts))
    rest = x[at].size - condition.size
    n.unify(x[at], total((*parts, n.slack(rest)) if rest else parts))
    n.out((*x[:at], total(kept) if kept else n.rigid(0), *x[at + 1 :]))
