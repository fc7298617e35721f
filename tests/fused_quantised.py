"""Fused operators on integers, or with packed weights: cases, and the shapes of inputs and weights
(scalars left out) at their least."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from single import S, Z, f, ids, s8, single, u8

from onnxreduce.case import Case

QUANTISED: dict[str, tuple[Callable[[], Case], str]] = {
    "MatMulNBits": (
        lambda: single(
            "MatMulNBits",
            x=f(3, 5, 64),
            w=u8(10, 2, 16),
            s=f(10, 2),
            z=u8(10, 1),
            g=None,
            b=f(10),
            K=64,
            N=10,
            bits=4,
            block_size=32,
        ),
        "1x1x1 1x1x16 1x1 1x1 1",
    ),
    "MatMulNBits flat": (
        lambda: single(
            "MatMulNBits",
            x=f(3, 5, 80),
            w=u8(10, 3, 16),
            s=f(30),
            z=u8(20),
            K=80,
            N=10,
            bits=4,
            block_size=32,
        ),
        "1x1x1 1x1x16 1 1",
    ),
    "MatMulNBits 8": (
        lambda: single(
            "MatMulNBits",
            x=f(3, 5, 64),
            w=u8(10, 4, 16),
            s=f(10, 4),
            z=u8(10, 4),
            K=64,
            N=10,
            bits=8,
            block_size=16,
        ),
        "1x1x1 1x1x16 1x1 1x1",
    ),
    "MatMulBnb4": (
        lambda: single(
            "MatMulBnb4",
            x=f(5, 64),
            w=u8(64 * 10 // 2),
            s=f(20),
            K=64,
            N=10,
            block_size=32,
            quant_type=1,
            transB=1,
        ),
        "1x1 1 1",
    ),
    "GatherBlockQuantized": (
        lambda: single(
            "GatherBlockQuantized",
            d=u8(20, 32),
            x=ids(20, 2, 3, dtype=np.int64),
            s=f(20, 4),
            z=u8(20, 2),
            bits=4,
            block_size=16,
            quantize_axis=1,
            gather_axis=0,
        ),
        "1x1 1x8 1x1 1x1",
    ),
    "MoE": (
        lambda: single(
            "MoE",
            x=f(2, 3, 8),
            x2=f(6, 4),
            w=f(4, 16, 8),
            b=f(4, 16),
            w2=f(4, 8, 16),
            b2=f(4, 8),
            k=2,
            activation_type="relu",
        ),
        "1x1x1 1x1 1x1x1 1x1 1x1x1 1x1",
    ),
    "QLinearAdd": (
        lambda: single("QLinearAdd", x=u8(3, 5), s=S, z=Z, w=u8(5), s2=S, z2=Z, s3=S, z3=Z),
        "1x1 1",
    ),
    "QLinearMul": (
        lambda: single("QLinearMul", x=u8(3, 5), s=S, z=Z, w=u8(5), s2=S, z2=Z, s3=S, z3=Z),
        "1x1 1",
    ),
    "QLinearWhere": (
        lambda: single(
            "QLinearWhere",
            c=np.ones((3, 1), bool),
            x=u8(3, 5),
            s=S,
            z=Z,
            w=u8(5),
            s2=S,
            z2=Z,
            s3=S,
            z3=Z,
        ),
        "1x1 1x1 1",
    ),
    "QLinearSigmoid": (lambda: single("QLinearSigmoid", x=u8(3, 5), s=S, z=Z, s3=S, z3=Z), "1x1"),
    "QLinearLeakyRelu": (
        lambda: single("QLinearLeakyRelu", x=u8(3, 5), s=S, z=Z, s3=S, z3=Z),
        "1x1",
    ),
    "QLinearSoftmax": (
        lambda: single("QLinearSoftmax", x=u8(3, 5), s=S, z=Z, s3=S, z3=Z, opset=17, axis=-1),
        "1x1",
    ),
    "QLinearConcat": (
        lambda: single(
            "QLinearConcat", s3=S, z3=Z, x=u8(2, 3, 4), s=S, z=Z, x2=u8(2, 5, 4), s2=S, z2=Z, axis=1
        ),
        "1x1x1 1x1x1",
    ),
    "QLinearGlobalAveragePool": (
        lambda: single("QLinearGlobalAveragePool", x=u8(2, 6, 5, 5), s=S, z=Z, s3=S, z3=Z),
        "1x1x1x1",
    ),
    "QLinearGlobalAveragePool channels last": (
        lambda: single(
            "QLinearGlobalAveragePool", x=u8(2, 5, 5, 6), s=S, z=Z, s3=S, z3=Z, channels_last=1
        ),
        "1x1x1x1",
    ),
    "QLinearAveragePool": (
        lambda: single(
            "QLinearAveragePool",
            x=u8(2, 6, 9, 9),
            s=S,
            z=Z,
            s3=S,
            z3=Z,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
        ),
        "1x1x1x1",
    ),
    "QLinearAveragePool channels last": (
        lambda: single(
            "QLinearAveragePool",
            x=u8(2, 9, 9, 6),
            s=S,
            z=Z,
            s3=S,
            z3=Z,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            channels_last=1,
        ),
        "1x1x1x1",
    ),
    "QLinearConv channels last": (
        lambda: single(
            "QLinearConv",
            x=u8(2, 9, 9, 6),
            s=S,
            z=Z,
            w=s8(8, 3, 3, 3),
            ws=np.abs(f(8)) + 1,
            wz=s8(8) * 0,
            s3=S,
            z3=Z,
            b=ids(9, 8),
            group=2,
            pads=[1, 1, 1, 1],
            strides=[2, 2],
            channels_last=1,
        ),
        "1x1x1x1 1x1x1x1 1 1 1",
    ),
    "QGemm": (
        lambda: single(
            "QGemm",
            x=u8(4, 6),
            s=S,
            z=Z,
            w=s8(6, 5),
            ws=f(5),
            wz=s8(5) * 0,
            b=ids(9, 5),
            s3=S,
            z3=Z,
        ),
        "1x1 1x1 1 1 1",
    ),
    "NhwcMaxPool": (
        lambda: single(
            "NhwcMaxPool", x=u8(2, 9, 9, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        "1x1x1x1",
    ),
    "DynamicQuantizeMatMul": (
        lambda: single(
            "DynamicQuantizeMatMul", x=f(3, 4, 6), w=s8(6, 5), s=f(5), z=s8(5) * 0, b=f(5)
        ),
        "1x1x1 1x1 1 1 1",
    ),
    "MatMulIntegerToFloat": (
        lambda: single(
            "MatMulIntegerToFloat", x=u8(4, 6), w=s8(6, 5), s=S, ws=f(5), z=Z, wz=s8(5) * 0, b=f(5)
        ),
        "1x1 1x1 1 1 1",
    ),
    "MatMulInteger16": (
        lambda: single("MatMulInteger16", x=s8(4, 6).astype(np.int16), w=s8(6, 5).astype(np.int16)),
        "1x1 1x1",
    ),
    "DynamicQuantizeLSTM": (
        lambda: single(
            "DynamicQuantizeLSTM",
            3,
            x=f(6, 2, 5),
            w=s8(1, 5, 28),
            r=s8(1, 7, 28),
            b=f(1, 56),
            l=None,
            h=f(1, 2, 7),
            c=f(1, 2, 7),
            p=None,
            ws=np.abs(f(1, 28)),
            wz=s8(1, 28) * 0,
            rs=np.abs(f(1, 28)),
            rz=s8(1, 28) * 0,
            hidden_size=7,
        ),
        "1x1x1 1x1x4 1x1x4 1x8 1x1x1 1x1x1 1x4 1x4 1x4 1x4",
    ),
}
