"""The smallest integer that still works, in O(log n) questions.

Bugs depend on sizes in few ways: from a threshold on, on parity, on being (or not being) a
multiple. Galloping *up* from the least size costs little when the answer is small, which it
mostly is; rounded binary search is exact for thresholds and multiples of powers of two; the final
steps down, doubling while they work, are for parity and other multiples.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

Sizes = Generator[int, bool, int]
"""Yields a size, is sent whether it works, returns the smallest that was found to work."""

PARITY = (1, 2)
STRIDED = (1, 2, 4, 8)
"""Steps for an axis that is strided over: what is odd behind it has a period of four before it."""


def smallest(least: int, known: int, steps: Sequence[int] = PARITY) -> Sizes:
    """The smallest size in ``[least, known]`` that works; `known` does.

    Exact for thresholds, parity from a threshold on, and (non-)multiples of small numbers.
    """
    answers: dict[int, bool] = {known: True}
    low, step = least - 1, 1
    while True:
        size = least + step - 1
        if size >= known:
            high = known
            break
        answers[size] = yield size
        if answers[size]:
            high = size
            break
        low, step = size, step * 2
    return (yield from _halve(least, low, high, steps, answers))


def between(low: int, known: int, steps: Sequence[int] = PARITY) -> Sizes:
    """The smallest size in ``(low, known]`` that works, by halving from the start: `low` is large,
    so the answer is as likely anywhere."""
    return (yield from _halve(low + 1, low, known, steps, {known: True}))


def below(low: int, known: int, steps: Sequence[int] = PARITY) -> Sizes:
    """The same, where `known` has most likely been found to be the answer before."""
    return (yield from _settle(low + 1, known, steps, {known: True}))


def _halve(
    least: int, low: int, high: int, steps: Sequence[int], answers: dict[int, bool]
) -> Sizes:
    while high - low > 1:
        size = _round_middle(low, high)
        answers[size] = yield size
        if answers[size]:
            high = size
        else:
            low = size
    return (yield from _settle(least, high, steps, answers))


def _round_middle(low: int, high: int) -> int:
    """The roundest number (in binary) in the middle half between two sizes."""
    quarter = (high - low) // 4
    first, last = low + max(1, quarter), high - max(1, quarter)
    span = 1
    while -(-first // (span * 2)) * span * 2 <= last:
        span *= 2
    middle = (low + high) // 2
    below, above = middle // span * span, -(-middle // span) * span
    fits = [size for size in (below, above) if first <= size <= last]
    return min(fits or [-(-first // span) * span], key=lambda size: abs(size - middle))


def descend(least: int, known: int, steps: Sequence[int] = PARITY) -> Sizes:
    """The same, where `known` has most likely been found to be the answer before: one step of each
    kind down proves it, and only where one works is the rest looked through."""
    for step in _steps(known, steps):
        if known - step >= least and (yield known - step):
            return (yield from smallest(least, known - step, steps))
    return known


def _settle(least: int, known: int, steps: Sequence[int], answers: dict[int, bool]) -> Sizes:
    """Step down from a size that works; a step doubles while it works, then what it jumped over is
    halved in units of the first step."""
    found = True
    while found:
        found = False
        for unit in _steps(known, steps):
            lower = yield from _down(least, known, unit, answers)
            if lower < known:
                known, found = lower, True
                break
    return known


def _down(least: int, known: int, unit: int, answers: dict[int, bool]) -> Sizes:
    works, refused = 0, (known - least) // unit + 1
    step = 1
    while refused - works > 1:
        count = min(works + step, (works + refused) // 2) if step else (works + refused) // 2
        size = known - count * unit
        if size not in answers:
            answers[size] = yield size
        if answers[size]:
            works, step = count, step * 2
        elif works == 0:
            break
        else:
            refused, step = count, 0
    return known - works * unit


def _steps(size: int, steps: Sequence[int]) -> list[int]:
    """The given steps, then small divisors of the size, for multiples."""
    return [*steps, *(step for step in (3, 4, 5, 6, 7, 8) if size % step == 0 and step < size)]
