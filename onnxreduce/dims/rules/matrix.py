"""Matrix products."""

from __future__ import annotations

from onnxreduce.dims.expr import Axes, Expr
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site


def matmul_axes(n: Site, a: Axes, b: Axes) -> Axes:
    """numpy.matmul: batch axes broadcast, the inner axes are one."""
    n.unify(a[-1], b[-2] if len(b) > 1 else b[-1])
    tail: list[Expr] = []
    if len(a) > 1:
        tail.append(a[-2])
    if len(b) > 1:
        tail.append(b[-1])
    return (*n.spread([a[:-2], b[:-2]]), *tail)


@rule("MatMul")
def matmul(n: Site) -> None:
    n.out(matmul_axes(n, n.ax(0), n.ax(1)))


@rule("Gemm")
@rule("FusedGemm", domain="com.microsoft")
def gemm(n: Site) -> None:
    a, b = n.ax(0), n.ax(1)
    m, inner = reversed(a) if n.number("transA") else a
    k, columns = reversed(b) if n.number("transB") else b
    n.unify(inner, k)
    out = (m, columns)
    if n.has(2):
        n.spread([out, n.ax(2)])
    n.out(out)


@rule("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(n: Site) -> None:
    n.out(matmul_axes(n, _turned(n, 0, "A"), _turned(n, 1, "B")))


def _turned(n: Site, i: int, which: str) -> Axes:
    """The axes of a matrix after the transpositions that an attribute asks for."""
    axes = n.ax(i)
    if n.number(f"transBatch{which}"):
        axes = (*axes[1:-1], axes[0], axes[-1])
    if n.number(f"trans{which}") and len(axes) > 1:
        axes = (*axes[:-2], axes[-1], axes[-2])
    return axes


@rule("MatMulInteger16", domain="com.microsoft")
def matmul_integer16(n: Site) -> None:
    n.out(matmul_axes(n, n.ax(0), n.ax(1)))


@rule("CDist", domain="com.microsoft")
def pairwise_distance(n: Site) -> None:
    a, b = n.ax(0), n.ax(1)
    n.unify(a[1], b[1])
    n.out((a[0], b[0]))


@rule("Inverse", domain="com.microsoft")
def inverse(n: Site) -> None:
    x = n.ax(0)
    n.unify(x[-1], x[-2])
    n.out(x)
