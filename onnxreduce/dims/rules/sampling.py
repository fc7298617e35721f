"""Sampling images at computed places."""

from __future__ import annotations

from onnxreduce.dims.expr import product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.convolution import channels, spatial
from onnxreduce.dims.site import Site


@rule("GridSample")
@rule("GridSample", domain="com.microsoft")
def grid_sample(n: Site) -> None:
    x, grid = n.ax(0), n.ax(1)
    n.unify(x[0], grid[0])
    n.freeze(grid[-1])  # it counts the spatial axes
    n.out((x[0], x[1], *grid[1:-1]))


@rule("RoiAlign")
def roi_align(n: Site) -> None:
    x, rois = n.ax(0), n.ax(1)
    n.unify(n.ax(2)[0], rois[0])
    n.clamp(2, x[0])
    n.freeze(rois[1])
    rows, columns = (
        n.fresh(n.shape_out()[at], (name, 0))
        for at, name in ((2, "output_height"), (3, "output_width"))
    )
    n.attr("output_height", lambda size: size(rows))
    n.attr("output_width", lambda size: size(columns))
    n.out((rois[0], x[1], rows, columns))


@rule("CropAndResize", domain="com.microsoft")
def crop_and_resize(n: Site) -> None:
    x, rois = n.ax(0), n.ax(1)
    n.unify(n.ax(2)[0], rois[0])
    n.clamp(2, x[0])
    n.freeze(rois[1])
    vector = n.prov(3)
    n.fix(3)
    sizes = [n.fresh(size, ("crop_size", at)) for at, size in enumerate(n.shape_out()[2:])]
    for at, axis in enumerate(sizes):
        if vector is None:
            n.freeze(axis)
        else:
            n.sized(axis, vector.elements[at])
    n.out((rois[0], x[1], *sizes))


@rule("MaxRoiPool")
def max_roi_pool(n: Site) -> None:
    x, rois = n.ax(0), n.ax(1)
    n.freeze(x[0])  # the first number of a region says which image
    n.freeze(rois[1])
    pooled = [n.fresh(size, ("pooled_shape", i)) for i, size in enumerate(n.shape_out()[2:])]
    n.attr("pooled_shape", lambda size: [size(axis) for axis in pooled])
    n.out((rois[0], x[1], *pooled))


@rule("DeformConv")
def deform_conv(n: Site) -> None:
    x, w, offset = n.ax(0), n.ax(1), n.ax(2)
    places = spatial(n, x[2:], w[2:])
    groups = n.fresh(n.number("offset_group", 1))
    n.attr("offset_group", lambda size: size(groups))
    n.unify(x[1], product((groups, n.fresh(x[1].size // groups.size))))
    moves = product((groups, *w[2:], n.rigid(len(w) - 2)))
    n.match(offset, (x[0], moves, *places))
    if n.has(3):
        n.unify(n.ax(3)[0], w[0])
    if n.has(4):
        n.match(n.ax(4), (x[0], product((groups, *w[2:])), *places))
    n.out((x[0], channels(n, x[1], w), *places))
