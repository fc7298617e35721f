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


def attempt(case: Case, *edits: Edit) -> Following:
    """Every one of some edits in turn; the case they led to."""
    for edit in edits:
        case = (yield edit) or case
    return case


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
