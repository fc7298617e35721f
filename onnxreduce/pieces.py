"""Pieces of a model, cut out and fed with recorded values: which is the smallest that differs?

By bisection: the shortest beginning that differs, then the shortest end of that. One-value cuts
come first, as they leave the fewest values to feed and to show; then any place in between. A piece
shows only the values that leave it, so that what a runtime does inside it stays as it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxreduce.backends import BackendError
from onnxreduce.case import Case
from onnxreduce.compare import Tolerance, compare
from onnxreduce.edits import Conflict
from onnxreduce.graph import index
from onnxreduce.modelio import Store
from onnxreduce.surgery import KeepNodes
from onnxreduce.watching import Watched


@dataclass(frozen=True)
class Outcome:
    """What the two sides make of a piece.

    Attributes:
        wrong: its outputs that differ.
        expected, actual: its outputs.
    """

    wrong: tuple[str, ...] = ()
    expected: dict[str, Any] = field(default_factory=dict)
    actual: dict[str, Any] = field(default_factory=dict)


class Pieces:
    """Runs pieces of a case.

    Attributes:
        last: what came of the last piece that differed.

    Args:
        case: with its recording.
        expected, actual: the two sides.
        tolerance: what is no difference.
        store: where pieces are written.
    """

    def __init__(
        self, case: Case, expected: Watched, actual: Watched, tolerance: Tolerance, store: Store
    ) -> None:
        self.last = Outcome()
        self._case = case
        self._known = index(case.model)
        self._cuts = set(self._known.cuts())
        self._sides = expected, actual
        self._tolerance = tolerance
        self._store = store

    def smallest(self, nodes: Sequence[str]) -> list[str]:
        """The smallest piece that differs, of these nodes if they differ alone, else of all.

        Assumes that what differs also differs in a larger piece; where that is not so, a piece
        that differs is still what comes out.
        """
        left = list(nodes)
        if not self.differs(left):
            left = list(self._known.order)
            if not self.differs(left):
                return left
        ends = [place + 1 for place, key in enumerate(left) if self._is_cut(key)]
        end = _least(ends, len(left), lambda place: self.differs(left[:place]))
        left = left[:end]
        starts = [len(left) - place for place in ends if place < end]
        keep = _least(starts[::-1], len(left), lambda count: self.differs(left[-count:]))
        left = left[-keep:]
        return self._without_bystanders(left)

    def differs(self, nodes: Sequence[str]) -> bool:
        """Whether the sides differ on these nodes alone."""
        outcome = self._outcome(nodes)
        if outcome.wrong:
            self.last = outcome
        return bool(outcome.wrong)

    def _without_bystanders(self, nodes: list[str]) -> list[str]:
        cone = self._known.cone(self.last.wrong)
        needed = [key for key in nodes if key in cone]
        return needed if len(needed) < len(nodes) and self.differs(needed) else nodes

    def _outcome(self, nodes: Sequence[str]) -> Outcome:
        try:
            piece = self._piece(nodes)
        except Conflict:
            return Outcome()
        path = self._store.write(piece)
        try:
            expected, actual = (side.run(str(path), piece.inputs) for side in self._sides)
        except BackendError:
            return Outcome()
        finally:
            self._store.discard(path)
        found = compare(expected, actual, self._tolerance)
        names = {d.name if d.name in expected else d.name.rpartition(".")[0] for d in found.wrong}
        return Outcome(tuple(name for name in expected if name in names), expected, actual)

    def _piece(self, nodes: Sequence[str]) -> Case:
        if len(nodes) == len(self._known.order):
            return self._case
        return KeepNodes(tuple(nodes)).apply(self._case)

    def _is_cut(self, key: str) -> bool:
        return not self._cuts.isdisjoint(self._known.writes[key])


def _least(stops: Sequence[int], top: int, holds: Callable[[int], bool]) -> int:
    """The least number from 1 to `top` that holds, which `top` does: first among the stops, then
    between the last that does not hold and the first that does."""
    inner = [stop for stop in stops if 0 < stop < top]
    at = bisect_left(inner, True, key=holds)
    high = inner[at] if at < len(inner) else top
    low = inner[at - 1] if at else 0
    between = range(low + 1, high)
    return low + 1 + bisect_left(between, True, key=holds)
