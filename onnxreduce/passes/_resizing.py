"""The search over sizes, as far as all parts of it share it: the current case, what to ask."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from onnxreduce.case import Case
from onnxreduce.dims import Analysis, AxisClass, Change, Resize, analyse
from onnxreduce.dims.classes import Anchor
from onnxreduce.dims.expr import Sym
from onnxreduce.dims.keep import Indices
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict

Outcome = tuple[bool, frozenset[tuple[int, int, tuple[int, ...]]]]
Weight = tuple[int, int]
"""Stored elements, then the sum of the free sizes (kernels that nothing stores)."""
Step = Generator[Resize, Case | None, bool]
"""A part of the search: returns whether anything was accepted."""


class Search:
    """The current case and what was already refused for it.

    Attributes:
        loose: which of the two readings of concatenated groups is used, see `Space`.
    """

    def __init__(self, case: Case, loose: bool) -> None:
        self.case = case
        self.loose = loose
        self.refused: set[Outcome] = set()

    @property
    def analysis(self) -> Analysis:
        return analyse(self.case, self.loose)

    def resize(self, changes: Iterable[Change], since: Case | None = None) -> Resize:
        return Resize(tuple(changes), self.loose, since)

    def classes(self) -> list[AxisClass]:
        return list(self.analysis.classes.values())

    def entry(self, anchor: Anchor) -> AxisClass | None:
        try:
            return self.analysis.classes[self.analysis.find(anchor)]
        except Conflict:
            return None

    def possible(self, entry: AxisClass, size: int) -> bool:
        try:
            self.analysis.plan({entry.symbol: size})
        except Conflict:
            return False
        return True

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

    def _planned(self, edit: Resize) -> tuple[Analysis, Plan, dict[Sym, Indices]] | None:
        analysis = self.analysis if edit.since is None else analyse(edit.since, self.loose)
        try:
            plan, chosen = edit.plan(analysis)
        except Conflict:
            return None
        if edit.since is None:
            lighter = weight(analysis, plan) < weight(analysis, Plan({}))
        else:  # classes of two analyses do not compare
            lighter = analysis.elements(plan) < self.analysis.elements(Plan({}))
        return (analysis, plan, chosen) if lighter and plan.changed() else None

    def _outcome(self, edit: Resize) -> Outcome | None:
        """What an edit of the current case comes to, whatever its words."""
        found = self._planned(edit)
        if found is None:
            return None
        _, plan, chosen = found
        changed = plan.changed()
        kept = {symbol: tuple(chosen.get(symbol, ())) for symbol in changed}
        changes = frozenset((symbol.serial, changed[symbol], kept[symbol]) for symbol in changed)
        return edit.since is None, changes


def weight(analysis: Analysis, plan: Plan) -> Weight:
    return analysis.elements(plan), sum(plan.size(symbol) for symbol in analysis.classes)
