"""The books of a reduction: has the engine's questions answered, and keeps account of it all."""

from __future__ import annotations

from onnxreduce.asking import Overdue, ask_alone
from onnxreduce.budget import Budget, Stopped
from onnxreduce.case import Case
from onnxreduce.desk import Desk
from onnxreduce.engine import Question
from onnxreduce.history import History
from onnxreduce.nearmiss import NearMisses
from onnxreduce.notes import Notes
from onnxreduce.progress import Listener
from onnxreduce.speculate import Speculation, Spent
from onnxreduce.trusted import Trusted
from onnxreduce.verdict import Outcome, Verdict
from onnxreduce.walk import Recorder, Walk


class Books:
    """The engine's observer.

    Args:
        original: the case that the reduction starts from, and its verdict.
        desk: where questions are asked.
        trusted: records values.
        history: what is kept on disk.
        budget: what may still be asked.
        notes, listener: who is told.

    Attributes:
        verdict: of the current case.
        invalid: how many candidates were not worth a question.
        steps: how many were accepted.
        is_broken: a pass failed by a mistake of its own.
        near: refused candidates close to the current case.
    """

    def __init__(
        self,
        original: tuple[Case, Verdict],
        desk: Desk,
        trusted: Trusted,
        history: History,
        budget: Budget,
        notes: Notes,
        listener: Listener,
    ) -> None:
        case, self.verdict = original
        self.near = NearMisses(case)
        self.invalid = self.steps = 0
        self.is_broken = False
        self._ahead: Speculation | None = None
        self._desk = desk
        self._trusted = trusted
        self._history = history
        self._budget = budget
        self._notes = notes
        self._listener = listener

    def look_ahead(self, walk: Walk, recorded: Recorder) -> Speculation:
        """The path on which the engine walks through the passes."""
        self._ahead = Speculation(walk, recorded, self._desk, self._budget.calls_left)
        return self._ahead

    def stage(self, name: str) -> None:
        self._listener.stage(name)

    def recorded(self, case: Case) -> Case:
        recorded = self._trusted.recorded(case)
        self._notes.add(getattr(recorded.recording, "notice", ""))
        return recorded

    def ask(self, question: Question) -> Verdict:
        self._budget.check()
        try:
            if self._ahead is not None and self._ahead.question() is question:
                verdict = self._ahead.verdict(self._budget.seconds_left)
            else:
                verdict = ask_alone(self._desk, question.case, self._budget.seconds_left())
        except Overdue:
            raise Stopped("max-seconds") from None
        except Spent:
            raise Stopped("max-calls") from None
        self.invalid += verdict.outcome is Outcome.INVALID
        self._budget.answered(verdict)
        self.near.asked(question, verdict)
        self._history.asked(question, verdict, self._budget.calls())
        self._listener.asked(self._budget.calls())
        return verdict

    def accepted(self, question: Question, verdict: Verdict) -> None:
        self.steps += 1
        self.verdict = verdict
        self.near.accepted(question.case)
        self._history.accepted(question, verdict, self._budget.calls())
        self._listener.accepted(question.case.size, self._budget.calls(), question.edit)

    def broken(self, stage: str, error: Exception) -> None:
        self.is_broken = True
        self._history.broken(stage, error)
        self._notes.add(
            f"the pass {stage} failed and was left out ({type(error).__name__}: {error}); "
            "please report it with the journal"
        )

    def close(self) -> None:
        """Gives up what was asked ahead."""
        if self._ahead is not None:
            self._ahead.close()
