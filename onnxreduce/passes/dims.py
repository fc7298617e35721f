"""Shrink every axis of every stored tensor to the smallest size that shows the bug.

The sizes that are free, and what follows from them, come from `onnxreduce.dims`; here is the
search over them. Nearly all bugs need nearly nothing, so everything goes to its least size at
once; halving over the classes finds those that the bug needs, and for each of these the smallest
size is galloped up to, from below. Sizes that cannot be cost no question: the plan says so.
Least sizes are properties of the bug, so a result with a 65 in it means that 64 does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod as multiply

from onnxreduce.case import Case
from onnxreduce.dims import Analysis, AxisClass, Change, Resize, analyse
from onnxreduce.dims.classes import Anchor
from onnxreduce.dims.factors import Band, between, exactly, highest, lowest, middle
from onnxreduce.dims.sizes import PARITY, STRIDED, Sizes, descend, smallest
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict, Proposals

NAME = "dims"
RECORDS = True

LOOK_AHEAD = 64
"""How many sizes in a row may be impossible before a class is left as it is."""
FEW = 8
"""Up to this size every single index is tried."""
GROUPS = 8
"""How many products of classes are looked at."""
PAIRS = 6
"""Up to this many classes, every pair is scaled together."""

Outcome = frozenset[tuple[int, int, tuple[int, ...]]]
Strategy = Callable[[int, int, Sequence[int]], Sizes]
Step = Generator[Resize, Case | None, bool]
"""A part of the search: returns whether anything was accepted."""


def edits(case: Case) -> Proposals:
    """Sizes to a fixpoint, kernels and pads included, then which indices."""
    search = _Search(case)
    plain = yield from search.everything(_plain)
    kernels = yield from search.everything(_kernel)
    # Where nothing could go at once, an earlier round has been here: steps down prove it cheaply.
    strategy = smallest if plain or kernels else descend
    if strategy is smallest:
        yield from search.products()
    joint: Strategy = smallest
    while True:
        again = yield from search.each(strategy)
        if not again:
            again = yield from search.together(joint)
            joint = descend
        strategy = descend
        if not again:
            again = yield from search.indices()
        if not again:
            return


def _plain(entry: AxisClass) -> bool:
    return not entry.kernel


def _kernel(entry: AxisClass) -> bool:
    return entry.kernel


@dataclass
class _Span:
    """Classes whose product is looked for between one that is refused and one that works."""

    group: list[AxisClass]
    low: int
    high: int


class _Search:
    """The current case and what was already refused for it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.refused: set[Outcome] = set()

    @property
    def analysis(self) -> Analysis:
        return analyse(self.case, loose=True)

    def resize(self, changes: Iterable[Change]) -> Resize:
        """Loose: that groups add up over a concatenation would stand in the way of exact sizes."""
        return Resize(tuple(changes), loose=True)

    def classes(self) -> list[AxisClass]:
        return list(self.analysis.classes.values())

    def ask(self, edit: Resize) -> Step:
        outcome = self._outcome(edit)
        if outcome is None or outcome in self.refused:
            return False
        answer = yield edit
        if answer is None:
            self.refused.add(outcome)
            return False
        self.case = answer
        self.refused.clear()
        return True

    def _outcome(self, edit: Resize) -> Outcome | None:
        """What an edit comes to, whatever its words; ``None`` where there is no plan, or nothing
        would get smaller."""
        try:
            plan, chosen = edit.plan(self.analysis)
        except Conflict:
            return None
        changed = plan.changed()
        if not changed or self._weight(plan) >= self._weight(Plan({})):
            return None
        kept = {symbol: tuple(chosen.get(symbol, ())) for symbol in changed}
        return frozenset((symbol.serial, changed[symbol], kept[symbol]) for symbol in changed)

    def _weight(self, plan: Plan) -> tuple[int, int]:
        """Stored elements, then the sum of the free sizes (kernels that nothing stores)."""
        return (
            self.analysis.elements(plan),
            sum(plan.size(symbol) for symbol in self.analysis.classes),
        )

    # --- all at once, then by halves -----------------------------------------------------------

    def everything(self, which: Callable[[AxisClass], bool]) -> Step:
        """All classes to their least; where that fails, halves of them, the largest first."""
        anchors = [entry.anchor for entry in self.classes() if which(entry)]
        if not anchors:
            return False
        if (yield from self.to_least(anchors)):
            return True
        return (yield from self._halves(anchors))

    def _halves(self, anchors: Sequence[Anchor]) -> Step:
        """`anchors` together were refused: shrink what can be shrunk of either half.

        Small ones first: what a bug counts is often a product (groups times channels), and a
        large factor alone can come to any number below it.
        """
        if len(anchors) < 2:
            return False
        large, small = anchors[: len(anchors) // 2], anchors[len(anchors) // 2 :]
        some = yield from self.to_least(small)
        if some:  # then the fault lies with the other half
            yield from self._halves(large)
            return True
        some = yield from self._halves(small)
        if (yield from self.to_least(large)):
            return True
        return (yield from self._halves(large)) or some

    def to_least(self, anchors: Iterable[Anchor]) -> Step:
        edit = self._least_edit(anchors)
        return edit is not None and (yield from self.ask(edit))

    def _least_edit(self, anchors: Iterable[Anchor]) -> Resize | None:
        """Least sizes that go together. Window classes are scanned: a strided axis that meets a
        skip connection, or a kernel without pads, has a least size above one."""
        present = [entry for entry in map(self._entry, anchors) if entry is not None]
        if not present:
            return None
        sizes = {entry.anchor: entry.least for entry in present}
        if not self._feasible(sizes):
            for entry in present:
                if entry.windowed:
                    sizes[entry.anchor] = self._floor(entry)
        if not self._feasible(sizes):
            sizes = self._greedy(present, sizes)
        changes = tuple(Change(anchor, size, soft=True) for anchor, size in sizes.items())
        return self.resize(changes) if changes else None

    def _greedy(self, present: Sequence[AxisClass], sizes: dict[Anchor, int]) -> dict[Anchor, int]:
        chosen: dict[Anchor, int] = {}
        for entry in present:
            attempt = {**chosen, entry.anchor: sizes[entry.anchor]}
            if self._feasible(attempt):
                chosen = attempt
        return chosen

    def _feasible(self, sizes: dict[Anchor, int]) -> bool:
        edit = self.resize(Change(anchor, size, soft=True) for anchor, size in sizes.items())
        try:
            edit.plan(self.analysis)
        except Conflict:
            return False
        return True

    def _floor(self, entry: AxisClass) -> int:
        """The least size that is possible while the others stay."""
        for size in range(entry.least, entry.size):
            if self._possible(entry, size):
                return size
        return entry.size

    def _possible(self, entry: AxisClass, size: int) -> bool:
        try:
            self.analysis.plan({entry.symbol: size})
        except Conflict:
            return False
        return True

    def _entry(self, anchor: Anchor) -> AxisClass | None:
        try:
            return self.analysis.classes[self.analysis.find(anchor)]
        except Conflict:
            return None

    # --- one by one ------------------------------------------------------------------------------

    def each(self, strategy: Strategy) -> Step:
        """The smallest size of every class, the largest first."""
        some = False
        for anchor in [entry.anchor for entry in self.classes()]:
            entry = self._entry(anchor)
            if entry is not None:
                steps = STRIDED if entry.windowed else PARITY
                some = (
                    yield from self._one(entry, strategy(entry.least, entry.size, steps))
                ) or some
        return some

    def _one(self, entry: AxisClass, sizes: Sizes) -> Step:
        """Impossible sizes are read as the next possible one."""
        some, asked = False, {entry.size: True}
        try:
            size = next(sizes)
            while True:
                target = self._next_possible(entry, size, min(s for s, ok in asked.items() if ok))
                if target not in asked:
                    edit = self.resize([_spread(entry, target)])
                    asked[target] = yield from self.ask(edit)
                    if asked[target]:
                        some = True
                        current = self._entry(entry.anchor)
                        if current is None or current.size != target:
                            return True
                        entry = current
                size = sizes.send(asked[target])
        except StopIteration:
            return some

    def _next_possible(self, entry: AxisClass, size: int, known: int) -> int:
        for target in range(size, min(known, size + LOOK_AHEAD)):
            if self._possible(entry, target):
                return target
        return known

    # --- what the bug counts ---------------------------------------------------------------------

    def products(self) -> Step:
        """The smallest product of classes that are flattened into one axis, or make up an input:
        sizes that are found one by one stop at a multiple of those before."""
        some = False
        for group in [tuple(c.anchor for c in g) for g in self.analysis.products[:GROUPS]]:
            entries = [entry for entry in map(self._entry, group) if entry is not None]
            if len(entries) == len(group):
                some = (yield from self._product(entries)) or some
        return some

    def _product(self, group: Sequence[AxisClass]) -> Step:
        """The smallest product of some classes that works.

        Thresholds are round numbers more often than not, so powers of two come first, each with
        its neighbour; what is left between a refused and an accepted product is halved.
        """
        caps = [entry.size for entry in group]
        whole = multiply(caps)
        # Without one of the classes it was refused.
        span = _Span(list(group), low=max(whole // cap for cap in caps), high=whole)
        power = 1 << span.low.bit_length()
        while power < span.high:
            works = yield from self._within(span, exactly(power))
            if works:
                yield from self._within(span, highest)
                break
            if works is False:
                yield from self._within(span, lowest)
            power *= 2
        while (yield from self._within(span, middle)) is not None:
            pass
        return span.high < whole

    def _within(self, span: _Span, band: Band) -> Generator[Resize, Case | None, bool | None]:
        """Ask about one product; ``None``: none in this band makes a plan."""
        caps = [entry.size for entry in span.group]
        for split in islice(between(span.low, span.high, caps, band), LOOK_AHEAD):
            pairs = zip(span.group, split, strict=True)
            edit = self.resize(Change(entry.anchor, size) for entry, size in pairs)
            if self._outcome(edit) is None:
                continue
            if not (yield from self.ask(edit)):
                span.low = multiply(split)
                return False
            span.high = multiply(split)
            span.group = [e for old in span.group if (e := self._entry(old.anchor)) is not None]
            return True
        return None

    # --- classes that the bug ties ---------------------------------------------------------------

    def together(self, strategy: Strategy) -> Step:
        """Scale several classes at once: a bug that needs ``a == b`` or ``a == 2b`` holds each of
        them where it is."""
        left = [entry for entry in self.classes() if entry.size > 1]
        groups: list[list[AxisClass]] = [left] if len(left) > 1 else []
        for size in sorted({entry.size for entry in left}, reverse=True):
            equal = [entry for entry in left if entry.size == size]
            if 1 < len(equal) < len(left):
                groups.append(equal)
        if 2 < len(left) <= PAIRS:
            groups += [[a, b] for i, a in enumerate(left) for b in left[i + 1 :]]
        for group in groups:
            if (yield from self._scale(group, strategy)):
                return True
        return False

    def _scale(self, group: Sequence[AxisClass], strategy: Strategy) -> Step:
        whole = {entry.anchor: entry.size for entry in group}
        least = min(whole.values())
        some = False
        sizes = strategy(1, least, PARITY)
        try:
            size = next(sizes)
            while True:
                current = [entry for anchor in whole if (entry := self._entry(anchor)) is not None]
                edit = self.resize(
                    _spread(entry, max(1, whole[entry.anchor] * size // least))
                    for entry in current
                    if entry.anchor in whole
                )
                works = yield from self.ask(edit)
                some = some or works
                size = sizes.send(works)
        except StopIteration:
            return some

    # --- which indices ---------------------------------------------------------------------------

    def indices(self) -> Step:
        """A size is the shortest row of indices *that was asked about*; others may do with fewer.

        A bug in the values at some index lets the last one stay alone, or others go; one in the
        size lets none go, and costs four questions at most (any single one is as good as any
        other then), not one for each index. Classes of one size may be tied by the bug, and are
        then thinned out together.
        """
        some = False
        for anchors in self._tied():
            size = self._size(anchors)
            if size < 2:
                continue
            if (yield from self._keep(anchors, [size - 1])):
                some = True
                continue
            for kept in _probes(size):
                if (yield from self._keep(anchors, kept)):
                    some = True
                    yield from self._sweep(anchors)
                    break
        return some

    def _tied(self) -> list[list[Anchor]]:
        """Classes one by one, then those of equal size."""
        usable = [entry for entry in self.classes() if entry.elements and not entry.kernel]
        equal: dict[int, list[Anchor]] = {}
        for entry in usable:
            equal.setdefault(entry.size, []).append(entry.anchor)
        return [[entry.anchor] for entry in usable] + [g for g in equal.values() if len(g) > 1]

    def _sweep(self, anchors: Sequence[Anchor]) -> Step:
        """Halves, quarters and so on down to single indices."""
        chunk, some = self._size(anchors) // 2, False
        while chunk:
            start = 0
            while start < (size := self._size(anchors)) and size > 1:
                kept = [i for i in range(size) if not start <= i < start + chunk]
                if kept and (yield from self._keep(anchors, kept)):
                    some = True
                else:
                    start += chunk
            chunk = min(chunk, self._size(anchors)) // 2
        return some

    def _size(self, anchors: Sequence[Anchor]) -> int:
        """The size that all of these have, or one."""
        entries = [self._entry(anchor) for anchor in anchors]
        sizes = {1 if entry is None else entry.size for entry in entries}
        return sizes.pop() if len(sizes) == 1 else 1

    def _keep(self, anchors: Sequence[Anchor], kept: Sequence[int]) -> Step:
        changes = [Change(anchor, len(kept), tuple(kept)) for anchor in anchors]
        return (yield from self.ask(self.resize(changes)))


def _spread(entry: AxisClass, size: int) -> Change:
    """Some indices of a class, the first and the last among them: neighbours are often alike.
    Positions in an image stay neighbours."""
    if entry.windowed or entry.kernel or not entry.elements or not 1 < size < entry.size:
        return Change(entry.anchor, size)
    kept = tuple(i * (entry.size - 1) // (size - 1) for i in range(size))
    return Change(entry.anchor, size, kept)


def _probes(size: int) -> list[list[int]]:
    """The first gone, the middle gone, the later half; every single one gone when they are few."""
    every = list(range(size))
    if size <= FEW:
        return [every[:i] + every[i + 1 :] for i in range(size - 1)]
    return [every[1:], [every[0], *every[size // 2 :]], every[size // 2 :]]
