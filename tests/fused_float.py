"""Fused and rearranged operators on floats: cases, and the shapes of inputs and
weights (scalars left out) at their least."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from single import f, number, single

from onnxreduce.case import Case

NCHWC = "com.microsoft.nchwc"

FLOAT: dict[str, tuple[Callable[[], Case], str]] = {
    "FusedConv": (
        lambda: single(
            "FusedConv",
            x=f(2, 6, 9, 9),
            w=f(8, 3, 3, 3),
            b=f(8),
            z=f(2, 8, 9, 9),
            activation="Relu",
            group=2,
            pads=[1, 1, 1, 1],
        ),
        "1x1x1x1 1x1x1x1 1 1x1x1x1",
    ),
    "FusedMatMul": (
        lambda: single("FusedMatMul", x=f(3, 5, 7), w=f(3, 4, 5), transA=1, transB=1, alpha=0.5),
        "1x1x1 1x1x1",
    ),
    "FusedMatMul batches": (
        lambda: single(
            "FusedMatMul", x=f(5, 3, 7), w=f(4, 3, 7), transBatchA=1, transBatchB=1, transB=1
        ),
        "1x1x1 1x1x1",
    ),
    "TransposeMatMul": (
        lambda: single(
            "TransposeMatMul", x=f(3, 5, 7), w=f(3, 4, 5), transA=1, transB=1, alpha=0.5
        ),
        "1x1x1 1x1x1",
    ),
    "FusedGemm": (
        lambda: single("FusedGemm", x=f(4, 6), w=f(5, 6), b=f(5), transB=1, activation="Relu"),
        "1x1 1x1 1",
    ),
    "Gelu": (lambda: single("Gelu", x=f(4, 6)), "1x1"),
    "BiasGelu": (lambda: single("BiasGelu", x=f(4, 6), b=f(6)), "1x1 1"),
    "FastGelu": (lambda: single("FastGelu", x=f(4, 6), b=f(6)), "1x1 1"),
    "QuickGelu": (lambda: single("QuickGelu", x=f(4, 6)), "1x1"),
    "ScaledSiLU": (lambda: single("ScaledSiLU", x=f(4, 6)), "1x1"),
    "GatedAdd": (lambda: single("GatedAdd", x=f(4, 6), x2=f(4, 6), g=f(4, 1)), "1x1 1x1 1x1"),
    "SkipLayerNormalization": (
        lambda: single(
            "SkipLayerNormalization", 4, x=f(2, 5, 8), x2=f(2, 5, 8), g=f(8), b=f(8), c=f(8)
        ),
        "1x1x1 1x1x1 1 1 1",
    ),
    "SkipLayerNormalization broadcast": (
        lambda: single("SkipLayerNormalization", x=f(2, 5, 8), x2=f(5, 8), g=f(8), b=f(8), c=f(8)),
        "1x1x1 1x1 1 1 1",
    ),
    "SkipSimplifiedLayerNormalization": (
        lambda: single("SkipSimplifiedLayerNormalization", x=f(2, 5, 8), x2=f(2, 5, 8), g=f(8)),
        "1x1x1 1x1x1 1",
    ),
    "SimplifiedLayerNormalization": (
        lambda: single("SimplifiedLayerNormalization", _domain="", x=f(2, 5, 8), g=f(8)),
        "1x1x1 1",
    ),
    "ConvTransposeWithDynamicPads": (
        lambda: single(
            "ConvTransposeWithDynamicPads",
            x=f(2, 4, 5, 5),
            w=f(4, 6, 3, 3),
            p=np.array([1, 1, 1, 1]),
            b=f(6),
            strides=[2, 2],
        ),
        "1x1x1x1 1x1x3x3 4 1",
    ),
    "MaxpoolWithMask": (
        lambda: single(
            "MaxpoolWithMask",
            x=f(2, 4, 6, 6),
            m=np.ones((2, 4, 6, 6), np.int32),
            kernel_shape=[2, 2],
            strides=[2, 2],
        ),
        "1x1x1x1 1x1x1x1",
    ),
    "CropAndResize": (
        lambda: single(
            "CropAndResize",
            x=f(3, 4, 8, 8),
            xr=np.array([[0, 0, 1, 1], [0, 0.2, 0.5, 1]], np.float32),
            b=np.array([2, 1], np.int32),
            c=np.array([4, 3], np.int32),
        ),
        "1x1x1x1 1x4 1 2",
    ),
    "Pad": (lambda: single("Pad", x=f(3, 4), p=np.array([1, 0, 0, 2]), v=f(1)[:1]), "1x1 4 1"),
    "Trilu": (lambda: single("Trilu", x=f(4, 5), k=np.array(1)), "1x1"),
    "ExpandDims": (lambda: single("ExpandDims", x=f(4, 5), k=np.array(1, np.int32)), "1x1"),
    "GatherND": (lambda: single("GatherND", x=f(4, 5), i=np.array([[1], [3]])), "1x1 1x1"),
    "GridSample": (
        lambda: single("GridSample", x=f(2, 3, 6, 6), g=np.clip(f(2, 4, 4, 2), -1, 1)),
        "1x1x1x1 1x1x1x2",
    ),
    "Range": (lambda: single("Range", s=number(0), l=number(7), d=number(1)), ""),
    "Inverse": (lambda: single("Inverse", x=f(3, 4, 4)), "1x1x1"),
    "CDist": (lambda: single("CDist", x=f(5, 3), w=f(4, 3)), "1x1 1x1"),
    "ReorderInput in blocks": (
        lambda: single("ReorderInput", _domain=NCHWC, x=f(2, 32, 5, 5)),
        "1x16x1x1",
    ),
    "ReorderOutput in blocks": (
        lambda: single("ReorderOutput", _domain=NCHWC, x=f(2, 32, 5, 5), channels=32),
        "1x16x1x1",
    ),
    "Conv in blocks": (
        lambda: single(
            "Conv",
            _domain=NCHWC,
            x=f(2, 32, 9, 9),
            w=f(48, 32, 3, 3),
            b=f(48),
            pads=[1, 1, 1, 1],
            strides=[2, 2],
        ),
        "1x16x1x1 16x16x1x1 16",
    ),
    "MaxPool in blocks": (
        lambda: single(
            "MaxPool", _domain=NCHWC, x=f(2, 32, 9, 9), kernel_shape=[3, 3], strides=[2, 2]
        ),
        "1x16x1x1",
    ),
    "AveragePool in blocks": (
        lambda: single(
            "AveragePool", _domain=NCHWC, x=f(2, 32, 9, 9), kernel_shape=[3, 3], strides=[2, 2]
        ),
        "1x16x1x1",
    ),
    "GlobalAveragePool in blocks": (
        lambda: single("GlobalAveragePool", _domain=NCHWC, x=f(2, 32, 9, 9)),
        "1x16x1x1",
    ),
    "GlobalMaxPool in blocks": (
        lambda: single("GlobalMaxPool", _domain=NCHWC, x=f(2, 32, 9, 9)),
        "1x16x1x1",
    ),
    "Upsample in blocks": (
        lambda: single(
            "Upsample", _domain=NCHWC, x=f(2, 32, 5, 5), scales=[1, 1, 2, 3], mode="nearest"
        ),
        "1x16x1x1",
    ),
    "CausalConvWithState": (
        lambda: single("CausalConvWithState", 2, x=f(2, 6, 9), w=f(6, 1, 4), b=f(6), xs=f(2, 6, 3)),
        "1x1x1 1x1x1 1x1x2 1",
    ),
}
