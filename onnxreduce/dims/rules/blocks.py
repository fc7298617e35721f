"""Operators that move blocks of channels to and from space, and Einsum."""

from __future__ import annotations

from onnxreduce.dims.expr import UNIT, Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly


@rule("DepthToSpace")
def depth_to_space(n: Site) -> None:
    batch, channels, height, width = n.ax(0)
    b = n.number("blocksize")
    down, right, rest = n.rigid(b), n.rigid(b), n.fresh(channels.size // (b * b))
    if n.text("mode", "DCR") == "CRD":
        n.unify(channels, product((rest, down, right)))
    else:
        n.unify(channels, product((down, right, rest)))
    n.out((batch, rest, product((height, down)), product((width, right))))


@rule("SpaceToDepth")
def space_to_depth(n: Site) -> None:
    batch, channels, height, width = n.ax(0)
    b = n.number("blocksize")
    down, right = n.rigid(b), n.rigid(b)
    rows, columns = n.fresh(height.size // b), n.fresh(width.size // b)
    n.unify(height, product((rows, down)))
    n.unify(width, product((columns, right)))
    n.out((batch, product((down, right, channels)), rows, columns))


@rule("Einsum")
def einsum(n: Site) -> None:
    """One expression a letter."""
    equation = n.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    letters: dict[str, Expr] = {}
    dots: list[tuple[Expr, ...]] = []
    for i, term in enumerate(left.split(",")):
        axes = list(n.ax(i))
        head, ellipsis, tail = term.partition("...")
        middle = axes[len(head) : len(axes) - len(tail)]
        if ellipsis:
            dots.append(tuple(middle))
        elif middle or len(head) != len(axes):
            raise Unruly("the equation does not fit the inputs")
        named = [*zip(head, axes, strict=False)]
        named += zip(tail, axes[len(axes) - len(tail) :], strict=True)
        for letter, axis in named:
            known = letters.setdefault(letter, axis)
            if known.size == 1:
                letters[letter] = axis
            elif axis.size != 1:
                n.unify(known, axis)
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        right = ("..." if dots else "") + "".join(once)
    spread = n.spread(dots)
    out: list[Expr] = []
    head, ellipsis, tail = right.partition("...")
    out += [letters.get(letter, UNIT) for letter in head]
    if ellipsis:
        out += spread
    out += [letters.get(letter, UNIT) for letter in tail]
    n.out(out)
