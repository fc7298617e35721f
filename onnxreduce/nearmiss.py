"""The near miss: the candidate closest to the result that does *not* show the bug.

For a reader it is often the diagnosis: "stride 2 -> 1 and it is gone". It costs no question. The
last round of a reduction refuses every edit of the result, so it has already asked about all the
candidates that are one edit away; the one that differs least from the result is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice

from onnxreduce.case import Case
from onnxreduce.changes import TELLING, Change, Comparison
from onnxreduce.engine import Question
from onnxreduce.verdict import Outcome, Verdict

LARGE = 100
"""Nodes beyond which a case is far from done, and comparing takes long."""

MOST = 8
"""Changes beyond which a candidate is near in nobody's eyes."""


@dataclass(frozen=True)
class NearMiss:
    """A candidate that is one edit away from the result and does not show the bug.

    Attributes:
        case: it.
        edit: the pass's words for the step from the result.
        changes: what is different from the result, in words.
        verdict: what the oracle said.
    """

    case: Case
    edit: str
    changes: tuple[str, ...]
    verdict: Verdict


class NearMisses:
    """Keeps the nearest of the candidates refused since the last one that was accepted."""

    def __init__(self, case: Case) -> None:
        self.accepted(case)

    def accepted(self, case: Case) -> None:
        """`case` is the current one: what was refused before is further away."""
        self._case = case
        self._comparison = Comparison(case)
        self._rank: tuple[int, ...] = ()
        self.best: NearMiss | None = None

    def asked(self, question: Question, verdict: Verdict) -> None:
        """A candidate has its verdict. One with a signature shows a bug, if another one."""
        if verdict.outcome is not Outcome.BORING or verdict.signature is not None:
            return
        if self._case.size.nodes > LARGE:
            return
        found = list(islice(self._comparison.with_(question.case), MOST + 1))
        # Of course nothing shows on zeros.
        if len(found) > MOST or any(change.kind == "zeros" for change in found):
            return
        rank = _rank(found)
        if found and (self.best is None or rank < self._rank):
            words = tuple(change.words for change in found)
            self._rank = rank
            self.best = NearMiss(question.case, question.edit, words, _told(verdict))


def _rank(found: list[Change]) -> tuple[int, ...]:
    """The most telling kind first, then the fewest changes, the smallest step."""
    kinds = max((TELLING.index(change.kind) for change in found), default=0)
    return kinds, len(found), sum(change.step for change in found)


def _told(verdict: Verdict) -> Verdict:
    """Without the oracle's advice for the command line, and without what only a program says."""
    detail = verdict.detail.partition("; try ")[0]
    return replace(verdict, detail="" if re.fullmatch(r"exit status \d+", detail) else detail)
