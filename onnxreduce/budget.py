"""How long and how much a reduction may ask."""

from __future__ import annotations

import time
from collections.abc import Callable

from onnxreduce.options import Options
from onnxreduce.verdict import Outcome, Verdict


class Stopped(Exception):
    """A budget is used up; the best so far is the result. The message names the budget."""


class Budget:
    """Watches ``max_seconds``, ``max_calls`` and ``patience``.

    Args:
        options: the budgets.
        calls: how many questions the oracle was asked so far.
    """

    def __init__(self, options: Options, calls: Callable[[], int]) -> None:
        self.calls = calls
        self._options = options
        self._began = time.monotonic()
        self._refused = 0

    @property
    def seconds(self) -> float:
        """Since the reduction began."""
        return time.monotonic() - self._began

    def seconds_left(self) -> float | None:
        """None: no limit."""
        most = self._options.max_seconds
        return None if most is None else most - self.seconds

    def calls_left(self) -> int | None:
        """None: no limit."""
        most = self._options.max_calls
        return None if most is None else most - self.calls()

    def check(self) -> None:
        """Before a question.

        Raises:
            Stopped: it may not be asked.
        """
        seconds, calls = self.seconds_left(), self.calls_left()
        if seconds is not None and seconds <= 0:
            raise Stopped("max-seconds")
        if calls is not None and calls <= 0:
            raise Stopped("max-calls")
        if self._options.patience is not None and self._refused >= self._options.patience:
            raise Stopped("patience")

    def answered(self, verdict: Verdict) -> None:
        """A refusal strains the patience, a candidate that was not worth asking about does not."""
        if verdict:
            self._refused = 0
        elif verdict.outcome is not Outcome.INVALID:
            self._refused += 1
