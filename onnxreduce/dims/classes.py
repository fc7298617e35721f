"""What can shrink: the symbols that are free after an analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod as multiply
from typing import TYPE_CHECKING, Any

from onnxreduce.dims.expr import Axes, Expr, Prod, Sum, Sym, leaves
from onnxreduce.dims.solve import Plan, System, order

if TYPE_CHECKING:
    from onnxreduce.dims.analysis import Analysis

Anchor = tuple[Any, ...]
"""A name of a class that survives other edits: ``("axis", value, axis, factor)``,
``("attribute", node, attribute, index)`` or ``("literal", value, index)``."""


@dataclass(frozen=True)
class AxisClass:
    """Axes that shrink together.

    Attributes:
        symbol: valid for this analysis only; `anchor` is what lasts.
        size: now.
        least: one, or zero for a piece that may vanish.
        anchors: every stored tensor axis, attribute or literal that it appears on, never empty.
        elements: how many stored elements lie along it.
        windowed: whether the size of a windowed (strided, padded, resized) axis depends on it.
        kernel: whether it is the extent of a sliding window.
    """

    symbol: Sym
    size: int
    least: int
    anchors: tuple[Anchor, ...]
    elements: int
    windowed: bool
    kernel: bool

    @property
    def anchor(self) -> Anchor:
        return self.anchors[0]


def find_classes(analysis: Analysis) -> dict[Sym, AxisClass]:
    """The free symbols, the largest first."""
    anchors: dict[Sym, list[Anchor]] = {}
    whole: dict[Sym, list[Anchor]] = {}
    elements: dict[Sym, int] = {}
    for name, root in analysis.roots.items():
        for at, axis in enumerate(analysis.axes[name] or ()):
            found = list(leaves(axis))
            for factor, leaf in enumerate(found):
                # The symbol of a whole axis keeps its name when other classes vanish.
                names = whole if len(found) == 1 else anchors
                names.setdefault(leaf, []).append(("axis", name, at, factor))
                elements[leaf] = elements.get(leaf, 0) + root.count
    for anchor, expr in analysis.anchors.items():
        for leaf in leaves(expr):
            anchors.setdefault(leaf, []).append(anchor)
    windowed = {leaf for equation in analysis.system.driven for leaf in equation.reads}
    kernels = {leaf for kernel in analysis.kernels for leaf in leaves(kernel)}
    return {
        leaf: AxisClass(
            leaf,
            leaf.size,
            0 if leaf in analysis.system.vanishing else 1,
            (*whole.get(leaf, ()), *anchors.get(leaf, ())),
            elements.get(leaf, 0),
            leaf in windowed,
            leaf in kernels,
        )
        for leaf in order({**whole, **anchors})
        if not leaf.rigid and leaf not in analysis.system.followers
    }


def find_products(analysis: Analysis) -> list[tuple[AxisClass, ...]]:
    """Classes that make up one axis together (flattened images), or one graph input: what a
    bug may count is their product. The largest products first."""
    found: dict[frozenset[Sym], tuple[AxisClass, ...]] = {}
    shapes = [
        analysis.axes[name] or () for name, root in analysis.roots.items() if root.kind == "input"
    ]
    merged = [(axis,) for axes in analysis.axes.values() for axis in axes or ()]
    for axes in (*merged, *shapes):
        symbols = {leaf for axis in axes for leaf in leaves(axis) if leaf.size > 1}
        free = [analysis.classes[symbol] for symbol in order(symbols) if symbol in analysis.classes]
        if len(free) > 1 and not any(isinstance(axis, Sum) for axis in axes):
            found.setdefault(frozenset(symbols), tuple(free))
    return sorted(found.values(), key=lambda group: -multiply([c.size for c in group]))


def prices(analysis: Analysis, plan: Plan) -> Counter[Sym]:
    """How many more elements are stored, under a plan, for one more index of each symbol."""
    found: Counter[Sym] = Counter()
    for name in analysis.roots:
        axes = analysis.axes[name] or ()
        _add_prices(Prod(axes), 1, plan, found)
    return found


def _add_prices(expr: Expr, price: int, plan: Plan, found: Counter[Sym]) -> None:
    if isinstance(expr, Sym):
        found[expr] += price
    elif isinstance(expr, Sum):
        for part in expr.parts:
            _add_prices(part, price, plan, found)
    else:
        sizes = [plan.size(part) for part in expr.parts]
        for at, part in enumerate(expr.parts):
            _add_prices(part, price * multiply(sizes[:at] + sizes[at + 1 :]), plan, found)


def find_vanishing(system: System, values: Iterable[Axes | None]) -> None:
    """Pieces that appear in sums alone may vanish, as long as the whole does not."""
    distinct = {id(axis): axis for axes in values for axis in axes or ()}
    solid: set[Sym] = set()
    pieces: set[Sym] = set()
    for axis in distinct.values():
        _sort_pieces(axis, solid, pieces)
    vanishing = frozenset(leaf for leaf in pieces - solid if leaf.slack and not leaf.rigid)
    system.vanishing = vanishing
    system.filled = tuple(
        axis for axis in distinct.values() if any(leaf in vanishing for leaf in leaves(axis))
    )


def _sort_pieces(expr: Expr, solid: set[Sym], pieces: set[Sym]) -> None:
    if isinstance(expr, Sym):
        solid.add(expr)
    elif isinstance(expr, Sum):
        pieces.update(leaves(expr))
    else:
        for part in expr.parts:
            _sort_pieces(part, solid, pieces)
