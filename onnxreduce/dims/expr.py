"""Axis expressions: what the size and the indices of an axis are made of.

Every axis of every value is an ordered expression over base symbols: a symbol, an ordered product
(row-major, as Reshape merges axes), or an ordered sum (as Concat joins them). `UNIT`, the empty
product, is every axis of size one, so broadcasting needs no rule. Operators only *unify*
expressions; unifying splits symbols where it must (``C := G*r``, ``C := a + b``). What is still
free in the end is a class of axes that shrink together.

This is structured pruning's dependency problem (Fang et al., "DepGraph: Towards Any Structural
Pruning", CVPR 2023) with index mappings kept symbolic: the kept indices of every tensor follow
from its expression (`keep.py`), so no operator propagates indices.

Sizes are concrete while expressions are built: two expressions can be unified only when their
current sizes agree. Where factors do not line up (shuffled channels: ``80*3`` against ``3*80``)
only the sizes are tied, by a `Same` constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod as multiply


class SizeMismatch(Exception):
    """Two axes that a rule says are one have different sizes."""


class Sym:
    """A base symbol. `bound` is what unification found it to be; `slack` symbols are pieces that
    no value has as an axis of its own (what a Slice leaves out), and may vanish."""

    __slots__ = ("bound", "rigid", "serial", "settled", "size", "slack")

    def __init__(self, serial: int, size: int, rigid: bool = False, slack: bool = False) -> None:
        self.slack = slack
        self.settled: Expr | None = None
        self.serial = serial
        self.size = size
        self.rigid = rigid
        self.bound: Expr | None = None

    def __repr__(self) -> str:
        return f"s{self.serial}[{self.size}{'!' if self.rigid else ''}]"


class Prod:
    """An ordered, row-major product."""

    __slots__ = ("parts", "settled", "size")

    def __init__(self, parts: tuple[Expr, ...]) -> None:
        self.settled: Expr | None = None
        self.parts = parts
        self.size: int = multiply([part.size for part in parts])

    def __repr__(self) -> str:
        return "*".join(map(repr, self.parts)) or "1"


class Sum:
    """An ordered sum: a concatenation of segments."""

    __slots__ = ("parts", "settled", "size")

    def __init__(self, parts: tuple[Expr, ...]) -> None:
        self.settled: Expr | None = None
        self.parts = parts
        self.size: int = sum([part.size for part in parts])

    def __repr__(self) -> str:
        return "(" + " + ".join(map(repr, self.parts)) + ")"


Expr = Sym | Prod | Sum
Axes = tuple[Expr, ...]

UNIT = Prod(())


def product(parts: Iterable[Expr]) -> Expr:
    """The row-major product, flattened; a single factor is itself."""
    flat: list[Expr] = []
    for part in parts:
        part = normal(part)
        flat.extend(part.parts if isinstance(part, Prod) else (part,))
    return UNIT if not flat else flat[0] if len(flat) == 1 else Prod(tuple(flat))


def total(parts: Iterable[Expr]) -> Expr:
    """The concatenation, flattened; a single segment is itself."""
    flat: list[Expr] = []
    for part in parts:
        part = normal(part)
        flat.extend(part.parts if isinstance(part, Sum) else (part,))
    return flat[0] if len(flat) == 1 else Sum(tuple(flat))


def normal(expr: Expr) -> Expr:
    """The expression with every bound symbol replaced, products and sums flattened."""
    if isinstance(expr, Sym):
        if expr.bound is None:
            return expr
        expr.bound = normal(expr.bound)
        return expr.bound
    if expr.settled is not None:
        return expr.settled
    if all(isinstance(part, Sym) and part.bound is None for part in expr.parts):
        return expr
    return product(expr.parts) if isinstance(expr, Prod) else total(expr.parts)


def settled(expr: Expr) -> Expr:
    """`normal`, remembered: for when no more symbols will be bound."""
    if expr.settled is None:
        expr.settled = normal(expr)
        expr.settled.settled = expr.settled
    return expr.settled


def leaves(expr: Expr) -> Iterator[Sym]:
    """The unbound symbols of an expression, left to right, repeats included."""
    stack = [normal(expr)]
    while stack:
        top = stack.pop()
        if isinstance(top, Sym):
            yield top
        else:
            stack.extend(reversed(top.parts))


@dataclass(frozen=True, eq=False)
class Same:
    """Two expressions whose sizes stay equal although their factors do not line up."""

    left: Expr
    right: Expr
    node: str = ""
    """The node that reads one as the other: behind it, indices may be others."""


class Space:
    """The symbols of one analysis, and the size constraints between them.

    Attributes:
        loose: where a product meets a sum, only their sizes stay equal. What is kept of one is then
            not what is kept of the other, but numbers of groups need not add up.
        distributed: a product has met a sum, so `loose` makes a difference.
        node: whose axes are being unified.
    """

    def __init__(self, loose: bool = False) -> None:
        self.count = 0
        self.constraints: list[Same] = []
        self.loose = loose
        self.distributed = False
        self.node = ""

    def fresh(self, size: int, rigid: bool = False) -> Expr:
        """A new symbol; `UNIT` for size one. An empty axis stays empty."""
        if size == 1:
            return UNIT
        self.count += 1
        return Sym(self.count, size, rigid or size == 0)

    def slack(self, size: int) -> Expr:
        """A piece of a sum that may vanish."""
        self.count += 1
        return Sym(self.count, size, rigid=size == 0, slack=size > 0)

    def freeze(self, expr: Expr) -> None:
        """The sizes of these symbols may not change."""
        for leaf in leaves(expr):
            leaf.rigid = True

    def unify(self, left: Expr, right: Expr) -> None:
        """Make two expressions one.

        Raises:
            SizeMismatch: their current sizes differ.
        """
        left, right = normal(left), normal(right)
        if left is right:
            return
        if left.size != right.size:
            raise SizeMismatch(f"{left!r} against {right!r}")
        if isinstance(left, Sym):
            self._bind(left, right)
        elif isinstance(right, Sym):
            self._bind(right, left)
        elif isinstance(left, Prod) and isinstance(right, Prod):
            self._products(list(left.parts), list(right.parts))
        elif isinstance(left, Sum) and isinstance(right, Sum):
            self._sums(list(left.parts), list(right.parts))
        elif isinstance(left, Sum) and isinstance(right, Prod):
            self._distribute(right, left)
        elif isinstance(left, Prod) and isinstance(right, Sum):
            self._distribute(left, right)

    def _bind(self, symbol: Sym, expr: Expr) -> None:
        if isinstance(expr, Sym):
            if symbol.rigid:
                symbol, expr = expr, symbol
            expr.slack = expr.slack and symbol.slack
            symbol.bound = expr
            return
        if any(leaf is symbol for leaf in leaves(expr)):  # only where empty axes are about
            self.freeze(expr)
            return
        if symbol.rigid:
            self.freeze(expr)
        symbol.bound = expr

    def _products(self, left: list[Expr], right: list[Expr]) -> None:
        """Peel equal or dividing factors off the left end, then off the right end."""
        for end in (0, -1):
            while left and right:
                a, b = left[end], right[end]
                if a.size == b.size:
                    left.pop(end)
                    right.pop(end)
                    self.unify(a, b)
                elif b.size and a.size % b.size == 0:
                    right.pop(end)
                    left[end] = self._divide(a, b, end)
                elif a.size and b.size % a.size == 0:
                    left.pop(end)
                    right[end] = self._divide(b, a, end)
                else:
                    break
        if left or right:
            self.tie(product(left), product(right))

    def _divide(self, whole: Expr, factor: Expr, end: int) -> Expr:
        rest = self.fresh(whole.size // factor.size)
        self.unify(whole, product((factor, rest) if end == 0 else (rest, factor)))
        return rest

    def _sums(self, left: list[Expr], right: list[Expr]) -> None:
        """Peel segments off the left end, splitting the longer one."""
        while left and right:
            a, b = left[0], right[0]
            if a.size == b.size:
                left.pop(0)
                right.pop(0)
                self.unify(a, b)
                continue
            longer, shorter = (left, right) if a.size > b.size else (right, left)
            segments = self._cut(longer[0], shorter[0].size)
            if segments is None:
                break
            longer[0:1] = segments
        if left or right:
            self.tie(total(left), total(right))

    def _cut(self, expr: Expr, size: int) -> tuple[Expr, Expr] | None:
        """Split a segment in two, the first of `size`; ``None`` where its factors do not allow."""
        if isinstance(expr, Prod):
            rest = product(expr.parts[1:])
            if size % rest.size:
                return None
            first = self._cut(normal(expr.parts[0]), size // rest.size)
            return first and (product((first[0], rest)), product((first[1], rest)))
        head, tail = self.fresh(size), self.fresh(expr.size - size)
        self.unify(expr, total((head, tail)))
        return head, tail

    def _distribute(self, whole: Prod, segments: Sum) -> None:
        """``f*rest = s1 + s2``: split the first factor when every segment is divisible."""
        rest = product(whole.parts[1:])
        self.distributed = True
        if self.loose or any(part.size % rest.size for part in segments.parts):
            self.tie(whole, segments)
            return
        parts = [self.fresh(part.size // rest.size) for part in segments.parts]
        self.unify(whole.parts[0], total(parts))
        for part, segment in zip(parts, segments.parts, strict=True):
            self.unify(product((part, rest)), segment)

    def tie(self, left: Expr, right: Expr) -> None:
        """Only the sizes stay equal."""
        if normal(left) is not normal(right):
            self.constraints.append(Same(left, right, self.node))


def sizes(axes: Sequence[Expr]) -> tuple[int, ...]:
    return tuple(axis.size for axis in axes)
