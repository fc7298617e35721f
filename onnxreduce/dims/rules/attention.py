"""Attention: heads are a factor of the hidden axis."""

from __future__ import annotations

from onnxreduce.dims.expr import Axes, Expr, product, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.matrix import matmul_axes
from onnxreduce.dims.site import Site, Unruly


@rule("Attention")
def attention(n: Site) -> None:
    """Query, key and value of three axes (heads folded into the last) or four."""
    flat = n.rank(0) == 3
    q = _heads(n, 0, "q_num_heads")
    k, v = _heads(n, 1, "kv_num_heads"), _heads(n, 2, "kv_num_heads")
    batch, heads, queries, width = q
    n.unify(batch, k[0])
    n.match(k[:3], v[:3])
    n.unify(width, k[3])
    if heads.size == k[1].size:
        n.unify(heads, k[1])
    else:
        n.unify(heads, product((k[1], n.fresh(heads.size // k[1].size))))
    keys = k[2]
    if n.has(4):
        past = n.ax(4)
        n.match(past, (batch, k[1], past[2], width))
        n.match(n.ax(5), (batch, k[1], past[2], v[3]))
        keys = total((past[2], keys))
    if n.has(3):
        n.spread([(batch, heads, queries, keys), n.ax(3)])
    if n.has(6):
        n.unify(n.ax(6)[0], batch)
        n.clamp(6, keys, counts=True)
    n.out((batch, queries, product((heads, v[3]))) if flat else (batch, heads, queries, v[3]))
    n.out((batch, k[1], keys, width), 1)
    n.out((batch, k[1], keys, v[3]), 2)
    n.out((batch, heads, queries, keys), 3)


def _heads(n: Site, i: int, attribute: str) -> Axes:
    axes = n.ax(i)
    if len(axes) == 4:
        return axes
    count = n.number(attribute)
    heads, width = n.fresh(count), n.fresh(axes[2].size // count)
    n.unify(axes[2], product((heads, width)))
    n.attr(attribute, lambda size: size(heads))
    return (axes[0], heads, axes[1], width)


@rule("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(n: Site) -> None:
    if any(n.has(i) for i in range(3, n.arity)) or any(n.rank(i) != 3 for i in range(3)):
        raise Unruly("packed, masked or cached")
    count = n.number("num_heads")
    heads = n.fresh(count)
    q, k, v = n.ax(0), n.ax(1), n.ax(2)
    width, depth = n.fresh(q[2].size // count), n.fresh(v[2].size // count)
    n.unify(q[0], k[0])
    n.match(k[:2], v[:2])
    n.unify(q[2], product((heads, width)))
    n.unify(k[2], product((heads, width)))
    n.unify(v[2], product((heads, depth)))
    n.attr("num_heads", lambda size: size(heads))
    n.out((q[0], q[1], product((heads, depth))))


@rule("Attention", domain="com.microsoft")
def packed_attention(n: Site) -> None:
    """One weight makes query, key and value side by side."""
    if n.given("qkv_hidden_sizes") or any(n.has(i) for i in range(4, n.arity)):
        raise Unruly("cached, or of unequal widths")
    x, w = n.ax(0), n.ax(1)
    count = n.number("num_heads")
    heads, width = n.fresh(count), n.fresh(w[1].size // 3 // count)
    n.unify(x[2], w[0])
    hidden = product((heads, width))
    n.unify(w[1], product((n.rigid(3), hidden)))
    if n.has(2):
        n.unify(n.ax(2)[0], w[1])
    if n.has(3):
        if n.rank(3) != 2:
            raise Unruly("a mask of another form")
        n.match(n.ax(3), x[:2])
    n.attr("num_heads", lambda size: size(heads))
    n.out((x[0], x[1], hidden))


@rule("RotaryEmbedding")
def rotary_embedding(n: Site) -> None:
    x = n.ax(0)
    if n.number("rotary_embedding_dim"):
        raise Unruly("a part is rotated")
    if len(x) == 3:
        heads = n.fresh(n.number("num_heads"))
        width = n.fresh(x[2].size // heads.size)
        n.unify(x[2], product((heads, width)))
        n.attr("num_heads", lambda size: size(heads))
        batch, time = x[0], x[1]
    else:
        batch, _, time, width = x
    half = n.fresh(width.size // 2)
    # The halves are rotated against each other; interleaved pairs are factors the other way round.
    pairs: tuple[Expr, Expr] = (n.rigid(2), half)
    n.unify(width, product(reversed(pairs) if n.number("interleaved") else pairs))
    for i in (1, 2):
        cache = n.ax(i)
        n.unify(cache[-1], half)
        if len(cache) == 3:
            n.spread([cache[:2], (batch, time)])
    if n.has(3):
        n.match(n.ax(3), (batch, time))
        n.unify(n.ax(1)[0], n.ax(2)[0])
        positions = n.ax(1)[0]
        n.clamp(3, positions)
        n.check(lambda size: size(time) <= size(positions), "more steps than positions")
    n.out(x)


@rule("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(n: Site) -> None:
    if n.number("transBatchA") or n.number("transBatchB"):
        raise Unruly("batches are transposed")
    a, b = n.ax(0), n.ax(1)
    if n.number("transA") and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if n.number("transB") and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    n.out(matmul_axes(n, a, b))
