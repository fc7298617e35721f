"""Fusions that ONNX Runtime's optimiser makes of plain operators."""

from __future__ import annotations

from onnxreduce.dims.expr import Axes, Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.attention import covered
from onnxreduce.dims.rules.convolution import channels, spatial
from onnxreduce.dims.rules.pooling import global_pool, pool
from onnxreduce.dims.site import Site, Unruly

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"

BLOCK = 16
"""Channels in a block of ``com.microsoft.nchwc``: 8 or 16, by the processor."""


def _convolved(n: Site, channel: Expr, out: Axes) -> None:
    """A bias for each channel, and what is added to the result, are optional."""
    if n.has(2):
        n.unify(n.ax(2)[0], channel)
    if n.has(3):
        n.match(n.ax(3), out)
    n.out(out)


@rule("FusedConv", domain=MICROSOFT)
def fused_conv(n: Site) -> None:
    x, w = n.ax(0), n.ax(1)
    out = (x[0], channels(n, x[1], w), *spatial(n, x[2:], w[2:]))
    _convolved(n, w[0], out)


@rule("BiasGelu", "FastGelu", domain=MICROSOFT)
def bias_gelu(n: Site) -> None:
    x = n.ax(0)
    if n.has(1):
        n.unify(n.ax(1)[0], x[-1])
    n.out(x)


@rule("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(n: Site) -> None:
    """Tables of words, positions and segments; a row of the positions for each step."""
    words = n.ax(0)
    hidden = n.ax(2)[1]
    for ids, table in ((0, 2), (1, 4)):
        if n.has(ids):
            n.match(n.ax(ids), words)
            n.unify(n.ax(table)[1], hidden)
            n.clamp(ids, n.ax(table)[0])
    rows, width = n.ax(3)
    for axis in (width, n.ax(5)[0], n.ax(6)[0]):
        n.unify(axis, hidden)
    if n.has(7):
        n.match(n.ax(7), words)
    if n.op_type == "EmbedLayerNormalization" and n.has(8):
        n.spread([words, n.ax(8)])
        n.clamp(8, rows)
    else:
        covered(n, rows, words[1])
    n.out((*words, hidden))
    n.out((words[0],), 1)
    n.out((*words, hidden), 2)


# --- channels in blocks, as the vector units of a processor like them ----------------------------


def _blocks(n: Site, axis: Expr) -> None:
    """Channels go block by block."""
    if axis.size % BLOCK:
        n.freeze(axis)
    else:
        n.unify(axis, product((n.fresh(axis.size // BLOCK), n.rigid(BLOCK))))


@rule("ReorderInput", domain=NCHWC)
def reorder_input(n: Site) -> None:
    x = n.ax(0)
    if n.number("channels_last"):
        x = (x[0], x[-1], *x[1:-1])
    _blocks(n, x[1])
    size = n.shape_out()[1]
    n.out((x[0], x[1] if x[1].size == size else n.rigid(size), *x[2:]))


@rule("ReorderOutput", domain=NCHWC)
def reorder_output(n: Site) -> None:
    x = n.ax(0)
    _blocks(n, x[1])
    left = x[1]
    if n.number("channels") != x[1].size:
        n.freeze(x[1])
        left = n.rigid(n.number("channels"))
    n.attr("channels", lambda size: size(left))
    n.out((x[0], *x[2:], left) if n.number("channels_last") else (x[0], left, *x[2:]))


@rule("Conv", domain=NCHWC)
def blocked_conv(n: Site) -> None:
    """The weight's input channels come in blocks too, unless there are few."""
    x, w = n.ax(0), n.ax(1)
    if n.number("group", 1) == 1:
        _blocks(n, w[1])
        n.unify(x[1], w[1])
    else:
        for axis in (x[1], w[0], w[1]):
            n.freeze(axis)
    _blocks(n, w[0])
    out = (x[0], w[0], *spatial(n, x[2:], w[2:]))
    _convolved(n, w[0], out)


@rule("MaxPool", "AveragePool", domain=NCHWC)
def blocked_pool(n: Site) -> None:
    _blocks(n, n.ax(0)[1])
    pool(n)


@rule("GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)
def blocked_global_pool(n: Site) -> None:
    _blocks(n, n.ax(0)[1])
    global_pool(n)


@rule("Upsample", domain=NCHWC)
def blocked_upsample(n: Site) -> None:
    x, scales = n.ax(0), n.numbers("scales")
    if scales[:2] != [1, 1]:
        raise Unruly("channels are repeated")
    _blocks(n, x[1])
    tail = (product((axis, n.rigid(s))) for axis, s in zip(x[2:], scales[2:], strict=True))
    n.out((*x[:2], *tail))
