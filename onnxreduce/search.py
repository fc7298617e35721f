"""Search strategies: which subsets of a list of items to try, and in what order.

Pure: a strategy sees opaque items, in an order in which what belongs together is close together,
and a function that turns a set of items into a question (an edit, for the reducer; a set of
integers, in the tests). It is a generator: it yields a question and is sent a truthy answer when
the proposal was accepted, ``None`` otherwise; its return value is the list of the items left.

Two kinds of strategy work together. The *guessing* ones (`window`, `islands`, `guess`) hold a
belief about which items are needed, given by a prior and the answers so far, and ask the question
whose answer is most open: generalised binary search (Dasgupta, "Analysis of a greedy active
learning strategy", NIPS 2004), the idea behind probabilistic delta debugging (Wang et al.,
ESEC/FSE 2021) with a prior that knows that needed items cluster. They assume that a set holding
everything needed is interesting. The *sweeping* ones (`sweep`, `chunks`, `halving`) assume nothing
and prove 1-minimality. A wrong belief costs questions, never correctness: only what was accepted
is ever built upon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, combinations
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=Hashable)
Q = TypeVar("Q")

Strategy = Generator[Q, Any, list[T]]

TICKS = 32
"""Into how many places a window's ends are resolved at a time: beyond that, coarse to fine."""

FAR = 0.02
"""The prior weight of needed items that are anywhere, against those that are close together."""

EDGE = 0.08
"""The prior weight of a run that touches a given end: first and last items are special."""

OPEN = 0.1
"""A guess that is less likely than this to be right is not worth a question."""

RUN = 0.15
"""A run of L consecutive items weighs ``RUN * 0.7 ** (L - 1)`` beside the groups given."""

APART = 0.2
"""The prior weight, for each item, of being needed with one that it has nothing to do with."""


# --- guessing -----------------------------------------------------------------------------------


def window(
    items: Sequence[T],
    keep: Callable[[frozenset[T]], Q],
    *,
    until: int = 1,
    weights: Mapping[T, int] | None = None,
) -> Strategy[Q, T]:
    """Narrows to the shortest run of consecutive items that is still accepted.

    The belief is over where the needed run starts and ends: runs of length L weigh ``1 / L**2``,
    with a little more for any length, and for runs at either end. Halves come first, so one item
    among n takes about ``log2 n`` questions; a run that straddles the middle is found by the same
    rule, and so are two items far apart (the run between them, in about ``2 log2 n``). Stops at
    `until` items, or when no shorter run is likely any more. Items with `weights` (1 otherwise)
    count as so many, and are found in fewer questions.
    """
    units = [max(1, (weights or {}).get(item, 1)) for item in items]
    places = list(accumulate(units, initial=0))
    prior = _Runs(places[-1])
    low, high = 0, len(items)
    refused: list[tuple[int, int]] = []
    while high - low > max(1, until):
        question = _most_open(low, high, refused, prior, places)
        if question is None:
            break
        start, end = question
        if (yield keep(frozenset(items[start:end]))):
            low, high = question
        else:
            refused.append(question)
    return list(items[low:high])


class _Runs:
    """The prior over the runs [start, end) among `count` items that may be just what is needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._within = [0.0]  # the weight of all runs within so many consecutive items
        self._from_end = [0.0]  # of all runs up to so many items that touch a given end
        for length in range(1, count + 1):
            self._from_end.append(self._from_end[-1] + length**-2 + FAR / count)
            self._within.append(self._within[-1] + self._from_end[-1])
        scale = EDGE * self._within[-1] / (self._from_end[-1] or 1.0)
        self._from_end = [scale * weight for weight in self._from_end]

    def weight(self, start: int, stop: int, first: int, last: int) -> float:
        """Of the runs that start in [start, stop) and end in (first, last]."""
        total = self._inside(last - start) - self._inside(last - stop)
        total += self._inside(first - stop) - self._inside(first - start)
        if start == 0:
            total += self._from_end[last] - self._from_end[first]
        if last == self._count:
            total += self._from_end[last - start] - self._from_end[last - stop]
        return total

    def _inside(self, length: int) -> float:
        return self._within[length] if length > 0 else 0.0


def _most_open(
    low: int, high: int, refused: Sequence[tuple[int, int]], prior: _Runs, places: Sequence[int]
) -> tuple[int, int] | None:
    """The run within [low, high) that holds the needed one with a chance nearest to a half.

    `places` are the items' boundaries in the units of the prior.
    """
    ticks = _ticks(low, high, refused, places)
    at = [places[tick] for tick in ticks]
    last = len(ticks) - 1
    # A run that ends at ticks[s] or before and starts at first[s] or after was refused.
    first = [min((i for i, j in refused if tick <= j), default=high) for tick in ticks]
    found: list[tuple[float, int, int]] = []
    below = [0.0] * (last + 1)
    for r in range(last - 1, -1, -1):
        row = [0.0] * (last + 1)
        for s in range(r + 1, last + 1):
            chance = below[s] + row[s - 1] - below[s - 1]
            if ticks[r] < first[s]:
                chance += prior.weight(at[r], at[r + 1], at[s - 1], at[s])
            row[s] = chance
            found.append((chance, ticks[r], ticks[s]))
        below = row
    total = below[last]
    worth = [
        (abs(chance / total - 0.5), start, end)
        for chance, start, end in found
        if end - start < high - low and chance > OPEN * total
    ]
    # Of about equally open questions, one that leaves an end where it is: two ends moved at once
    # are two more places to be wrong about.
    best = min(
        worth,
        key=lambda w: (round(20 * w[0]), w[1] > low and w[2] < high, round(w[0], 2), w[2] - w[1]),
        default=None,
    )
    return best[1:] if best else None


def _ticks(
    low: int, high: int, refused: Sequence[tuple[int, int]], places: Sequence[int]
) -> list[int]:
    """Places where a run may be said to start or end: evenly spread, finer towards both ends."""
    length, units = high - low, places[high] - places[low]
    ticks = {low + length * k // TICKS for k in range(TICKS + 1)}
    for k in range(TICKS):
        ticks.add(bisect_left(places, places[low] + units * k // TICKS, low, high))
    ticks.update(low + step for step in _powers(length))
    ticks.update(high - step for step in _powers(length))
    return sorted(ticks.union(place for run in refused for place in run if low <= place <= high))


def _powers(below: int) -> set[int]:
    return {1 << k for k in range(below.bit_length()) if 1 << k <= below}


def islands(
    items: Sequence[T],
    keep: Callable[[frozenset[T]], Q],
    *,
    until: int = 1,
    weights: Mapping[T, int] | None = None,
) -> Strategy[Q, T]:
    """Narrows to a window, and inside it to its two ends when they are far apart.

    Two culprits far apart leave a wide window with nothing needed between them: that is one
    question. When something is needed between, the inner window is searched with the ends kept,
    as long as that pays.
    """
    left: list[T] = []
    right: list[T] = []
    inner = yield from window(items, keep, until=until, weights=weights)
    while len(inner) > max(until, 8):
        kept = frozenset(left + right)
        for reach in (1, 4):
            short = inner[:reach] + inner[-reach:]
            if len(short) < len(inner) / 2 and (yield keep(kept | frozenset(short))):
                return left + short + right
        left, right = [*left, inner[0]], [inner[-1], *right]
        kept, before = frozenset(left + right), len(inner)
        inner = inner[1:-1]
        inner = yield from window(inner, partial(_with, keep, kept))
        if 2 * len(inner) > before:
            break
    return left + inner + right


def _with(keep: Callable[[frozenset[T]], Q], kept: frozenset[T], some: frozenset[T]) -> Q:
    return keep(some | kept)


def guess(
    items: Sequence[T],
    keep: Callable[[frozenset[T]], Q],
    groups: Mapping[frozenset[T], float],
) -> Strategy[Q, T]:
    """Narrows to one of `groups`, where the needed items are one.

    Args:
        items: a few dozen at most; the work grows with the fourth power of their number.
        keep: makes the question.
        groups: sets of items that may be just what is needed, with their prior weights: up to
            about 1 for the likeliest. Runs of consecutive items and pairs are guesses as well.
    """
    weights = _weighed(items, groups)
    sets = list(weights)
    members = _incidence(sets, items)
    inside = (members @ (1 - members.T) == 0).astype(np.float32)
    alive = np.array([weights[group] for group in sets], np.float32)
    size = members.sum(axis=1)
    askable = size < len(items)
    current = frozenset(items)
    while alive.any() and askable.any():
        chance = alive @ inside / alive.sum()
        worth = askable & (chance > OPEN)
        if not worth.any():
            break
        doubt = np.where(worth, np.round(np.abs(chance - 0.5), 2) + size / 1e6, np.inf)
        best = int(np.argmin(doubt))
        if (yield keep(sets[best])):
            current = sets[best]
            alive *= inside[:, best]
            askable &= (inside[:, best] > 0) & (size < size[best])
        else:
            alive *= 1 - inside[:, best]
            askable[best] = False
    return [item for item in items if item in current]


def _weighed(items: Sequence[T], groups: Mapping[frozenset[T], float]) -> dict[frozenset[T], float]:
    """The groups within the items, all runs, all pairs, with their weights."""
    everything = frozenset(items)
    weights = {group: weight for group, weight in groups.items() if group and group <= everything}
    for start in range(len(items)):
        for end in range(start + 1, len(items) + 1):
            run = frozenset(items[start:end])
            weights[run] = max(weights.get(run, 0.0), RUN * 0.7 ** (end - start - 1))
    for pair in combinations(items, 2):
        weights.setdefault(frozenset(pair), APART / len(items))
    return weights


def _incidence(sets: Sequence[frozenset[T]], items: Sequence[T]) -> npt.NDArray[np.float32]:
    """Which items (columns) are in which sets (rows)."""
    place = {item: k for k, item in enumerate(items)}
    matrix = np.zeros((len(sets), len(items)), np.float32)
    for row, group in enumerate(sets):
        matrix[row, [place[item] for item in group]] = 1
    return matrix


def nearest(rings: Iterable[frozenset[T]], keep: Callable[[frozenset[T]], Q]) -> Strategy[Q, T]:
    """Keeps the first of a few sets that is accepted: growing balls around a suspect, say."""
    asked: set[frozenset[T]] = set()
    for ring in rings:
        if ring and ring not in asked:
            asked.add(ring)
            if (yield keep(ring)):
                return list(ring)
    return []


# --- sweeping -----------------------------------------------------------------------------------


def sweep(
    items: Sequence[T],
    drop: Callable[[frozenset[T]], Q],
    size: int,
    *,
    all_at_once: bool = True,
    refused: set[frozenset[T]] | None = None,
) -> Strategy[Q, T]:
    """Tries to drop each chunk of `size` consecutive items once, from the last one backwards.

    With `all_at_once` false the last chunk that is left is not asked about: for callers that know
    that not everything can go. `refused` holds what was refused to be left before (sets of items)
    and is added to, so that a row of sweeps never asks the same question twice.
    """
    left = list(items)
    refused = set() if refused is None else refused
    end = len(left)
    while end > 0:
        start = max(0, end - size)
        rest = frozenset(left[:start] + left[end:])
        if (rest or all_at_once) and rest not in refused:
            if (yield drop(frozenset(left[start:end]))):
                del left[start:end]
            else:
                refused.add(rest)
        end = start
    return left


def chunks(
    items: Sequence[T],
    drop: Callable[[frozenset[T]], Q],
    sizes: Collection[int] = (4, 2, 1),
    *,
    all_at_once: bool = True,
) -> Strategy[Q, T]:
    """Sweeps with chunks of each size in turn; sizes of the whole and more are passed over."""
    left = list(items)
    refused: set[frozenset[T]] = set()
    for size in sizes:
        if size < len(left) or size == 1:
            left = yield from sweep(left, drop, size, all_at_once=all_at_once, refused=refused)
    return left


def halving(
    items: Sequence[T],
    drop: Callable[[frozenset[T]], Q],
    *,
    smallest: int = 1,
    all_at_once: bool = True,
) -> Strategy[Q, T]:
    """Everything first, then halves, quarters and so on down to chunks of `smallest`.

    One sweep a size: what the last one leaves may shrink further when it is repeated (the
    engine's next round does that).
    """
    left = list(items)
    refused: set[frozenset[T]] = set()
    size = len(left) if all_at_once else (len(left) + 1) // 2
    while left and size >= max(1, smallest):
        left = yield from sweep(left, drop, size, all_at_once=all_at_once, refused=refused)
        size = min(size, len(left)) // 2
    return left


def to_fixpoint(
    items: Sequence[T], drop: Callable[[frozenset[T]], Q], *, all_at_once: bool = True
) -> Strategy[Q, T]:
    """Drops single items until none of those left can go: a 1-minimal set.

    An item is asked about again only when something else went since it was refused.
    """
    left = list(items)
    refused = 0
    place = len(left) - 1
    while left and refused < len(left):
        single = len(left) == 1 and not all_at_once
        if not single and (yield drop(frozenset([left[place]]))):
            del left[place]
            refused = 0
        else:
            refused += 1
        place = (place - 1) % len(left) if left else 0
    return left
