"""The engine: takes the edits that passes propose, asks about each, keeps what is accepted.

It knows cases, edits and stages, but neither operators nor oracles. Its one rule is what makes a
reduction end: a candidate that is not strictly smaller than the current case is never asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Edit, Proposals
from onnxreduce.verdict import Verdict


class Stage(Protocol):
    """A place in the schedule: which pass runs, and whether it is worth running now."""

    @property
    def name(self) -> str: ...

    @property
    def records(self) -> bool:
        """Does the pass need recorded values?"""

    def wanted(self, case: Case) -> bool: ...

    def edits(self, case: Case) -> Proposals: ...


@dataclass(frozen=True)
class Question:
    """A candidate, and where it comes from."""

    stage: str
    edit: str
    case: Case


class Observer(Protocol):
    """Answers the engine's questions and is told what came of them."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def ask(self, question: Question) -> Verdict:
        """Does the candidate still show the bug? Raises to stop the reduction."""

    def accepted(self, question: Question, verdict: Verdict) -> None:
        """The candidate is the current case from now on."""

    def recorded(self, case: Case) -> Case:
        """The same case with its intermediate values."""

    def broken(self, stage: str, error: Exception) -> None:
        """A pass failed by a mistake of its own; the reduction goes on without it."""


class Engine:
    """Drives stages over the current case until a whole round of them changes nothing.

    Attributes:
        case: the current case; the best so far, also after a stage or an answer raised.
    """

    def __init__(self, case: Case, observer: Observer) -> None:
        self.case = case
        self._observer = observer

    def run(self, stages: Sequence[Stage]) -> None:
        """To the fixpoint: the result is 1-minimal under every stage's edits."""
        while self._round(stages):
            pass

    def _round(self, stages: Sequence[Stage]) -> bool:
        before = self.case.digest
        for stage in stages:
            if stage.wanted(self.case):
                self._observer.stage(stage.name)
                self._drive(stage)
        return self.case.digest != before

    def _drive(self, stage: Stage) -> None:
        self._record(stage)
        proposals = stage.edits(self.case)
        answer: Case | None = None
        while True:
            try:
                edit = proposals.send(answer)
                candidate = smaller(edit, self.case)
            except StopIteration:
                return
            except Exception as error:  # what was reached so far must not be lost with it
                self._observer.broken(stage.name, error)
                return
            answer = candidate and self._consider(stage, edit, candidate)

    def _record(self, stage: Stage) -> None:
        if stage.records:
            self.case = self._observer.recorded(self.case)

    def _consider(self, stage: Stage, edit: Edit, candidate: Case) -> Case | None:
        question = Question(stage.name, edit.describe(), candidate)
        verdict = self._observer.ask(question)
        if not verdict:
            return None
        self.case = candidate
        self._observer.accepted(question, verdict)
        self._record(stage)
        return self.case


def smaller(edit: Edit, case: Case) -> Case | None:
    """The candidate that an edit makes of a case; None when it does not fit or is no smaller."""
    try:
        candidate = edit.apply(case)
    except Conflict:
        return None
    return candidate if candidate.size < case.size else None
