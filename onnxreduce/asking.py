"""Where questions are put, and how one is put that no walk leads to."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Protocol

from onnxreduce.case import Case
from onnxreduce.verdict import Verdict


class Overdue(Exception):
    """There is no verdict in time."""


class Desk(Protocol):
    """Where questions are put. Futures may be cancelled, also while they run."""

    jobs: int

    def check(self, case: Case) -> Future[str | None]:
        """Why a candidate is invalid, if it is."""

    def ask(self, case: Case) -> Future[Verdict]:
        """The oracle's verdict on a valid candidate."""

    def record(self, case: Case) -> Future[Case]:
        """A valid case with its intermediate values."""

    def cancel(self, verdict: Future[Verdict]) -> None:
        """Gives up a question at once."""

    def release(self, case: Case) -> None:
        """A candidate that was checked will not be asked about (again), if it is valid at all."""


def ask_alone(desk: Desk, case: Case, left: float | None = None) -> Verdict:
    """The verdict on a case that no walk leads to.

    Raises:
        Overdue: there is none within `left` seconds.
    """
    until = None if left is None else time.monotonic() + left
    check = desk.check(case)
    answer: Future[Verdict] | None = None
    try:
        reason = check.result(timeout=left)
        if reason is not None:
            return Verdict.invalid(reason)
        answer = desk.ask(case)
        return answer.result(timeout=None if until is None else until - time.monotonic())
    except TimeoutError:
        raise Overdue from None
    finally:
        if answer is not None and not answer.done():
            desk.cancel(answer)
        if check.done():
            desk.release(case)
