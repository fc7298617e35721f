"""Normalisation layers."""

from __future__ import annotations

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
