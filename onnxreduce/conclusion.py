"""The end of a reduction: the result confirmed, measured, and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxreduce import emit
from onnxreduce.books import Books
from onnxreduce.budget import Budget, Deadline, Stopped
from onnxreduce.candidates import Candidates
from onnxreduce.case import Case, InputValue
from onnxreduce.errors import Unwritable
from onnxreduce.history import History
from onnxreduce.notes import Notes
from onnxreduce.options import Options
from onnxreduce.oracle.judge import Judge
from onnxreduce.result import Result
from onnxreduce.scrub import Scrubbed
from onnxreduce.sides import Side, backend_specs, measure
from onnxreduce.start import Start
from onnxreduce.trusted import Trusted
from onnxreduce.used import OracleUsed

OFTEN = 0.2
"""A share of skipped questions that the user should hear of."""


@dataclass(frozen=True)
class Conclusion:
    """What it takes to come to a `Result`.

    Attributes:
        earlier_seconds: inside the oracle, in the runs that this one resumes.
    """

    start: Start
    options: Options
    used: OracleUsed
    judge: Judge
    trusted: Trusted
    candidates: Candidates
    history: History
    books: Books
    budget: Budget
    deadline: Deadline
    notes: Notes
    earlier_seconds: float

    def draw(self, case: Case, stopped_by: str | None, scrubbed: Scrubbed | None) -> Result:
        """The result, with its artefacts on disk if they are wanted.

        Raises:
            Unwritable: the model itself cannot be written.
        """
        case = self.history.furthest(case)
        confirmed, stopped_by = self._confirmed(case, stopped_by)
        self._note_skips()
        sides = self._sides(case)
        books, judge = self.books, self.judge
        result = Result(
            original=self.start.case,
            reduced=case,
            verdict=books.verdict,
            outputs=_expected(sides) or self.trusted.outputs(case),
            oracle_calls=self.budget.calls(),
            cache_hits=judge.cache_hits,
            invalid=books.invalid,
            skipped=judge.skipped,
            accepted=books.steps,
            seconds=self.deadline.seconds,
            oracle_seconds=self.earlier_seconds + judge.oracle_seconds,
            one_minimal=stopped_by is None and not books.is_broken,
            confirmed=confirmed,
            stopped_by=stopped_by,
            notes=tuple(self.notes.lines),
            settings=self._settings(),
            directory=self.options.output,
            oracle=self.used,
            sides=sides,
            near_miss=books.near.best,
            inputs_made_up=self.start.made_up,
            scrubbed=scrubbed,
        )
        return self._written(result)

    def _written(self, result: Result) -> Result:
        if result.directory is not None:
            try:
                result = emit.write_all(result, result.directory)
            except OSError as error:
                where = f"{result.directory} cannot be written to"
                raise Unwritable(f"{where}: {error.strerror}") from error
            for note in result.notes:
                self.notes.add(note)
        self.history.finished(result)
        return result

    def _confirmed(self, case: Case, stopped_by: str | None) -> tuple[bool, str | None]:
        """Whether a fresh process agrees, and what stopped the run if that was interrupted."""
        if stopped_by is not None:
            return False, stopped_by
        try:
            with self.deadline.bounding(self.judge.runner):
                verdict = self.judge.final(case)
        except Stopped as stop:
            self.notes.add("the time was up before the final confirmation: not confirmed")
            return False, str(stop)
        except KeyboardInterrupt:
            self.notes.add("interrupted in the final confirmation: the result is not confirmed")
            return False, "interrupt"
        if verdict:
            self.books.verdict = verdict
            return True, None
        self.notes.add(
            "in a fresh process the oracle does not find the result interesting "
            f"({verdict.detail or verdict.outcome.value}): its answers depend on what ran before"
        )
        return False, None

    def _note_skips(self) -> None:
        often = self.judge.often_skipped
        if often and self.judge.skipped >= max(3, OFTEN * self.judge.calls):
            reason, count = often
            self.notes.add(
                f"{self.judge.skipped} of {self.judge.calls} questions had no answer, "
                f"{count} of them: {reason}"
            )

    def _sides(self, case: Case) -> tuple[Side, ...]:
        """What the oracle's backends make of the result."""
        specs = backend_specs(self.used.name, self.used.parameters)
        if self.options.output is None or not specs:
            return ()
        path = self.candidates.write(case)
        try:
            return measure(specs, path, case.inputs)
        finally:
            self.candidates.discard(path)

    def _settings(self) -> dict[str, Any]:
        return {
            "oracle": self.used.name,
            "set": dict(self.options.settings),
            "tries": self.judge.tries,
            "confirm": self.judge.confirm,
            "timeout": self.judge.timeout,
            "cuts": self.options.cuts,
        }


def _expected(sides: tuple[Side, ...]) -> Mapping[str, InputValue] | None:
    """What the side that the oracle trusts computes; `None` when it names none, or that fails."""
    return next((side.outputs for side in sides if side.role == "expected"), None)
