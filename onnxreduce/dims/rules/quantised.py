"""Quantisation and integer arithmetic: scales and zero points for a tensor, an axis or a block."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.convolution import channels, spatial
from onnxreduce.dims.rules.layout import joined
from onnxreduce.dims.rules.matrix import matmul_axes
from onnxreduce.dims.site import Site, Unruly


@rule("QuantizeLinear", "DequantizeLinear")
@rule("QuantizeLinear", "DequantizeLinear", domain="com.microsoft")
def linear(n: Site) -> None:
    x = n.ax(0)
    for i in (1, 2):
        if n.has(i):
            _parameter(n, i, x)
    n.out(x)


def _parameter(n: Site, i: int, x: tuple[Expr, ...]) -> None:
    parameter, block = n.ax(i), n.number("block_size")
    at = n.axis("axis", 1, len(x)) if x else 0
    if block:
        for axis, (mine, theirs) in enumerate(zip(parameter, x, strict=True)):
            if axis != at:
                n.unify(mine, theirs)
            elif theirs.size == block * mine.size:
                n.unify(theirs, product((mine, n.rigid(block))))
            else:
                n.freeze(theirs)
                n.freeze(mine)
    else:
        per_axis(n, i, x[at] if at < len(x) else None)


def per_axis(n: Site, i: int, axis: Expr | None) -> None:
    """A scale or zero point: a scalar, or one for each place along an axis."""
    if not n.has(i):
        return
    parameter = n.ax(i)
    if all(part.size == 1 for part in parameter):
        return
    if len(parameter) != 1 or axis is None:
        raise Unruly("scales along several axes")
    n.unify(parameter[0], axis)


@rule("DynamicQuantizeLinear")
def dynamic_quantize(n: Site) -> None:
    n.out(n.ax(0))
    n.out((), 1)
    n.out((), 2)


@rule("MatMulInteger")
def matmul_integer(n: Site) -> None:
    a, b = n.ax(0), n.ax(1)
    n.out(matmul_axes(n, a, b))
    per_axis(n, 2, a[-2] if len(a) > 1 else None)
    per_axis(n, 3, b[-1] if len(b) > 1 else None)


@rule("QLinearMatMul")
def qlinear_matmul(n: Site) -> None:
    a, b = n.ax(0), n.ax(3)
    out = matmul_axes(n, a, b)
    for i in (1, 2):
        per_axis(n, i, a[-2] if len(a) > 1 else None)
    for i in (4, 5):
        per_axis(n, i, b[-1] if len(b) > 1 else None)
    for i in (6, 7):
        per_axis(n, i, out[-2] if len(out) > 1 else None)
    n.out(out)


@rule("QLinearConv")
@rule("QLinearConv", domain="com.microsoft")
def qlinear_conv(n: Site) -> None:
    x, w = n.ax(0), n.ax(3)
    if n.number("channels_last"):
        n.out((x[0], *spatial(n, x[1:-1], w[2:], last=True), channels(n, x[-1], w)))
    else:
        n.out((x[0], channels(n, x[1], w), *spatial(n, x[2:], w[2:])))
    for i in (4, 5):
        per_axis(n, i, w[0])
    if n.has(8):
        n.unify(n.ax(8)[0], w[0])


@rule("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_binary(n: Site) -> None:
    n.out(n.broadcast((0, 3)))


@rule("QLinearWhere", domain="com.microsoft")
def qlinear_where(n: Site) -> None:
    n.out(n.broadcast((0, 1, 4)))


@rule("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain="com.microsoft")
def qlinear_unary(n: Site) -> None:
    n.out(n.ax(0))


@rule("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(n: Site) -> None:
    b = n.ax(1)
    n.out(matmul_axes(n, n.ax(0), b))
    for i in (2, 3, 4):
        per_axis(n, i, b[-1])


@rule("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(n: Site) -> None:
    a, b = n.ax(0), n.ax(1)
    n.out(matmul_axes(n, a, b))
    for i, axis in ((2, a[-2]), (3, b[-1]), (4, a[-2]), (5, b[-1]), (6, b[-1])):
        per_axis(n, i, axis)


@rule("QLinearConcat", domain="com.microsoft")
def qlinear_concat(n: Site) -> None:
    n.out(joined(n, [n.ax(i) for i in range(2, n.arity, 3)]))


@rule("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_pool(n: Site) -> None:
    x = n.ax(0)
    if n.number("channels_last"):
        n.out((x[0], *(UNIT for _ in x[2:]), x[-1]))
    else:
        n.out((x[0], x[1], *(UNIT for _ in x[2:])))


@rule("QGemm", domain="com.microsoft")
def qgemm(n: Site) -> None:
    a, b = n.ax(0), n.ax(3)
    m, inner = reversed(a) if n.number("transA") else a
    k, columns = reversed(b) if n.number("transB") else b
    n.unify(inner, k)
    for i in (4, 5):
        per_axis(n, i, columns)
    if n.has(6):
        n.spread([(m, columns), n.ax(6)])
    n.out((m, columns))
