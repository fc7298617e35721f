"""The engine: asks what the passes propose, one question after the other, and keeps what is
accepted.

It knows cases, edits and stages, but neither operators nor oracles. Its one rule is what makes a
reduction end: a candidate that is not strictly smaller than the current case is never asked about.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from onnxreduce.case import Case
from onnxreduce.verdict import Verdict
from onnxreduce.walk import Question, Recorder, Stage, Walk, smaller

__all__ = ["Engine", "Observer", "Path", "Question", "Stage", "smaller"]


class Observer(Protocol):
    """Answers the engine's questions and is told what came of them."""

    def stage(self, name: str) -> None:
        """A stage begins to ask."""

    def ask(self, question: Question) -> Verdict:
        """Does the candidate still show the bug? Raises to stop the reduction."""

    def accepted(self, question: Question, verdict: Verdict) -> None:
        """The candidate is the current case from now on."""

    def recorded(self, case: Case) -> Case:
        """The same case with its intermediate values."""

    def broken(self, stage: str, error: Exception) -> None:
        """A pass failed by a mistake of its own; the reduction goes on without it."""


class Path(Protocol):
    """The way that a walk takes, question by question."""

    def question(self) -> Question | None:
        """What is to be answered now; None at the end."""

    def answer(self, yes: bool) -> None: ...

    def failures(self) -> list[tuple[str, Exception]]:
        """Passes that failed since this was asked last."""


class Straight:
    """Goes on only when the answer is there."""

    def __init__(self, walk: Walk, recorded: Recorder) -> None:
        self._walk = walk
        self._recorded = recorded
        walk.go_on(recorded)

    def question(self) -> Question | None:
        return self._walk.question

    def answer(self, yes: bool) -> None:
        self._walk.answer(yes, self._recorded)

    def failures(self) -> list[tuple[str, Exception]]:
        return self._walk.failures()


class Engine:
    """Walks through stages until a whole round of them changes nothing.

    Args:
        case: the original.
        observer: answers and is told.
        path: how the walk is taken; a path that looks ahead finds the same things sooner.

    Attributes:
        case: the current case; the best so far, also after an answer raised.
    """

    def __init__(
        self,
        case: Case,
        observer: Observer,
        path: Callable[[Walk, Recorder], Path] = Straight,
    ) -> None:
        self.case = case
        self._observer = observer
        self._path = path

    def run(self, stages: Sequence[Stage]) -> None:
        """To the fixpoint: the result is 1-minimal under every stage's edits."""
        with _settled():
            self._run(stages)

    def _run(self, stages: Sequence[Stage]) -> None:
        path = self._path(Walk(self.case, stages), self._observer.recorded)
        stage = ""
        while True:
            for name, error in path.failures():
                self._observer.broken(name, error)
            question = path.question()
            if question is None:
                return
            if question.stage != stage:
                stage = question.stage
                self._observer.stage(stage)
            verdict = self._observer.ask(question)
            if verdict:
                self.case = question.case
            try:
                path.answer(bool(verdict))
            finally:  # the next question is on its way to the oracle meanwhile
                if verdict:
                    self._observer.accepted(question, verdict)


@contextmanager
def _settled() -> Iterator[None]:
    """What is there by now stays, so the garbage collector need not go through it again and again:
    candidates are cycles, and come and go by the thousand."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
