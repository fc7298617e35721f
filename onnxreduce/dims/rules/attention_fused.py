"""Attention as ONNX Runtime fuses it: with projections, masks, caches and rotations inside."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, Expr, product, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.rules.attention import covered, per_head, rotated
from onnxreduce.dims.site import Site, Unruly

MICROSOFT = "com.microsoft"
SUMS = ("ReduceSum", "EmbedLayerNormalization", "QEmbedLayerNormalization")


@rule("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(n: Site) -> None:
    """Inputs: query, key, value, then bias, mask, attention bias and a cache in an order that
    differs between the two operators."""
    decoding = n.op_type.startswith("Decoder")
    bias, mask, added, past, filled = (10, 3, 4, 5, 7) if decoding else (3, 4, 5, 6, 8)
    heads = n.fresh(n.number("num_heads"))
    n.attr("num_heads", lambda size: size(heads))
    if n.has(9) or (decoding and n.has(8)):
        raise Unruly("beams")
    batch, time, width, keys, depth = _query_key_value(n, heads)
    if n.has(bias):
        inner, outer = product((heads, width)), product((heads, depth))
        n.unify(n.ax(bias)[0], total((inner, inner, outer)))
    if n.has(past):
        n.unify(width, depth)
        before = _past(n, past, batch, heads, width)
        if not n.has(filled):
            keys = total((before, keys))
        elif n.has(mask) or n.has(added):
            raise Unruly("a cache that is written in place, and a mask")
        else:
            keys = before
            _offset(n, filled, time, keys)
    _masked(n, mask, batch, time, keys)
    if n.has(added):
        n.spread([(batch, heads, time, keys), n.ax(added)])
    n.out((batch, time, product((heads, depth))))
    n.out((batch, heads, keys, width), 1)
    n.out((batch, heads, keys, depth), 2)
    n.out((batch, heads, time, keys), 3)


def _query_key_value(n: Site, heads: Expr) -> tuple[Expr, Expr, Expr, Expr, Expr]:
    """Batch, time, width of a head; length and width of a head of the values."""
    q = n.ax(0)
    if len(q) == 5:  # packed: batch, time, heads, 3, width
        n.unify(q[2], heads)
        n.freeze(q[3])
        return q[0], q[1], q[4], q[1], q[4]
    if len(q) != 3 or not n.has(1):
        raise Unruly("query, key and value in one axis")
    count = heads.size
    width = n.fresh(q[2].size // count)
    n.unify(q[2], product((heads, width)))
    k = n.ax(1)
    n.unify(q[0], k[0])
    if len(k) == 5:  # packed: batch, time, heads, 2, width
        n.match(k[2:5], (heads, k[3], width))
        n.freeze(k[3])
        return q[0], q[1], width, k[1], width
    v = n.ax(2)
    if len(k) == 4:  # of another sequence, with heads
        n.match(k, v)
        n.match(k[1::2], (heads, width))
        return q[0], q[1], width, k[2], v[3]
    depth = n.fresh(v[2].size // count)
    n.match(k[:2], v[:2])
    n.unify(k[2], product((heads, width)))
    n.unify(v[2], product((heads, depth)))
    return q[0], q[1], width, k[1], depth


def _past(n: Site, i: int, batch: Expr, heads: Expr, width: Expr) -> Expr:
    """Keys and values seen before; how many."""
    past = n.ax(i)
    n.match(past, (batch, heads, past[2], width))
    n.match(n.ax(i + 1), past)
    return past[2]


def _masked(n: Site, i: int, batch: Expr, time: Expr, keys: Expr) -> None:
    """One number for a key, or for a query and a key; else one for a sequence: its length."""
    if not n.has(i):
        return
    mask = n.ax(i)
    if len(mask) == 3:
        n.match(mask, (batch, time, keys))
    elif len(mask) == 2:
        n.match(mask, (batch, keys))
    elif len(mask) == 1 and mask[0].size == batch.size:
        n.unify(mask[0], batch)
        _lengths(n, i, keys, counts=True)
    else:
        raise Unruly("a mask of another form")


def _lengths(n: Site, i: int, keys: Expr, counts: bool = False) -> None:
    """How much of each sequence counts: stored, or the sum of a mask, which follows its axis."""
    value = n.node.inputs[i]
    producer = None if value is None else value.producer()
    while producer is not None and producer.op_type in ("Cast", "Sub", "Squeeze", "Unsqueeze"):
        value = producer.inputs[0]
        producer = None if value is None else value.producer()
    if producer is None or producer.op_type not in SUMS:
        n.clamp(i, keys, counts=counts)


@rule("Attention", domain=MICROSOFT)
def packed_attention(n: Site) -> None:
    """One weight makes query, key and value side by side."""
    if n.has(6) or n.number("do_rotary"):
        raise Unruly("a cache that is written in place, or rotated")
    heads, width, depth = _projected(n)
    if n.has(2):
        n.unify(n.ax(2)[0], n.ax(1)[1])
    _attend(n, heads, width, depth, mask=3, past=4, added=5)


@rule("QAttention", domain=MICROSOFT)
def quantised_attention(n: Site) -> None:
    if n.number("do_rotary"):
        raise Unruly("rotated")
    heads, width, depth = _projected(n)
    for i in (2, 4, 7):
        if n.has(i) and n.sh(i) not in ((), (1,)):
            n.unify(n.ax(i)[0], n.ax(1)[1])
    _attend(n, heads, width, depth, mask=5, past=8, added=9)


def _projected(n: Site) -> tuple[Expr, Expr, Expr]:
    """Heads, their width, and that of their values, from the weight that projects to them."""
    w = n.ax(1)
    n.unify(n.ax(0)[2], w[0])
    heads = n.fresh(n.number("num_heads"))
    n.attr("num_heads", lambda size: size(heads))
    widths = n.numbers("qkv_hidden_sizes")
    if not widths:
        width = n.fresh(w[1].size // 3 // heads.size)
        n.unify(w[1], product((n.rigid(3), heads, width)))
        return heads, width, width
    width, depth = n.fresh(widths[0] // heads.size), n.fresh(widths[2] // heads.size)
    inner, outer = product((heads, width)), product((heads, depth))
    n.unify(w[1], total((inner, inner, outer)))
    n.attr("qkv_hidden_sizes", lambda size: [size(inner), size(inner), size(outer)])
    return heads, width, depth


def _attend(
    n: Site, heads: Expr, width: Expr, depth: Expr, mask: int, past: int, added: int
) -> None:
    batch, time = n.ax(0)[:2]
    keys: Expr = time
    if n.has(past):
        pair, *rest = n.ax(past)
        n.freeze(pair)
        n.unify(width, depth)
        n.match(rest, (batch, heads, rest[2], width))
        keys = total((rest[2], time))
    _masked(n, mask, batch, time, keys)
    if n.has(added):
        n.spread([(batch, heads, time, keys), n.ax(added)])
    n.out((batch, time, product((heads, depth))))
    n.out((n.rigid(2), batch, heads, keys, width), 1)


@rule("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(n: Site) -> None:
    """Several heads of the query share one of keys and values.

    Inputs 5 and 6 say how long the sequences are; the cache holds what came before, or has room
    for all.
    """
    if any(n.has(i) for i in (12, 13, 16)) or n.number("sliding_window_cache"):
        raise Unruly("a cache that is quantised, or slides")
    count, fewer = n.number("num_heads"), n.number("kv_num_heads")
    shared, times = n.fresh(fewer), n.fresh(count // fewer)
    heads = product((shared, times))
    n.attr("num_heads", lambda size: size(heads))
    n.attr("kv_num_heads", lambda size: size(shared))
    q = n.ax(0)
    if n.has(1):
        width = _width(n, q[2].size // count)
        n.unify(q[2], product((heads, width)))
        for i in (1, 2):
            n.match(n.ax(i), (*q[:2], product((shared, width))))
    else:
        width = _width(n, q[2].size // (count + 2 * fewer))
        side = product((shared, width))
        n.unify(q[2], total((product((heads, width)), side, side)))
    batch, time = q[:2]
    cache = _cache(n, batch, time, shared, width)
    n.unify(n.ax(5)[0], batch)
    _lengths(n, 5, cache)
    for i, axes in ((11, (heads,)), (14, (width,)), (15, (width,))):
        if n.has(i):
            n.match(n.ax(i), axes)
    if n.has(10):
        n.spread([(batch, heads, time, cache), n.ax(10)])
    if n.number("do_rotary"):
        _cosines(n, width, cache, (7, 8))
    if n.has(9):
        n.match(n.ax(9), (batch, time))
        n.clamp(9, cache)
    n.out((batch, time, product((heads, width))))
    n.out((batch, shared, cache, width), 1)
    n.out((batch, shared, cache, width), 2)
    n.out((batch, heads, time, cache), 3)


def _width(n: Site, width: int) -> Expr:
    """ONNX Runtime takes no heads but those of a width that is a multiple of eight; of sixteen
    where they are rotated."""
    if not n.number("do_rotary"):
        return product((n.fresh(width // 8), n.rigid(8)))
    parts = (n.fresh(width // 16), n.rigid(8))
    pair = n.rigid(2)
    return product((*parts, pair) if n.number("rotary_interleaved") else (pair, *parts))


def _cache(n: Site, batch: Expr, time: Expr, heads: Expr, width: Expr) -> Expr:
    """How many keys there are in all."""
    length = int(n.need(6).reshape(-1)[0])
    past = _past(n, 3, batch, heads, width) if n.has(3) else UNIT
    before = past.size if n.has(3) else 0
    if before >= length:  # room for all
        n.check(lambda size: min(length, size(past)) >= size(time), "the cache is too short")
        n.fix(6)
        n.lit(6, 0, lambda size: min(length, size(past)))
        return past
    if before + time.size != length:
        raise Unruly("sequences of other lengths")
    keys = total((past, time)) if before else time
    vector = n.prov(6)
    if vector is None:
        n.freeze(keys)
    else:
        n.sized(keys, vector.elements[0])
    return keys


def _cosines(n: Site, width: Expr, positions: Expr, inputs: tuple[int, int]) -> None:
    """Tables with a row for a position, and a column for a pair of places of a head."""
    half = n.fresh(n.sh(inputs[0])[1])
    pairs = (half, n.rigid(2)) if n.number("rotary_interleaved") else (n.rigid(2), half)
    n.unify(width, product(pairs))
    rows = n.ax(inputs[0])[0]
    for i in inputs:
        n.match(n.ax(i), (rows, half))
    covered(n, rows, positions)


@rule("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: Site) -> None:
    batch, time, width = per_head(n, 0) if n.number("num_heads") else _headless(n)
    half = rotated(n, width)
    rows = n.ax(2)[0]
    for i in (2, 3):
        n.match(n.ax(i), (rows, half))
    if n.rank(1) == 2:
        n.match(n.ax(1), (batch, time))
        n.clamp(1, rows)
        covered(n, rows, time)
    else:
        _offset(n, 1, time, rows)
    n.out(n.ax(0))


def _offset(n: Site, i: int, time: Expr, rows: Expr) -> None:
    """The steps go to the rows from a first one on, which is in input `i`."""
    first = int(n.need(i).reshape(-1)[0])
    covered(n, rows, time)
    n.fix(i)
    n.lit(i, 0, lambda size: min(first, size(rows) - size(time)))


def _headless(n: Site) -> tuple[Expr, Expr, Expr]:
    """The width of a head is that of the tables."""
    x = n.ax(0)
    if len(x) == 4:
        return x[0], x[2], x[3]
    width = n.fresh(2 * n.sh(2)[1])
    n.unify(x[2], product((n.fresh(x[2].size // width.size), width)))
    return x[0], x[1], width
