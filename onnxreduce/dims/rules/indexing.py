"""Gather, Scatter and other operators with inputs that are indices."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, Expr, total
from onnxreduce.dims.provenance import Lit
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly


@rule("Gather")
def gather(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    at = n.axis("axis", 0)
    vector = n.prov(1)
    if vector is not None and len(vector.elements) == 1 and isinstance(vector.elements[0], Lit):
        _pick(n, x[at], int(vector.elements[0].value))
    elif vector is not None and n.prov(0) is None and not _literal(vector.elements):
        _computed(n, x[at])
    else:
        n.clamp(1, x[at])
    n.out((*x[:at], *indices, *x[at + 1 :]))


def _literal(elements: tuple[object, ...]) -> bool:
    return all(isinstance(element, Lit) for element in elements)


def _computed(n: Site, axis: Expr) -> None:
    """Indices made from sizes: they must stay inside."""
    vector = n.prov(1)
    assert vector is not None
    elements = vector.elements
    n.check(
        lambda size: all(-size(axis) <= int(e.at(size)) < size(axis) for e in elements), "index"
    )


def _pick(n: Site, axis: Expr, index: int) -> None:
    """A constant place: axis = before + 1 + after."""
    if not -axis.size <= index < axis.size:
        raise Unruly("index out of range")
    place = index % axis.size
    before, after = n.slack(place), n.slack(axis.size - place - 1)
    n.unify(axis, total(part for part in (before, UNIT, after) if part.size))
    n.fix(1)
    n.lit(1, 0, lambda size: -size(after) - 1 if index < 0 else size(before))


@rule("GatherElements")
def gather_elements(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    at = n.axis("axis", 0)
    _within(n, indices, x, at)
    n.clamp(1, x[at])
    n.out(indices)


@rule("ScatterElements", "Scatter")
def scatter_elements(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    at = n.axis("axis", 0)
    _within(n, indices, x, at)
    n.match(n.ax(2), indices)
    n.clamp(1, x[at])
    n.out(x)


def _within(n: Site, inner: tuple[Expr, ...], outer: tuple[Expr, ...], but: int) -> None:
    """Axes of the indices are those of the data, or shorter."""
    for at, (small, large) in enumerate(zip(inner, outer, strict=True)):
        if at == but:
            continue
        if small.size == large.size:
            n.unify(small, large)
        else:
            n.check(lambda size, a=small, b=large: size(a) <= size(b), "indices")  # type: ignore[misc]


@rule("GatherND")
@rule("GatherND", domain="com.microsoft")
def gather_nd(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    batch = n.number("batch_dims")
    n.match(x[:batch], indices[:batch])
    depth = _columns(n, x[batch:], indices)
    n.out((*indices[:-1], *x[batch + depth :]))


@rule("ScatterND")
def scatter_nd(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    depth = _columns(n, x, indices)
    n.match(n.ax(2), (*indices[:-1], *x[depth:]))
    n.out(x)


def _columns(n: Site, x: tuple[Expr, ...], indices: tuple[Expr, ...]) -> int:
    """The last axis of the indices counts axes of the data; one column can be clamped."""
    depth = indices[-1].size
    n.freeze(indices[-1])
    if depth == 1:
        n.clamp(1, x[0])
    else:
        for axis in x[:depth]:
            n.freeze(axis)
    return depth


@rule("TopK")
def top_k(n: Site) -> None:
    x = list(n.ax(0))
    at = n.axis("axis", -1)
    source = x[at]
    k = n.fresh(n.shape_out()[at], ("k", 0))
    if n.opset < 10:
        n.attr("k", lambda size: size(k))
    else:
        vector = n.prov(1)
        if vector is None:
            n.freeze(k)
        else:
            n.fix(1)
            n.sized(k, vector.elements[0])
    n.check(lambda size: size(k) <= size(source), "k is larger than the axis")
    x[at] = k
    n.out(x)
    n.out(x, 1)


@rule("OneHot")
def one_hot(n: Site) -> None:
    indices = n.ax(0)
    at = n.axis("axis", -1, len(indices) + 1)
    depth = n.fresh(n.shape_out()[at], ("depth", 0))
    vector = n.prov(1)
    if vector is None:
        n.freeze(depth)
    else:
        n.sized(depth, vector.elements[0])
    n.fix(1, 2)
    n.out((*indices[:at], depth, *indices[at:]))


@rule("ReverseSequence")
def reverse_sequence(n: Site) -> None:
    x = n.ax(0)
    n.unify(x[n.number("batch_axis", 1)], n.ax(1)[0])
    n.clamp(1, x[n.number("time_axis", 0)], counts=True)
    n.out(x)


@rule("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(n: Site) -> None:
    x, labels = n.ax(0), n.ax(1)
    n.match(labels, (x[0], *x[2:]))
    if n.has(2):
        n.unify(n.ax(2)[0], x[1])
    n.clamp(1, x[1])
    n.out(labels if n.text("reduction", "mean") == "none" else ())
    n.out(x, 1)


@rule("TensorScatter")
def tensor_scatter(n: Site) -> None:
    """Writes a piece for each sequence of a batch into a cache."""
    cache, update = n.ax(0), n.ax(1)
    at = n.axis("axis", -2)
    n.match(cache[:at] + cache[at + 1 :], update[:at] + update[at + 1 :])
    first = 0
    if n.has(2):
        n.unify(n.ax(2)[0], cache[0])
        first = int(n.need(2).max(initial=0))
    if n.text("mode", "linear") == "circular":
        first = 0
        n.clamp(2, cache[at])
    n.check(lambda size: size(cache[at]) >= first + size(update[at]), "the cache is too short")
    n.out(cache)
