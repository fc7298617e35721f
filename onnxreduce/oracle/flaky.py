"""How often a flaky oracle errs, and which ``--tries`` and ``--confirm`` keep its verdicts right.

There are two kinds of flakiness, and the original alone shows only one of them. A bug that shows
only in a share p of the questions is seen by asking about the original. An oracle that says yes by
accident, in a share q of them, is seen by asking about a *control*: a model that cannot show the
bug. Both shares are bounded by Clopper and Pearson's exact limits ("The use of confidence or
fiducial limits", Biometrika 1934), at the confidence that is asked for.

The survey is sequential: it ends as soon as the answers so far allow a decision (after Wald,
"Sequential tests of statistical hypotheses", 1945). An oracle that has not erred when a share of
errors above `NOTICED` is ruled out is taken for steady; below that, nothing is promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

NOTICED = 0.15
"""A share of errors that the survey must not overlook."""

MOST = 200
"""Questions about one case, at most."""

WORTH = 60
"""More questions about a candidate than this are not worth it."""


@dataclass(frozen=True)
class Rate:
    """What was seen: so many yes out of so many answers."""

    yes: int
    asked: int

    def __str__(self) -> str:
        return f"{self.yes} of {self.asked}"

    def after(self, question: Callable[[], bool], asked: int) -> Rate:
        """With more answers, until there are `asked`."""
        yes = sum(question() for _ in range(asked - self.asked))
        return Rate(self.yes + yes, max(asked, self.asked))

    def least(self, error: float) -> float:
        """The share of yes is lower than this with a chance of at most `error`."""
        return _solve(lambda p: tail(self.yes, self.asked, p), error) if self.yes else 0.0

    def most(self, error: float) -> float:
        """The share of yes is higher than this with a chance of at most `error`."""
        no = Rate(self.asked - self.yes, self.asked)
        return 1 - no.least(error)


@dataclass(frozen=True)
class Plan:
    """How to ask, and why.

    Attributes:
        tries, confirm: see `judge`.
        shows: the original's yes.
        accidents: the control's yes; ``None`` where there was no control.
        error: how likely a verdict is wrong, at most, as far as the flakiness was noticed.
    """

    tries: int
    confirm: int
    shows: Rate
    accidents: Rate | None
    error: float

    def __str__(self) -> str:
        kinds = []
        if self.shows.yes < self.shows.asked:
            kinds.append("the bug shows only sometimes")
        if self.accidents and self.accidents.yes:
            kinds.append("the oracle says yes by accident")
        what = " and ".join(kinds) or "the oracle is steady"
        control = f", to a model without the bug {self.accidents}" if self.accidents else ""
        return (
            f"{what} (yes to the original {self.shows}{control}): --tries {self.tries} "
            f"--confirm {self.confirm} for --error {self.error:g}"
        )


class Hopeless(Exception):
    """No number of questions that is worth it tells the bug from an accident."""


def survey(original: Callable[[], bool], control: Callable[[], bool] | None, error: float) -> Plan:
    """Asks until it is clear how often to ask.

    Args:
        original: asks once about the original.
        control: asks once about a model that cannot show the bug.
        error: the bound on a wrong verdict, and on a wrong survey.

    Raises:
        Hopeless: with the reason.
    """
    steady = math.ceil(math.log(error) / math.log1p(-NOTICED))
    shows, accidents = Rate(0, 0), Rate(0, 0) if control else None
    plan: tuple[int, int] | None = None
    for asked in (steady, 2 * steady, MOST):
        if asked == steady or shows.yes < shows.asked:
            shows = shows.after(original, asked)
        if accidents and control and (asked == steady or accidents.yes):
            accidents = accidents.after(control, asked)
        plan = _plan(shows, accidents, error)
        seen = shows.yes < shows.asked or (accidents is not None and accidents.yes)
        if plan and (asked > steady or not seen):
            return Plan(*plan, shows, accidents, error)
    said = f"it said yes to the original {shows} times"
    if accidents and accidents.yes:
        said += f", and {accidents} times to a model that cannot show the bug"
        if accidents.most(error) >= shows.least(error):
            raise Hopeless(f"{said}: it does not tell them apart")
    raise Hopeless(
        f"{said}: for an error of {error:g} it would take more than {WORTH} questions a candidate"
    )


def _plan(shows: Rate, accidents: Rate | None, error: float) -> tuple[int, int] | None:
    low = 1.0 if shows.yes == shows.asked else shows.least(error)
    high = accidents.most(error) if accidents and accidents.yes else 0.0
    return _cheapest(low, high, error) if high < low else None


def _cheapest(low: float, high: float, error: float) -> tuple[int, int] | None:
    """Tries and confirmations that keep both kinds of error below the bound, for the fewest
    questions about a boring candidate, then about an interesting one."""
    fitting = []
    for confirm in range(WORTH):
        for tries in range(1, WORTH // (1 + confirm) + 1):
            shown, believed = 1 - (1 - low) ** tries, 1 - (1 - high) ** tries
            missed = 1 - shown ** (1 + confirm)
            if missed <= error and believed ** (1 + confirm) <= error:
                fitting.append((tries, confirm))
                break
    return min(fitting, default=None)


def tail(yes: int, asked: int, p: float) -> float:
    """The chance of at least `yes` out of `asked` at a share of p."""
    if p <= 0 or p >= 1:
        return float(p >= 1 or yes == 0)
    terms = (
        math.lgamma(asked + 1)
        - math.lgamma(k + 1)
        - math.lgamma(asked - k + 1)
        + k * math.log(p)
        + (asked - k) * math.log1p(-p)
        for k in range(yes, asked + 1)
    )
    return min(1.0, sum(map(math.exp, terms)))


def _solve(rising: Callable[[float], float], target: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return low
