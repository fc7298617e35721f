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
def gemm(n: Site) -> None:
    a, b = n.ax(0), n.ax(1)
    m, inner = reversed(a) if n.number("transA") else a
    k, columns = reversed(b) if n.number("transB") else b
    n.unify(inner, k)
    out = (m, columns)
    if n.has(2):
        n.spread([out, n.ax(2)])
    n.out(out)
