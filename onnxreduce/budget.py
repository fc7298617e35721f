"""How long and how much a reduction may ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxreduce.options import Options
from onnxreduce.oracle.runners import Interrupted, Runner
from onnxreduce.verdict import Outcome, Verdict


class Stopped(Exception):
    """A budget is used up; the best so far is the result. The message names the budget."""


class Deadline:
    """The end of ``max_seconds``, which run from now on; a clock that is set changes nothing.

    Args:
        most: seconds; None: no limit.
    """

    def __init__(self, most: float | None) -> None:
        self.most = most
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the reduction began."""
        return time.monotonic() - self._began

    def left(self) -> float | None:
        """Seconds; None: no limit."""
        return None if self.most is None else self.most - self.seconds

    @contextmanager
    def bounding(self, runner: Runner) -> Iterator[None]:
        """Breaks off what a runner is asked in the context, `setup` too, when the time is up.

        Raises:
            Stopped: it was broken off.
        """
        left = self.left()
        if left is None:
            yield
            return
        timer = threading.Timer(max(0.0, left), runner.interrupt)
        timer.start()
        try:
            yield
        except Interrupted:
            raise Stopped("max-seconds") from None
        finally:
            timer.cancel()
            timer.join()
            runner.resume()


class Budget:
    """Watches ``max_seconds``, ``max_calls`` and ``patience``.

    Args:
        options: the budgets.
        calls: how many questions the oracle was asked so far.
        deadline: of the seconds.
    """

    def __init__(self, options: Options, calls: Callable[[], int], deadline: Deadline) -> None:
        self.calls = calls
        self._options = options
        self._deadline = deadline
        self._refused = 0

    def seconds_left(self) -> float | None:
        """None: no limit."""
        return self._deadline.left()

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
