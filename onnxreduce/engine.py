"""The engine: takes the edits that passes propose, asks about each, keeps what is accepted.

It knows cases, edits and stages, but neither operators nor oracles. Its one rule is what makes a
reduction end: a candidate that is not strictly smaller than the current case is never asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Edit, Proposals
from onnxreduce.verdict import Verdict


class Stage(Protocol):
    """A place in the schedule: which pass runs, and whether it is worth running now."""

    @property
    def name(self) -> str: ...

    def wanted(self, case: Case) -> bool: ...

    def edits(self, case: Case) -> Proposals: ...


@dataclass(frozen=True)
class Step:
    """An accepted edit and what it led to."""

    stage: str
    edit: str
    case: Case
    verdict: Verdict


class Observer(Protocol):
    """Told what the engine does, as it does it."""

    def stage(self, name: str) -> None: ...

    def accepted(self, step: Step) -> None: ...


class Engine:
    """Drives stages over the current case until a whole round of them changes nothing.

    Args:
        case: the original, known to be interesting.
        ask: does this candidate still show the bug? Raises to stop the reduction; `case` then
            still holds the best so far.
        observer: told of stages and accepted steps.
    """

    def __init__(
        self, case: Case, ask: Callable[[Case], Verdict], observer: Observer
    ) -> None:
        self.case = case
        self._ask = ask
        self._observer = observer

    def run(self, stages: Sequence[Stage]) -> None:
        """To the fixpoint: the result is 1-minimal under every stage's edits."""
        while self._round(stages):
            pass

    def _round(self, stages: Sequence[Stage]) -> bool:
        before = self.case
        for stage in stages:
            if stage.wanted(self.case):
                self._observer.stage(stage.name)
                self._drive(stage)
        return self.case is not before

    def _drive(self, stage: Stage) -> None:
        proposals = stage.edits(self.case)
        answer: Case | None = None
        while True:
            try:
                edit = proposals.send(answer)
            except StopIteration:
                return
            answer = self._consider(stage.name, edit)

    def _consider(self, stage: str, edit: Edit) -> Case | None:
        candidate = smaller(edit, self.case)
        if candidate is None:
            return None
        verdict = self._ask(candidate)
        if not verdict:
            return None
        self.case = candidate
        self._observer.accepted(Step(stage, edit.describe(), candidate, verdict))
        return candidate


def smaller(edit: Edit, case: Case) -> Case | None:
    """The candidate that an edit makes of a case; None when it does not fit or is no smaller."""
    try:
        candidate = edit.apply(case)
    except Conflict:
        return None
    return candidate if candidate.size < case.size else None
