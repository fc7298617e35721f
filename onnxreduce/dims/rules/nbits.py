"""Weights of a few bits, packed into bytes, with a scale for each block of them."""

from __future__ import annotations

from math import prod

from onnxreduce.dims.expr import Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import SizeFn

MICROSOFT = "com.microsoft"


@rule("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(n: Site) -> None:
    """A row of the weight is cut into blocks; the last may be partly used."""
    a, b = n.ax(0), n.ax(1)
    inner, columns = a[-1], b[0]
    bits, block = n.number("bits", 4), n.number("block_size")
    n.freeze(b[2])
    blocks = n.driven(b[1].size, lambda size: -(-size(inner) // block), "blocks")
    n.unify(b[1], blocks)
    _by_row(n, 2, columns, blocks.size, lambda size: size(blocks))
    if n.has(3):
        packed = n.need(3).dtype.kind in "iu"
        pack = 8 // bits if packed else 1
        _by_row(n, 3, columns, -(-blocks.size // pack), lambda size: -(-size(blocks) // pack))
    if n.has(4):
        raise Unruly("groups in another order")
    if n.has(5):
        n.unify(n.ax(5)[0], columns)
    n.attr("K", lambda size: size(inner))
    n.attr("N", lambda size: size(columns))
    n.out((*a[:-1], columns))


def _by_row(n: Site, i: int, columns: Expr, length: int, function: SizeFn) -> None:
    """Some numbers for each column of the result, in two axes or in one."""
    axes = n.ax(i)
    if prod(axis.size for axis in axes) != columns.size * length:
        raise Unruly("another packing")
    row = n.driven(length, function, "blocks")
    if len(axes) == 1:
        n.unify(axes[0], product((columns, row)))
    else:
        n.match(axes, (columns, row))


@rule("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(n: Site) -> None:
    """The whole weight in one run of blocks."""
    inner, block = n.ax(0)[-1], n.number("block_size")
    columns = n.fresh(n.number("N"), ("N", 0))
    for i, part in ((1, 2), (2, block)):
        (run,) = n.ax(i)
        made = n.driven(run.size, lambda size, part=part: -(-size(inner) * size(columns) // part))  # type: ignore[misc]
        n.unify(run, made)
    n.attr("K", lambda size: size(inner))
    n.attr("N", lambda size: size(columns))
    n.out((*n.ax(0)[:-1], columns))


@rule("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(n: Site) -> None:
    """Blocks along the last axis; rows are gathered."""
    data, indices, scales = n.ax(0), n.ax(1), n.ax(2)
    rank, block = len(data), n.number("block_size", 128)
    if n.number("gather_axis") % rank != 0 or n.number("quantize_axis", 1) % rank != rank - 1:
        raise Unruly("other axes")
    out = n.shape_out()
    blocks, wide = scales[-1], out[-1]
    pack = wide // data[-1].size
    if blocks.size * block != wide or block % pack:
        raise Unruly("a block that is partly used")
    n.unify(data[-1], product((blocks, n.rigid(block // pack))))
    n.match(scales[:-1], data[:-1])
    if n.has(3):
        zero = n.ax(3)
        n.match(zero[:-1], data[:-1])
        if zero[-1].size == blocks.size:
            n.unify(zero[-1], blocks)
        else:
            n.unify(
                zero[-1], n.driven(zero[-1].size, lambda size: -(-size(blocks) // pack), "packed")
            )
    n.clamp(1, data[0])
    n.out((*indices, *data[1:-1], product((blocks, n.rigid(block)))))


@rule("MoE", domain=MICROSOFT)
def mixture_of_experts(n: Site) -> None:
    x, router = n.ax(0), n.ax(1)
    experts, hidden = router[1], x[-1]
    n.unify(product(x[:-1]), router[0])
    first, second = n.ax(2), n.ax(4)
    inner = second[2]
    fused = first[1].size // inner.size
    n.match(second[:2], (experts, hidden))
    gated = product((inner, n.rigid(fused)))
    shapes = {
        2: (experts, gated, hidden),
        3: (experts, gated),
        5: (experts, hidden),
        6: (experts, inner, hidden),
        7: (experts, inner),
    }
    for i, axes in shapes.items():
        if n.has(i):
            n.match(n.ax(i), axes)
    chosen = n.number("k", 1)
    n.attr("k", lambda size: min(chosen, size(experts)))
    n.out(x)
