"""All at once, then halves, then single ones: the search that small late passes share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from onnxreduce.case import Case
from onnxreduce.edits import Edit, Proposals

T = TypeVar("T")

Following = Generator[Edit, Case | None, Case]
"""Proposals that return the case they led to."""


def follow(case: Case, proposals: Proposals) -> Following:
    """Pass proposals on, and return the last accepted case (`case` itself if there was none)."""
    answer: Case | None = None
    while True:
        try:
            edit = proposals.send(answer)
        except StopIteration:
            return case
        answer = yield edit
        if answer is not None:
            case = answer


def first(case: Case, *edits: Edit) -> Following:
    """Edits in turn until one is accepted; the case it led to."""
    for edit in edits:
        answer = yield edit
        if answer is not None:
            return answer
    return case


def groups(items: Sequence[T], make: Callable[[tuple[T, ...]], Edit]) -> Proposals:
    """Edits for as many of `items` as are accepted.

    When the first half of a refused group is accepted, the second half would be the refused group
    again: it is split without asking. So k items that must stay among n cost about
    ``2 k log2(n / k)`` calls, and none cost one.
    """
    if items:
        yield from _halves(tuple(items), make, refused=False)


def _halves(
    items: tuple[T, ...], make: Callable[[tuple[T, ...]], Edit], *, refused: bool
) -> Generator[Edit, Case | None, bool]:
    if not refused and (yield make(items)) is not None:
        return True
    if len(items) == 1:
        return False
    middle = len(items) // 2
    accepted = yield from _halves(items[:middle], make, refused=False)
    yield from _halves(items[middle:], make, refused=accepted)
    return False


def limited(proposals: Proposals, refusals: int) -> Proposals:
    """Pass proposals on until so many of them were refused."""
    answer: Case | None = None
    while refusals:
        try:
            edit = proposals.send(answer)
        except StopIteration:
            return
        answer = yield edit
        if answer is None:
            refusals -= 1


FAR = 4096
"""Integers from here on are not galloped up to: they mean *no end*, or are hashes."""


def least(case: Case, number: int, make: Callable[[int], Edit]) -> Following:
    """The least integer from 0 up to `number` that is accepted, in about ``2 log2`` calls.

    Gallops up from 0 (0, 1, 2, 4, ...), then bisects between the last refused and the first
    accepted one. A negative number may also become -1, or its own opposite.
    """
    refused, best = -1, abs(number)
    step = 0
    while step < min(best, FAR):
        answer = yield make(step)
        if answer is not None:
            case, best = answer, step
            break
        refused, step = step, step * 2 or 1
    else:
        if number < 0:
            return (yield from first(case, *(make(n) for n in (-1, -number) if n != number)))
        if number >= FAR:
            return case
    while best - refused > 1:
        middle = (best + refused) // 2
        answer = yield make(middle)
        if answer is not None:
            case, best = answer, middle
        else:
            refused = middle
    return case
