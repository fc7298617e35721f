"""Attention: heads are a factor of the hidden axis."""

from __future__ import annotations

import onnx_ir as ir

from onnxreduce.dims.expr import Axes, Expr, product, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Frozen, Site, Unruly


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
        mask = n.ax(3)
        if 1 < mask[-1].size < keys.size:  # of the keys that are no padding
            covered(n, keys, mask[-1])
            mask = (*mask[:-1], keys)
        n.spread([(batch, heads, queries, keys), mask])
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


@rule("RotaryEmbedding")
def rotary_embedding(n: Site) -> None:
    batch, time, width = per_head(n, 0)
    half = rotated(n, width)
    for i in (1, 2):
        cache = n.ax(i)
        n.unify(cache[-1], half)
        if len(cache) == 3:
            n.spread([cache[:2], (batch, time)])
    if n.has(3):
        n.match(n.ax(3), (batch, time))
        n.unify(n.ax(1)[0], n.ax(2)[0])
        covered(n, n.ax(1)[0], time)
        n.clamp(3, n.ax(1)[0])
    n.out(n.ax(0))


def per_head(n: Site, i: int) -> tuple[Expr, Expr, Expr]:
    """Batch, time and the width of one head of an input of three axes or four."""
    x = n.ax(i)
    if len(x) == 4:
        return x[0], x[2], x[3]
    heads = n.fresh(n.number("num_heads"))
    width = n.fresh(x[2].size // heads.size)
    n.unify(x[2], product((heads, width)))
    n.attr("num_heads", lambda size: size(heads))
    return x[0], x[1], width


def rotated(n: Site, width: Expr) -> Expr:
    """The pairs among the places of a head that are rotated against each other.

    These are its halves; interleaved, they are factors the other way round. Where only a part is
    rotated, it comes first.
    """
    part = n.number("rotary_embedding_dim")
    half = n.fresh((part or width.size) // 2)
    pairs = (half, n.rigid(2)) if n.number("interleaved") else (n.rigid(2), half)
    turned = product(pairs)
    n.attr("rotary_embedding_dim", lambda size: 2 * size(half) if part else 0)
    if part and part < width.size:
        turned = total((turned, n.slack(width.size - part)))
    n.unify(width, turned)
    return half


def covered(n: Site, rows: Expr, steps: Expr) -> None:
    """A table with a row for each step, and maybe more."""
    more = rows.size - steps.size
    n.unify(rows, total((steps, n.slack(more))) if more > 0 else steps)


@rule("FlexAttention", domain="ai.onnx.preview")
def flex_attention(n: Site) -> None:
    """Bodies change scores one by one."""
    for name in ("score_mod", "prob_mod"):
        attribute = n.node.attributes.get(name)
        if attribute is not None and _shaped(attribute.as_graph()):
            raise Frozen("a body that holds tensors")
    q, k, v = n.ax(0), n.ax(1), n.ax(2)
    n.match(k[:3], v[:3])
    n.match((q[0], q[3]), (k[0], k[3]))
    n.unify(q[1], product((k[1], n.fresh(q[1].size // k[1].size))))
    n.out((*q[:3], v[3]))


def _shaped(graph: ir.Graph) -> bool:
    """Whether a body holds more than scalars, or declares sizes."""
    held = [value.const_value for value in graph.initializers.values()]
    held += [
        a.as_tensor() for node in graph for name, a in node.attributes.items() if name == "value"
    ]
    if any(tensor is not None and tensor.size > 1 for tensor in held):
        return True
    return any(isinstance(dim, int) for value in graph.inputs for dim in value.shape or ())


@rule("LinearAttention")
@rule("LinearAttention", domain="com.microsoft")
def linear_attention(n: Site) -> None:
    """A state for each head of the keys takes the place of a cache."""
    if n.number("state_window"):
        raise Unruly("several states")
    queries, count = n.number("q_num_heads"), n.number("kv_num_heads")
    if queries % count:
        raise Unruly("more heads of keys than of queries")
    shared, times = n.fresh(count), n.fresh(queries // count)
    heads = product((shared, times))
    n.attr("q_num_heads", lambda size: size(heads))
    n.attr("kv_num_heads", lambda size: size(shared))
    batch, time, hidden = n.ax(0)
    width, depth = n.fresh(hidden.size // queries), n.fresh(n.sh(2)[2] // count)
    n.unify(hidden, product((heads, width)))
    n.match(n.ax(1), (batch, time, product((shared, width))))
    n.match(n.ax(2), (batch, time, product((shared, depth))))
    state = (batch, shared, width, depth)
    if n.has(3):
        n.match(n.ax(3), state)
    if n.has(4):
        whole = n.sh(4)[2] == count * width.size
        n.match(n.ax(4), (batch, time, product((shared, width)) if whole else shared))
    if n.has(5):
        n.spread([(batch, time, shared), n.ax(5)])
    n.out((batch, time, product((heads, depth))))
    n.out(state, 1)
