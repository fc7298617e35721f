"""Operators whose output sizes are written somewhere: padding, repeating, resizing, filling."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

import numpy as np

from onnxreduce.dims.expr import UNIT, Expr, product, total
from onnxreduce.dims.provenance import Dim, Element, Lit
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size


@rule("Pad")
@rule("Pad", domain="com.microsoft")
def pad(n: Site) -> None:
    x = list(n.ax(0))
    attribute = "pads" if n.given("pads") else "paddings"
    written = n.numbers(attribute) if n.given(attribute) else n.need(1).tolist()
    vector = None if n.given(attribute) else n.prov(1)
    axes = n.need(3).tolist() if n.has(3) else list(range(len(x)))
    n.fix(1, 2, 3)
    count = len(axes)
    pieces: list[Expr | None] = [None for _ in range(2 * count)]
    for i, axis in enumerate(axes):
        pair = (i, i + count)
        source = x[axis]
        if any(written[at] < 0 for at in pair):
            x[axis] = _cropped(n, source, [written[at] for at in pair], vector, pair)
            continue
        for at in pair:
            pieces[at] = n.slack(written[at], ("pads", at))
            if vector is not None:
                n.sized(pieces[at] or UNIT, vector.elements[at])
            elif not n.given(attribute):
                n.freeze(pieces[at] or UNIT)
        before, after = pieces[pair[0]], pieces[pair[1]]
        assert before is not None
        assert after is not None
        _limit(n, source, before, after)
        x[axis] = total(part for part in (before, source, after) if part.size)
    n.attr(attribute, _pads(written, pieces))
    n.out(x)


def _pads(written: Sequence[int], pieces: Sequence[Expr | None]):  # type: ignore[no-untyped-def]
    return lambda size: [
        value if piece is None else size(piece)
        for value, piece in zip(written, pieces, strict=True)
    ]


def _limit(n: Site, source: Expr, before: Expr, after: Expr) -> None:
    """Mirrored padding needs something to mirror."""
    mode = n.text("mode", "constant")
    if mode in ("reflect", "wrap"):
        less = 1 if mode == "reflect" else 0
        n.check(lambda size: max(size(before), size(after)) <= size(source) - less, "pad too large")


def _cropped(  # type: ignore[no-untyped-def]
    n: Site, source: Expr, pads: list[int], vector, pair: tuple[int, int]
) -> Expr:
    """Negative padding takes away: the size is a function."""
    if vector is not None and not all(isinstance(vector.elements[at], Lit) for at in pair):
        raise Unruly("computed negative pads")
    return n.driven(source.size + sum(pads), lambda size: size(source) + sum(pads), "pad")


@rule("Tile")
def tile(n: Site) -> None:
    x = n.ax(0)
    if n.opset < 6:
        raise Unruly("one axis at a time")
    vector = n.prov(1)
    repeats = n.need(1).tolist()
    n.fix(1)
    out: list[Expr] = []
    for at, (axis, count) in enumerate(zip(x, repeats, strict=True)):
        times = n.fresh(int(count), ("repeats", at))
        if vector is not None:
            n.sized(times, vector.elements[at])
        else:
            n.freeze(times)
        out.append(product((times, axis)))
    n.out(out)


@rule("Expand")
def expand(n: Site) -> None:
    x = n.ax(0)
    shape = n.shape_out()
    vector = n.prov(1)
    n.fix(1)
    padded = (*(UNIT for _ in range(len(shape) - len(x))), *x)
    wanted = n.need(1).tolist() if vector is None else [e.value for e in vector.elements]
    elements: list[Element | None] = [None] * len(shape)
    if vector is not None:
        elements[len(shape) - len(wanted) :] = vector.elements
    out: list[Expr] = []
    for at, (axis, size, element) in enumerate(zip(padded, shape, elements, strict=True)):
        result = axis if axis.size > 1 else n.fresh(size, ("shape", at))
        if element is not None and element.value != 1:
            n.sized(result, element)
        elif vector is None and axis.size == 1:
            n.freeze(result)
        out.append(result)
    n.out(out)


@rule("ConstantOfShape")
def constant_of_shape(n: Site) -> None:
    n.fix(0)
    n.out(_filled(n, 0))


def _filled(n: Site, i: int) -> list[Expr]:
    vector = n.prov(i)
    out: list[Expr] = []
    for at, size in enumerate(n.shape_out()):
        axis = n.fresh(size, ("shape", at))
        if vector is None:
            n.freeze(axis)
        else:
            n.sized(axis, vector.elements[at])
        out.append(axis)
    return out


@rule("RandomNormal", "RandomUniform")
def random(n: Site) -> None:
    out = [n.fresh(size, ("shape", at)) for at, size in enumerate(n.numbers("shape"))]
    n.attr("shape", lambda size: [size(axis) for axis in out])
    n.out(out)


@rule("Multinomial")
def multinomial(n: Site) -> None:
    samples = n.fresh(n.number("sample_size", 1), ("sample_size", 0))
    n.attr("sample_size", lambda size: size(samples))
    n.out((n.ax(0)[0], samples))


@rule("Range")
@rule("Range", domain="com.microsoft")
def range_(n: Site) -> None:
    vectors = [n.prov(i) for i in range(3)]
    count = n.shape_out()[0]
    n.fix(0, 1, 2)
    start, limit, delta = (None if v is None else v.elements[0] for v in vectors)
    if start is None or limit is None or delta is None:
        raise Unruly("bounds of unknown origin")
    plain = isinstance(start, Lit) and isinstance(delta, Lit)
    if plain and start.value == 0 and delta.value == 1 and isinstance(limit, Dim):
        n.out((limit.axis,))
    elif plain and isinstance(limit, Lit):
        axis = n.fresh(count, ("limit", 0))
        slackness = limit.value - start.value - (count - 1) * delta.value
        n.literal(limit, lambda size: start.value + (size(axis) - 1) * delta.value + slackness)
        n.out((axis,))
    else:
        n.out((n.driven(count, lambda size: _count(size, start, limit, delta), "range"),))


def _count(size: Size, start: Element, limit: Element, delta: Element) -> int:
    count: int = ceil((limit.at(size) - start.at(size)) / delta.at(size))
    return max(0, count)


@rule("Shape", "Size")
def shape(n: Site) -> None:
    n.out(n.rigid(size) for size in n.shape_out())


@rule("Resize", "Upsample")
def resize(n: Site) -> None:
    x = n.ax(0)
    at = {"Upsample": 1}.get(n.op_type, 1 if n.opset < 11 else 2)
    rank = len(x)
    axes = [axis % rank for axis in n.numbers("axes", range(rank))]
    n.fix(*range(1, n.arity))
    out = list(x)
    shape = n.shape_out()
    if n.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        for axis, made in zip(axes, _same_aspect(n, [x[axis] for axis in axes]), strict=True):
            out[axis] = made
    elif n.has(3) and n.sh(3) != (0,):
        vector = n.prov(3)
        if vector is None:
            raise Unruly("sizes of unknown origin")
        for axis, element in zip(axes, vector.elements, strict=True):
            if shape[axis] != x[axis].size or shape[axis] == 1:
                out[axis] = n.fresh(shape[axis], ("sizes", axis))
            n.sized(out[axis], element)
    else:
        for axis, scale in zip(axes, _scales(n, at), strict=True):
            out[axis] = _scaled(n, x[axis], scale, shape[axis])
    n.out(out)


def _same_aspect(n: Site, x: Sequence[Expr]) -> list[Expr]:
    """One scale for all axes: the least or the largest that the sizes ask for."""
    vector = n.prov(3)
    if vector is None:
        raise Unruly("sizes of unknown origin")
    wanted = [n.fresh(int(e.value), ("sizes", at)) for at, e in enumerate(vector.elements)]
    for axis, element in zip(wanted, vector.elements, strict=True):
        n.sized(axis, element)
    choose = min if n.text("keep_aspect_ratio_policy") == "not_larger" else max

    def scaled(size: Size, axis: Expr) -> int:
        scale = choose(size(want) / size(have) for want, have in zip(wanted, x, strict=True))
        return floor(scale * size(axis) + 0.5)

    return [
        n.driven(scaled(lambda e: e.size, axis), lambda size, axis=axis: scaled(size, axis))  # type: ignore[misc]
        for axis in x
    ]


def _scales(n: Site, i: int) -> list[float | Element]:
    if n.given("scales"):
        attribute = n.node.attributes["scales"]
        return [float(value) for value in attribute.value]
    vector = n.prov(i)
    return list(n.need(i).tolist() if vector is None else vector.elements)


def _scaled(n: Site, axis: Expr, scale: float | Element, size_out: int) -> Expr:
    if isinstance(scale, (float, int, Lit)):
        factor = float(scale.value if isinstance(scale, Lit) else scale)
        if factor == 1.0:
            return axis
        return n.driven(size_out, lambda size: _floor(size(axis) * factor), "scale")
    return n.driven(size_out, lambda size: _floor(size(axis) * scale.at(size)), "scale")


def _floor(value: float) -> int:
    """Runtimes multiply in float32."""
    return floor(np.float32(value))


@rule("AffineGrid")
def affine_grid(n: Site) -> None:
    theta = n.ax(0)
    vector = n.prov(1)
    n.fix(1)
    n.freeze(theta[1])
    n.freeze(theta[2])
    if vector is None:
        raise Unruly("sizes of unknown origin")
    shape = n.shape_out()
    n.sized(theta[0], vector.elements[0])
    out = [n.fresh(size, ("size", at)) for at, size in enumerate(shape[1:-1])]
    for axis, element in zip(out, vector.elements[2:], strict=True):
        n.sized(axis, element)
    n.out((theta[0], *out, n.rigid(shape[-1])))
