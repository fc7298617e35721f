"""Fusions that ONNX Runtime's optimiser makes of plain operators."""

from __future__ import annotations

from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.convolution import channels, spatial
from onnxreduce.dims.rules.elementwise import unary
from onnxreduce.dims.rules.matrix import gemm
from onnxreduce.dims.site import Site

MICROSOFT = "com.microsoft"

rule("Gelu", "QuickGelu", domain=MICROSOFT)(unary)
rule("FusedGemm", domain=MICROSOFT)(gemm)


@rule("FusedConv", domain=MICROSOFT)
def fused_conv(n: Site) -> None:
    x, w = n.ax(0), n.ax(1)
    out = (x[0], channels(n, x[1], w), *spatial(n, x[2:], w[2:]))
    if n.has(2):
        n.unify(n.ax(2)[0], w[0])
    if n.has(3):
        n.match(n.ax(3), out)
    n.out(out)


@rule("BiasGelu", "FastGelu", domain=MICROSOFT)
def bias_gelu(n: Site) -> None:
    x = n.ax(0)
    if n.has(1):
        n.unify(n.ax(1)[0], x[-1])
    n.out(x)
