"""Operators that move elements without computing: shapes, orders, pieces."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, Axes, Expr, product, total
from onnxreduce.dims.provenance import Element
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly


@rule("Transpose")
def transpose(n: Site) -> None:
    x = n.ax(0)
    n.out(x[i] for i in n.numbers("perm", range(len(x))[::-1]))


@rule("Flatten")
def flatten(n: Site) -> None:
    x = n.ax(0)
    at = n.axis("axis", 1)
    n.out((product(x[:at]), product(x[at:])))


@rule("Concat")
def concat(n: Site) -> None:
    n.out(joined(n, [n.ax(i) for i in range(n.arity)]))


def joined(n: Site, inputs: list[Axes]) -> Axes:
    """Concatenation along the axis attribute."""
    first = inputs[0]
    at = n.axis("axis", 1, len(first))
    for other in inputs[1:]:
        n.match(first[:at], other[:at])
        n.match(first[at + 1 :], other[at + 1 :])
    parts = [axes[at] for axes in inputs if axes[at].size]
    return (*first[:at], total(parts) if parts else first[at], *first[at + 1 :])


@rule("Reshape")
def reshape(n: Site) -> None:
    """Groups of input and output axes with equal running products are one run of elements."""
    x, shape = n.ax(0), n.shape_out()
    if 0 in shape:
        raise Unruly("no elements")
    out = regroup(n, x, shape)
    if n.opset < 5:
        wanted = n.numbers("shape")
        n.attr(
            "shape",
            lambda size: [size(a) if v > 0 else v for v, a in zip(wanted, out, strict=True)],
        )
    else:
        n.fix(1)
        written(n, 1, out, x)
    n.out(out)


def regroup(n: Site, x: tuple[Expr, ...], shape: tuple[int, ...]) -> list[Expr]:
    """Axes for `shape`, made of the same elements in the same order as `x`."""
    out: list[Expr] = [UNIT] * len(shape)
    sources = [axis for axis in x if axis.size != 1]
    targets = [at for at, size in enumerate(shape) if size != 1]
    while targets:
        group, places = [sources.pop(0)], [targets.pop(0)]
        have, want = group[0].size, shape[places[0]]
        while have != want:
            if have < want:
                group.append(sources.pop(0))
                have *= group[-1].size
            else:
                places.append(targets.pop(0))
                want *= shape[places[-1]]
        if len(places) == 1:
            out[places[0]] = product(group)
            continue
        for at in places:
            out[at] = n.fresh(shape[at])
        n.unify(product(group), product(out[at] for at in places))
    return out


def written(n: Site, i: int, out: list[Expr], x: tuple[Expr, ...]) -> None:
    """The sizes written in a shape operand follow the axes; 0 and -1 stay."""
    vector = n.prov(i)
    elements: list[Element | None]
    if vector is not None:
        values, elements = [e.value for e in vector.elements], list(vector.elements)
    else:
        values = n.need(i).tolist()
        elements = [None] * len(values)
    for at, (value, element) in enumerate(zip(values, elements, strict=True)):
        if value == 0 and not n.number("allowzero"):
            n.unify(out[at], x[at])
        elif value > 0:
            if element is None:
                n.freeze(out[at])
            else:
                n.sized(out[at], element)


@rule("Squeeze")
def squeeze(n: Site) -> None:
    x = n.ax(0)
    if n.opset < 13:
        axes = n.numbers("axes") if n.given("axes") else None
    else:
        axes = n.need(1).tolist() if n.has(1) else None
        n.fix(1)
    if axes is None:
        if any(axis.size > 1 for axis in x):
            # Which axes vanish depends on the sizes.
            n.check(lambda size: all(a.size == 1 or size(a) > 1 for a in x), "rank")
        axes = [at for at, axis in enumerate(x) if axis.size == 1]
    gone = {at % len(x) for at in axes}
    n.out(axis for at, axis in enumerate(x) if at not in gone)


@rule("Unsqueeze")
def unsqueeze(n: Site) -> None:
    x = n.ax(0)
    axes = n.numbers("axes") if n.opset < 13 else n.need(1).reshape(-1).tolist()
    n.fix(1)
    rank = len(x) + len(axes)
    new = {at % rank for at in axes}
    rest = iter(x)
    n.out(UNIT if at in new else next(rest) for at in range(rank))


@rule("ExpandDims", domain="com.microsoft")
def expand_dims(n: Site) -> None:
    x, at = n.ax(0), int(n.need(1).reshape(-1)[0])
    n.fix(1)
    at += len(x) + 1 if at < 0 else 0
    n.out((*x[:at], UNIT, *x[at:]))
