"""Which indices of an axis the bug needs, once it is known how many."""

from __future__ import annotations

from collections.abc import Sequence

from onnxreduce.dims import Change
from onnxreduce.dims.classes import Anchor
from onnxreduce.passes._resizing import Search, Step

FEW = 8
"""Up to this size every single index is tried."""


def indices(search: Search) -> Step:
    """A size is the shortest row of indices *that was asked about*; others may do with fewer.

    A bug in the values at some index lets the last one stay alone, or others go; one in the
    size lets none go, and costs four questions at most (any single one is as good as any
    other then), not one for each index. Classes of one size may be tied by the bug, and are
    then thinned out together.
    """
    some = False
    for anchors in _tied(search):
        size = _size(search, anchors)
        if size < 2:
            continue
        if (yield from _keep(search, anchors, [size - 1])):
            some = True
            continue
        for kept in _probes(size):
            if (yield from _keep(search, anchors, kept)):
                some = True
                yield from _sweep(search, anchors)
                break
    return some


def _tied(search: Search) -> list[list[Anchor]]:
    """Classes one by one, then those of equal size."""
    usable = [entry for entry in search.classes() if entry.elements and not entry.kernel]
    equal: dict[int, list[Anchor]] = {}
    for entry in usable:
        equal.setdefault(entry.size, []).append(entry.anchor)
    return [[entry.anchor] for entry in usable] + [g for g in equal.values() if len(g) > 1]


def _sweep(search: Search, anchors: Sequence[Anchor]) -> Step:
    """Halves, quarters and so on down to single indices."""
    chunk, some = _size(search, anchors) // 2, False
    while chunk:
        start = 0
        while start < (size := _size(search, anchors)) and size > 1:
            kept = [i for i in range(size) if not start <= i < start + chunk]
            if kept and (yield from _keep(search, anchors, kept)):
                some = True
            else:
                start += chunk
        chunk = min(chunk, _size(search, anchors)) // 2
    return some


def _size(search: Search, anchors: Sequence[Anchor]) -> int:
    """The size that all of these have, or one."""
    entries = [search.entry(anchor) for anchor in anchors]
    sizes = {1 if entry is None else entry.size for entry in entries}
    return sizes.pop() if len(sizes) == 1 else 1


def _keep(search: Search, anchors: Sequence[Anchor], kept: Sequence[int]) -> Step:
    changes = [Change(anchor, len(kept), tuple(kept)) for anchor in anchors]
    return (yield from search.ask(search.resize(changes)))


def _probes(size: int) -> list[list[int]]:
    """The first gone, the middle gone, the later half; every single one gone when they are few."""
    every = list(range(size))
    if size <= FEW:
        return [every[:i] + every[i + 1 :] for i in range(size - 1)]
    return [every[1:], [every[0], *every[size // 2 :]], every[size // 2 :]]
