"""All classes of axes to their least sizes at once; where that fails, all but those needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from onnxreduce.dims import AxisClass, Change, Resize
from onnxreduce.dims.classes import Anchor, prices
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict
from onnxreduce.passes._resizing import Search, Step


def everything(search: Search, which: Callable[[AxisClass], bool]) -> Step:
    """All classes to their least; where that fails, halves of them, the dearest first."""
    anchors = [entry.anchor for entry in search.classes() if which(entry)]
    if not anchors:
        return False
    if (yield from _to_least(search, anchors)):
        return True
    return (yield from _halves(search, _cheapest_first(search, anchors)))


def _cheapest_first(search: Search, anchors: Sequence[Anchor]) -> list[Anchor]:
    """By the elements that one more index costs when all else is at its least.
    Of equal ones the larger is worth more: as a factor it comes to more numbers."""
    edit, analysis = _least_edit(search, anchors), search.analysis
    plan = Plan({}) if edit is None else edit.plan(analysis)[0]
    costs = prices(analysis, plan)
    entries = [entry for entry in map(search.entry, anchors) if entry is not None]
    entries.sort(key=lambda entry: (costs.get(entry.symbol, 0), -entry.size))
    return [entry.anchor for entry in entries]


def _halves(search: Search, anchors: Sequence[Anchor]) -> Step:
    """`anchors` together were refused: shrink what can be shrunk of either half.

    Dear ones first: often any of several classes will do, and what stays is what was tried last.
    """
    if len(anchors) < 2:
        return False
    cheap, dear = anchors[: len(anchors) // 2], anchors[len(anchors) // 2 :]
    some = yield from _to_least(search, dear)
    if some:  # then the fault lies with the other half
        yield from _halves(search, cheap)
        return True
    some = yield from _halves(search, dear)
    if (yield from _to_least(search, cheap)):
        return True
    return (yield from _halves(search, cheap)) or some


def _to_least(search: Search, anchors: Iterable[Anchor]) -> Step:
    edit = _least_edit(search, anchors)
    return edit is not None and (yield from search.ask(edit))


def _least_edit(search: Search, anchors: Iterable[Anchor]) -> Resize | None:
    """Least sizes that go together. Window classes are scanned: a strided axis that meets a
    skip connection, or a kernel without pads, has a least size above one."""
    present = [entry for entry in map(search.entry, anchors) if entry is not None]
    if not present:
        return None
    sizes = {entry.anchor: entry.least for entry in present}
    if not _feasible(search, sizes):
        for entry in present:
            if entry.windowed:
                sizes[entry.anchor] = _floor(search, entry)
    if not _feasible(search, sizes):
        sizes = _greedy(search, present, sizes)
    changes = tuple(Change(anchor, size, soft=True) for anchor, size in sizes.items())
    return search.resize(changes) if changes else None


def _greedy(
    search: Search, present: Sequence[AxisClass], sizes: dict[Anchor, int]
) -> dict[Anchor, int]:
    chosen: dict[Anchor, int] = {}
    for entry in present:
        attempt = {**chosen, entry.anchor: sizes[entry.anchor]}
        if _feasible(search, attempt):
            chosen = attempt
    return chosen


def _feasible(search: Search, sizes: dict[Anchor, int]) -> bool:
    edit = search.resize(Change(anchor, size, soft=True) for anchor, size in sizes.items())
    try:
        edit.plan(search.analysis)
    except Conflict:
        return False
    return True


def _floor(search: Search, entry: AxisClass) -> int:
    """The least size that is possible while the others stay."""
    for size in range(entry.least, entry.size):
        if search.possible(entry, size):
            return size
    return entry.size
