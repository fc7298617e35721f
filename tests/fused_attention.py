"""Attention and what stands around it, fused: cases, and the shapes of inputs and weights (scalars
left out) at their least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from single import S, Z, count, f, ids, number, s8, single, u8

from onnxreduce.case import Case


def gqa(**given: Any) -> Case:
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    lengths = np.array([4, 2], np.int32)
    base = {"xq": f(2, 5, 64), "xk": f(2, 5, 32), "xv": f(2, 5, 32), "xpk": None, "xpv": None}
    base |= {"xlen": lengths, "total": count(5)}
    return single("GroupQueryAttention", 3, **{**base, **attributes, **given})


ATTENTION: dict[str, tuple[Callable[[], Case], str]] = {
    "EmbedLayerNormalization": (
        lambda: single(
            "EmbedLayerNormalization",
            3,
            x=ids(50, 2, 6),
            x2=ids(2, 2, 6),
            w=f(50, 8),
            p=f(16, 8),
            s=f(2, 8),
            g=f(8),
            b=f(8),
            mask=ids(2, 2, 6),
        ),
        "1x1 1x1 1x1 1x1 1x1 1 1 1x1",
    ),
    "EmbedLayerNormalization positions": (
        lambda: single(
            "EmbedLayerNormalization",
            2,
            x=ids(50, 2, 6),
            x2=None,
            w=f(50, 8),
            p=f(16, 8),
            s=None,
            g=f(8),
            b=f(8),
            mask=None,
            xp=ids(16, 2, 6),
        ),
        "1x1 1x1 1x1 1x1 1 1",
    ),
    "QEmbedLayerNormalization": (
        lambda: single(
            "QEmbedLayerNormalization",
            2,
            x=ids(50, 2, 6),
            x2=ids(2, 2, 6),
            w=u8(50, 8),
            p=u8(16, 8),
            s=u8(2, 8),
            g=u8(8),
            b=u8(8),
            mask=ids(2, 2, 6),
            s1=S,
            s2=S,
            s3=S,
            s4=S,
            s5=S,
            z1=Z,
            z2=Z,
            z3=Z,
            z4=Z,
            z5=Z,
        ),
        "1x1 1x1 1x1 1x1 1x1 1 1 1x1",
    ),
    "Attention": (
        lambda: single(
            "Attention",
            2,
            x=f(2, 5, 12),
            w=f(12, 48),
            b=f(48),
            mask=np.ones((2, 5), np.int32),
            num_heads=4,
        ),
        "1x1x1 1x3 3 1x1",
    ),
    "Attention past": (
        lambda: single(
            "Attention",
            2,
            x=f(2, 5, 12),
            w=f(12, 48),
            b=f(48),
            mask=None,
            xp=f(2, 2, 4, 3, 4),
            num_heads=4,
            unidirectional=1,
        ),
        "1x1x1 2x1x1x1x1 1x3 3",
    ),
    "Attention widths": (
        lambda: single(
            "Attention",
            x=f(2, 5, 12),
            w=f(12, 16 + 16 + 8),
            b=f(40),
            mask=np.array([5, 3], np.int32),
            num_heads=4,
            qkv_hidden_sizes=[16, 16, 8],
        ),
        "1x1x1 1x3 3 1",
    ),
    "Attention mask3": (
        lambda: single(
            "Attention",
            x=f(2, 5, 12),
            w=f(12, 48),
            b=f(48),
            mask=np.ones((2, 5, 5), np.int32),
            num_heads=4,
        ),
        "1x1x1 1x3 3 1x1x1",
    ),
    "QAttention": (
        lambda: single(
            "QAttention",
            x=u8(2, 5, 12),
            w=s8(12, 48),
            b=f(48),
            s=S,
            ws=f(48),
            mask=np.array([5, 3], np.int32),
            z=Z,
            wz=s8(48) * 0,
            num_heads=4,
        ),
        "1x1x1 1x3 3 3 1 3",
    ),
    "QAttention past": (
        lambda: single(
            "QAttention",
            2,
            x=u8(2, 5, 12),
            w=s8(12, 48),
            b=f(48),
            s=S,
            ws=S,
            mask=None,
            z=Z,
            wz=number(0, np.int8),
            xp=f(2, 2, 4, 3, 4),
            num_heads=4,
        ),
        "1x1x1 2x1x1x1x1 1x3 3",
    ),
    "MultiHeadAttention": (
        lambda: single(
            "MultiHeadAttention",
            x=f(2, 5, 12),
            x2=f(2, 7, 12),
            x3=f(2, 7, 8),
            b=f(32),
            m=np.ones((2, 7), np.int32),
            ab=f(1, 4, 5, 7),
            num_heads=4,
        ),
        "1x1x1 1x1x1 1x1x1 3 1x1 1x1x1x1",
    ),
    "MultiHeadAttention past": (
        lambda: single(
            "MultiHeadAttention",
            3,
            x=f(2, 5, 12),
            x2=f(2, 5, 12),
            x3=f(2, 5, 12),
            b=None,
            m=None,
            ab=None,
            xp=f(2, 4, 3, 3),
            xq=f(2, 4, 3, 3),
            num_heads=4,
        ),
        "1x1x1 1x1x1 1x1x1 1x1x1x1 1x1x1x1",
    ),
    "MultiHeadAttention cross": (
        lambda: single(
            "MultiHeadAttention", x=f(2, 5, 32), x2=f(2, 4, 7, 8), x3=f(2, 4, 7, 8), num_heads=4
        ),
        "1x1x1 1x1x1x1 1x1x1x1",
    ),
    "MultiHeadAttention lengths": (
        lambda: single(
            "MultiHeadAttention",
            x=f(2, 5, 12),
            x2=f(2, 7, 12),
            x3=f(2, 7, 8),
            b=None,
            m=np.array([7, 3], np.int32),
            num_heads=4,
        ),
        "1x1x1 1x1x1 1x1x1 1",
    ),
    "DecoderMaskedMultiHeadAttention": (
        lambda: single(
            "DecoderMaskedMultiHeadAttention",
            3,
            x=f(2, 1, 12),
            x2=f(2, 1, 12),
            x3=f(2, 1, 12),
            m=None,
            ab=None,
            xp=f(2, 4, 9, 3),
            xq=f(2, 4, 9, 3),
            l=np.array([5], np.int32),
            past_present_share_buffer=1,
            num_heads=4,
        ),
        "1x1x1 1x1x1 1x1x1 1x1x1x1 1x1x1x1 1",
    ),
    "DecoderMaskedMultiHeadAttention cross": (
        lambda: single(
            "DecoderMaskedMultiHeadAttention",
            1,
            x=f(2, 1, 12),
            x2=f(2, 4, 6, 3),
            x3=f(2, 4, 6, 3),
            m=None,
            num_heads=4,
        ),
        "1x1x1 1x1x1x1 1x1x1x1",
    ),
    "GroupQueryAttention": (lambda: gqa(), "1x1x8 1x1x8 1x1x8 1"),
    "GroupQueryAttention packed": (lambda: gqa(xq=f(2, 5, 8 * 16), xk=None, xv=None), "1x1x24 1"),
    "GroupQueryAttention past": (
        lambda: gqa(
            xq=f(1, 5, 64),
            xk=f(1, 5, 32),
            xv=f(1, 5, 32),
            xpk=f(1, 2, 3, 16),
            xpv=f(1, 2, 3, 16),
            xlen=np.array([7], np.int32),
            total=count(8),
        ),
        "1x1x8 1x1x8 1x1x8 1x1x1x8 1x1x1x8 1",
    ),
    "GroupQueryAttention decode": (
        lambda: gqa(
            xq=f(2, 1, 64),
            xk=f(2, 1, 32),
            xv=f(2, 1, 32),
            xpk=f(2, 2, 3, 16),
            xpv=f(2, 2, 3, 16),
            xlen=np.array([3, 3], np.int32),
            total=count(4),
        ),
        "1x1x8 1x1x8 1x1x8 1x1x1x8 1x1x1x8 1",
    ),
    "GroupQueryAttention buffer": (
        lambda: gqa(
            xq=f(1, 5, 64),
            xk=f(1, 5, 32),
            xv=f(1, 5, 32),
            xpk=f(1, 2, 12, 16),
            xpv=f(1, 2, 12, 16),
            xlen=np.array([7], np.int32),
            total=count(8),
        ),
        "1x1x8 1x1x8 1x1x8 1x1x1x8 1x1x1x8 1",
    ),
    "GroupQueryAttention rotated pairs": (
        lambda: gqa(
            xpk=None,
            xpv=None,
            cos=f(20, 8),
            sin=f(20, 8),
            pos=None,
            do_rotary=1,
            rotary_interleaved=1,
        ),
        "1x1x16 1x1x16 1x1x16 1 1x8 1x8",
    ),
    "GroupQueryAttention bias": (
        lambda: gqa(cos=None, sin=None, pos=None, ab=f(2, 1, 5, 5), sink=f(4)),
        "1x1x8 1x1x8 1x1x8 1 1x1x1x1 1",
    ),
    "GroupQueryAttention rotary": (
        lambda: gqa(xpk=None, xpv=None, cos=f(20, 8), sin=f(20, 8), do_rotary=1),
        "1x1x16 1x1x16 1x1x16 1 1x8 1x8",
    ),
    "RotaryEmbedding": (
        lambda: single(
            "RotaryEmbedding",
            x=f(2, 5, 32),
            pos=ids(20, 2, 5, dtype=np.int64),
            cos=f(20, 4),
            sin=f(20, 4),
        ),
        "1x1x2 1x1 1x1 1x1",
    ),
    "RotaryEmbedding 4d": (
        lambda: single(
            "RotaryEmbedding",
            x=f(2, 4, 5, 8),
            pos=np.array([3]),
            cos=f(20, 4),
            sin=f(20, 4),
            interleaved=1,
        ),
        "1x1x1x2 1 1x1 1x1",
    ),
    "RotaryEmbedding part": (
        lambda: single(
            "RotaryEmbedding",
            x=f(2, 5, 32),
            pos=ids(20, 2, 5, dtype=np.int64),
            cos=f(20, 2),
            sin=f(20, 2),
            num_heads=4,
            rotary_embedding_dim=4,
        ),
        "1x1x2 1x1 1x1 1x1",
    ),
    "LinearAttention": (
        lambda: single(
            "LinearAttention",
            2,
            x=f(2, 5, 32),
            x2=f(2, 5, 16),
            x3=f(2, 5, 12),
            xs=f(2, 2, 8, 6),
            d=f(2, 5, 2),
            b=f(2, 5, 2),
            q_num_heads=4,
            kv_num_heads=2,
            update_rule="gated_delta",
        ),
        "1x1x1 1x1x1 1x1x1 1x1x1x1 1x1x1 1x1x1",
    ),
}
