"""Normalisation layers."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly


@rule("BatchNormalization")
def batch_normalization(n: Site) -> None:
    if n.number("spatial", 1) == 0:
        raise Unruly("statistics for each position")
    x = n.ax(0)
    channels = x[1] if len(x) > 1 else n.rigid(1)
    for i in range(1, 5):
        n.unify(n.ax(i)[0], channels)
    n.out(x)
    for j in range(1, len(n.node.outputs)):
        n.out((channels,), j)


@rule("InstanceNormalization")
def instance_normalization(n: Site) -> None:
    x = n.ax(0)
    n.unify(n.ax(1)[0], x[1])
    n.unify(n.ax(2)[0], x[1])
    n.out(x)


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def layer_normalization(n: Site) -> None:
    x = n.ax(0)
    at = n.axis("axis", -1)
    for i in (1, 2):
        if n.has(i):
            n.spread([x, n.ax(i)])
    n.out(x)
    statistics = (*x[:at], *(UNIT for _ in x[at:]))
    n.out(statistics, 1)
    n.out(statistics, 2)


@rule("GroupNormalization")
def group_normalization(n: Site) -> None:
    x = n.ax(0)
    groups = n.fresh(n.number("num_groups"))
    n.unify(x[1], product((groups, n.fresh(x[1].size // groups.size))))
    parameter = groups if n.opset < 21 else x[1]
    n.unify(n.ax(1)[0], parameter)
    n.unify(n.ax(2)[0], parameter)
    n.attr("num_groups", lambda size: size(groups))
    n.out(x)


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(n: Site) -> None:
    x = n.ax(0)
    out = n.spread([x, n.ax(1)])
    for i in range(2, n.arity):
        if n.has(i):
            n.unify(n.ax(i)[0], x[-1])
    n.out(out)
    for j in (1, 2):
        n.out((*x[:-1], UNIT), j)
    n.out(out, 3)
