"""Slice and Split: an axis is the sum of its pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxreduce.dims.expr import Expr, normal, product, total
from onnxreduce.dims.provenance import Dim, Element, Lit, Vector
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size


@rule("Slice")
def slice_(n: Site) -> None:
    x = list(n.ax(0))
    bounds = n.slices()
    if bounds is None:
        raise Unruly("the bounds are not known")
    n.fix(1, 2, 3, 4)
    written = _Written(n, len(bounds))
    for at, (axis, start, end, step) in enumerate(bounds):
        x[axis] = _piece(n, x[axis], axis, _Bounds(at, start, end, step), written)
    written.mend()
    n.out(x)


@dataclass(frozen=True)
class _Bounds:
    at: int
    start: int
    end: int
    step: int

    def range(self, length: int) -> range:
        return range(*slice(self.start, self.end, self.step).indices(length))


class _Written:
    """Where starts and ends are written, and what they are to become."""

    def __init__(self, n: Site, count: int) -> None:
        self.n = n
        self.attributes = n.opset < 10
        self.changes: dict[tuple[str, int], Callable[[Size], int]] = {}
        self.count = count

    def element(self, which: str, at: int) -> Element | None:
        """The origin of a bound; ``None`` where it is an attribute or not known."""
        if self.attributes:
            return None
        vector = self.n.prov(1 if which == "starts" else 2)
        return None if vector is None else vector.elements[at]

    def literal(self, which: str, at: int) -> bool:
        return self.attributes or isinstance(self.element(which, at), Lit)

    def set(self, which: str, at: int, function: Callable[[Size], int]) -> None:
        if self.attributes:
            self.changes[which, at] = function
        else:
            self.n.lit(1 if which == "starts" else 2, at, function)

    def mend(self) -> None:
        for which in ("starts", "ends"):
            wanted = {at: f for (name, at), f in self.changes.items() if name == which}
            if wanted:
                old = self.n.numbers(which)
                self.n.attr(which, _replacer(old, wanted))


def _replacer(
    old: list[int], wanted: dict[int, Callable[[Size], int]]
) -> Callable[[Size], list[int]]:
    return lambda size: [wanted[at](size) if at in wanted else v for at, v in enumerate(old)]


def _piece(n: Site, x: Expr, axis: int, bounds: _Bounds, written: _Written) -> Expr:
    taken, length = bounds.range(x.size), x.size
    if bounds.step == 1 and (len(taken) == length):
        return _whole(n, x, bounds, written)
    if bounds.step == 1 and not _overlaps(n, axis, taken):
        return _segment(n, x, bounds, written)
    if bounds.step == -1 and len(taken) == length and bounds.start in (-1, *range(length, 2**63)):
        return x
    literal = written.literal("ends", bounds.at) and written.literal("starts", bounds.at)
    if (
        literal
        and bounds.step > 1
        and length == bounds.step * len(taken)
        and 0 <= bounds.start < bounds.step
    ):
        out = n.fresh(len(taken))
        n.unify(x, product((out, n.rigid(bounds.step))))
        if 0 < bounds.end <= length:
            written.set("ends", bounds.at, lambda size: size(x) - length + bounds.end)
        return out
    return _driven(n, x, bounds, written)


def _whole(n: Site, x: Expr, bounds: _Bounds, written: _Written) -> Expr:
    """Everything is taken, and stays taken as the axis shrinks: bounds clamp."""
    end = written.element("ends", bounds.at)
    if end is not None and not isinstance(end, Lit) and not _is_axis(end, x):
        n.check(lambda size: int(end.at(size)) >= size(x) or int(end.at(size)) < 0, "slice end")
    start = written.element("starts", bounds.at)
    if start is not None and not isinstance(start, Lit):
        n.check(lambda size: int(start.at(size)) == 0, "slice start")
    return x


def _is_axis(element: Element, x: Expr) -> bool:
    return isinstance(element, Dim) and _same(element.axis, x)


def _same(a: Expr, b: Expr) -> bool:
    return normal(a) is normal(b)


def _segment(n: Site, x: Expr, bounds: _Bounds, written: _Written) -> Expr:
    """x = before + out + after; the bounds move with the sizes."""
    taken = bounds.range(x.size)
    first = taken.start
    before, after = n.slack(first), n.slack(x.size - first - len(taken))
    out = n.fresh(len(taken))
    _bound(n, "starts", bounds.at, bounds.start, before, total((out, after)), written)
    if len(taken) + first < x.size or _is_short(bounds.end, x.size):
        _bound(n, "ends", bounds.at, bounds.end, total((before, out)), after, written)
    n.unify(x, total(part for part in (before, out, after) if part.size))
    return out


def _is_short(end: int, length: int) -> bool:
    return 0 < end <= length


def _bound(
    n: Site, which: str, at: int, value: int, left: Expr, right: Expr, written: _Written
) -> None:
    """A bound with `left` before it and `right` behind it."""
    if value < -(left.size + right.size):  # clamped to the first element
        return
    if written.literal(which, at):
        negative = value < 0
        written.set(which, at, lambda size: -size(right) or size(left) if negative else size(left))
        return
    element = written.element(which, at)
    if element is None:
        raise Unruly("a bound of unknown origin")
    if value < 0:
        n.equal(right, lambda size: -int(element.at(size)), "slice bound")
    else:
        n.equal(left, lambda size: int(element.at(size)), "slice bound")


def _driven(n: Site, x: Expr, bounds: _Bounds, written: _Written) -> Expr:
    """The bounds stay as they are; the size is what they take."""
    origins = [written.element(which, bounds.at) for which in ("starts", "ends")]

    def count(size: Size) -> int:
        start, end = (
            default if origin is None else int(origin.at(size))
            for origin, default in zip(origins, (bounds.start, bounds.end), strict=True)
        )
        return len(range(*slice(start, end, bounds.step).indices(size(x))))

    return n.driven(len(bounds.range(x.size)), count, "slice")


def _overlaps(n: Site, axis: int, taken: range) -> bool:
    """Whether another Slice of the same value takes some of the same elements: as segments these
    would grind the axis into units (``x[1:] - x[:-1]``)."""
    source = n.node.inputs[0]
    assert source is not None
    for node, i in source.uses():
        if node is n.node or i != 0 or node.op_type != "Slice" or node.graph is not n.node.graph:
            continue
        other = Site(n.analysis, node, "")
        for at, start, end, step in other.slices() or ():
            rival = range(*slice(start, end, step).indices(n.sh(0)[at]))
            if at == axis and rival != taken and _meet(rival, taken):
                return True
    return False


def _meet(a: range, b: range) -> bool:
    if not a or not b or a.step != 1:
        return bool(a)
    return max(a.start, b.start) < min(a.stop, b.stop)


@rule("Split")
def split(n: Site) -> None:
    x = n.ax(0)
    at = n.axis("axis", 0)
    outputs = len(n.node.outputs)
    given = n.given("split") or n.has(1)
    sizes = [n.shape_out(j)[at] for j in range(outputs)]
    if given:
        parts: Sequence[Expr] = [n.fresh(size) for size in sizes]
        n.unify(x[at], total(part for part in parts if part.size))
        n.fix(1)
        n.attr("split", lambda size: [size(part) for part in parts])
        vector = n.prov(1) if n.has(1) else None
        for part, element in zip(
            parts, vector.elements if vector else (), strict=vector is not None
        ):
            n.sized(part, element)
        if n.has(1) and vector is None:
            n.freeze(x[at])
    else:
        part = n.fresh(sizes[0])
        parts = [part] * outputs
        if sizes[-1] == sizes[0]:
            n.unify(x[at], product((n.rigid(outputs), part)))
        else:
            parts = _uneven(n, x[at], part, sizes[-1], outputs)
    for j, part in enumerate(parts):
        n.out((*x[:at], part, *x[at + 1 :]), j)
    _tell_pieces(n, sizes)


def _tell_pieces(n: Site, sizes: Sequence[int]) -> None:
    vector = n.prov(0)
    if vector is None or vector.rank != 1:
        return
    start = 0
    for j, size in enumerate(sizes):
        n.tell(Vector(vector.elements[start : start + size], 1, vector.dtype), j)
        start += size


def _uneven(n: Site, axis: Expr, part: Expr, size: int, count: int) -> list[Expr]:
    """The last piece is what is left: the others are as long as the axis divided, rounded up."""
    last = n.fresh(size)
    n.unify(axis, total((product((n.rigid(count - 1), part)), last)))
    n.check(lambda size: size(part) - count < size(last) <= size(part), "uneven pieces")
    return [*[part] * (count - 1), last]
