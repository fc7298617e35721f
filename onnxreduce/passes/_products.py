"""The smallest product of sizes: what a bug counts is often a number of elements.

Found one by one, sizes stop at a multiple of those before: 64x7x5 comes to 1044 = 58*6*3 where
1032 = 43*6*4 shows a bug in more than 1030 elements. Nor can one product be reached from the next
larger one, since no axis grows again. So each candidate is cut from the case with which the search
began, and has any factors that these sizes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import prod as multiply

from onnxreduce.case import Case
from onnxreduce.dims import AxisClass, Change, analyse
from onnxreduce.dims.factors import Factors
from onnxreduce.dims.sizes import Sizes
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict
from onnxreduce.passes._resizing import Search, Step

Strategy = Callable[[int, int], Sizes]
"""Of a product that is refused and one that works."""

NEAR = 16
"""How many smaller products are kept within reach."""

_Way = tuple[int, int, tuple[int, ...]]
"""Stored elements that it leaves; its place, so that no two are equal; the sizes of the classes."""

GROUPS = 8
"""How many products of classes are looked at."""
LOOK_AHEAD = 64
"""How many products in a row may be impossible, and in how many ways each is made."""


def products(search: Search, origin: Case, strategy: Strategy) -> Step:
    """The smallest product of classes that are flattened into one axis, or make up an input, of
    which the bug needs two or more."""
    some = False
    for group in analyse(origin, search.loose).products[:GROUPS]:
        some = (yield from _Product(search, origin, group).run(strategy)) or some
    return some


class _Product:
    """The search over one group of classes of the case in the beginning."""

    def __init__(self, search: Search, origin: Case, group: Sequence[AxisClass]) -> None:
        self.search = search
        self.origin = origin
        self.analysis = analyse(origin, search.loose)
        self.group = group
        self.factors = Factors([entry.size for entry in group])
        chosen = {entry.symbol for entry in group}
        self.rest = {
            symbol: self._now(entry)
            for symbol, entry in self.analysis.classes.items()
            if symbol not in chosen
        }
        self._ways: dict[int, list[_Way]] = {}

    def run(self, strategy: Strategy) -> Step:
        now = [size for entry in self.group if (size := self._now(entry)) > 1]
        if len(now) < 2:
            return False
        whole = multiply(now)
        # Without any one of the classes it was refused.
        low = max(whole // size for size in now)
        sizes, asked, some = strategy(low, whole), {whole: True}, False
        postponed: list[int] = []
        try:
            size = next(sizes)
            while True:
                known = min(product for product, works in asked.items() if works)
                target, way = self._next(size, known)
                if way is not None and target not in asked:
                    low = max([low, *(product for product, works in asked.items() if not works)])
                    if self._bars(way, range(low + 1, target)):
                        asked[target] = True
                        postponed.append(target)
                    else:
                        asked[target] = yield from self._ask(way)
                        some = some or asked[target]
                size = sizes.send(asked[target])
        except StopIteration:
            pass
        least = min(product for product in asked if asked[product] and product not in postponed)
        targets = [product for product in sorted(postponed) if product < least]
        return (yield from self._finish([*targets, least])) or some

    def _finish(self, targets: Iterable[int]) -> Step:
        """The smallest product by the lightest way; first those that were taken for granted."""
        for target in targets:
            way = self._made(target, min)
            if way is not None and (yield from self._ask(way)):
                return True
        return False

    def _ask(self, way: _Way) -> Step:
        exact = zip(self.group, way[-1], strict=True)
        changes = [Change(entry.anchor, size) for entry, size in exact]
        for symbol, size in self.rest.items():
            changes.append(Change(self.analysis.classes[symbol].anchor, size, soft=True))
        works = yield from self.search.ask(self.search.resize(changes, since=self.origin))
        if works:
            self._ways.clear()  # the bar is higher now
        return works

    def _bars(self, way: _Way, open_products: range) -> bool:
        """Whether a smaller product could no longer be made, since a candidate must be lighter
        than what it comes from: after 21*7*7 = 1029 there is no way to the heavier 41*5*5."""
        for _ in range(NEAR):
            product = self.factors.at_least(open_products.start)
            if product is None or product not in open_products:
                return False
            lightest = self._made(product, min)
            if lightest is not None and lightest[0] >= way[0]:
                return True
            open_products = range(product + 1, open_products.stop)
        return False

    def _next(self, size: int, known: int) -> tuple[int, _Way | None]:
        """The smallest product from `size` on that can be, below `known`."""
        for _ in range(LOOK_AHEAD):
            target = self.factors.at_least(size)
            if target is None or target >= known:
                break
            way = self._made(target, max)
            if way is not None:
                return target, way
            size = target + 1
        return known, None

    def _made(self, product: int, choose: Callable[[Iterable[_Way]], _Way]) -> _Way | None:
        """One way to make a product, with fewer stored elements than there are now.

        On the way to the smallest product it is the heaviest, which leaves most ways open.
        """
        if product not in self._ways:
            self._ways[product] = list(self._lighter(product))
        ways = self._ways[product]
        return choose(ways) if ways else None

    def _lighter(self, product: int) -> Iterator[_Way]:
        symbols = [entry.symbol for entry in self.group]
        now = self.search.analysis.elements(Plan({}))
        for at, split in enumerate(islice(self.factors.splits(product), LOOK_AHEAD)):
            try:
                plan = self.analysis.plan(dict(zip(symbols, split, strict=True)), self.rest)
            except Conflict:
                continue
            elements = self.analysis.elements(plan)
            if elements < now and plan.changed():
                yield elements, at, tuple(split)

    def _now(self, entry: AxisClass) -> int:
        """The size, in the current case, of a class of the first."""
        current = self.search.analysis
        for kind, name, at, _ in (anchor for anchor in entry.anchors if len(anchor) == 4):
            axes = self.analysis.axes.get(name) if kind == "axis" else None
            root = current.roots.get(name)
            if axes is None or axes[at] is not entry.symbol or root is None or root.shape is None:
                continue
            return root.shape[at]
        found = self.search.entry(entry.anchor)
        return entry.least if found is None else found.size
