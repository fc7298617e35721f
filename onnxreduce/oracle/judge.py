"""The judge: what an oracle's answers mean for a candidate.

How ``--tries`` and ``--confirm`` combine: a *round* is up to `tries` questions, and says yes at
the first yes. A candidate is interesting when 1 + `confirm` rounds in a row say yes. So tries
only ever turn a no into a yes, and confirmations a yes into a no. A bug that shows in a share p
of the questions is missed by a round with probability (1 - p) ** tries (p = 0.6 and 6 tries:
0.4 %). An oracle that says yes by accident in a share q of them is believed with probability
(1 - (1 - q) ** tries) ** (1 + confirm) (q = 0.05, one try and 3 confirmations: 0.0006 %).
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from onnxreduce.case import Case
from onnxreduce.errors import Flaky, NotInteresting, UsageError
from onnxreduce.modelio import inputs_beside
from onnxreduce.oracle.cache import Answer, Cache
from onnxreduce.oracle.flaky import Hopeless, Plan, survey
from onnxreduce.oracle.runners import Limits, Runner, advice, explain, persistently, reason
from onnxreduce.process import WorkerError
from onnxreduce.verdict import Outcome, Verdict

FIRST_SECONDS = 600.0
"""Limit of the first question when no timeout is given."""
TIMEOUT_FACTOR = 10.0
LEAST_TIMEOUT = 10.0
SURVEY = 10
"""Questions about an original on which the oracle contradicts itself, to estimate the rate."""


class Store(Protocol):
    """Where candidates wait for their verdict."""

    def write(self, case: Case) -> Path:
        """The model's file; its external data and its inputs (`inputs_beside`) are beside it.

        Meant to be the same as long as somebody holds it and nobody has changed it."""

    def discard(self, path: Path) -> None:
        """The model and what is beside it is needed no longer."""


class Judge:
    """Gives verdicts on candidates. `original` comes first.

    `judge` may be called from several threads if each has a runner of its own.

    Args:
        runner: asks the oracle.
        cache: answers given so far; every new one is added.
        store: where candidates are written for the oracle.
        timeout: seconds for a question; `None`: ten times the first one, at least ten.
        tries, confirm: for flaky oracles, see above.
        cpu_time: seconds of processor time for the oracle's process tree, for a question.
        memory: bytes for it.
    """

    def __init__(
        self,
        runner: Runner,
        cache: Cache,
        store: Store,
        *,
        timeout: float | None = None,
        tries: int = 1,
        confirm: int = 0,
        cpu_time: float | None = None,
        memory: int | None = None,
    ) -> None:
        self.timeout = timeout
        self.signature: str | None = None
        """Of the bug that the original shows; `None`: the oracle does not tell bugs apart."""
        self.calls = 0
        self.cache_hits = 0
        """Verdicts that needed no new question."""
        self.skipped = 0
        self.oracle_seconds = 0.0
        self._skip_reasons: Counter[str] = Counter()
        self._suspects: dict[str, list[str]] = {}
        self.runner = runner
        self._cache = cache
        self._store = store
        self.tries = tries
        self.confirm = confirm
        self._cpu_time = cpu_time
        self._memory = memory
        self._lock = threading.Lock()

    def original(self, case: Case) -> Verdict:
        """Check that the oracle finds the original interesting, and does so reliably.

        Also derives the default timeout, and remembers the signature of the bug.

        Raises:
            NotInteresting: it does not.
            Flaky: it contradicts itself beyond what `tries` and `confirm` allow for.
            UsageError: it raises, hangs, crashes, or skips the original.
        """
        with self._exam(case.digest, case, self.runner) as exam:
            exam.strict = True
            exam.limits = self.limits(FIRST_SECONDS)
            first = exam.answer()
            if self.timeout is None:
                self.timeout = max(LEAST_TIMEOUT, TIMEOUT_FACTOR * first.seconds)
                exam.limits = self.limits()
            verdict = self._steady(exam) if self.tries == 1 else self._shows(exam)
            exam.keep()
            return verdict

    def plan(self, case: Case, control: Case | None, error: float) -> Plan:
        """Chooses tries and confirmations by asking about the original, and about a case that
        cannot show its bug. Comes before `original`, which uses the same answers.

        Raises:
            Flaky: no choice keeps wrong verdicts below `error`.
            UsageError: see `original`.
        """
        with ExitStack() as stack:
            exam = stack.enter_context(self._exam(case.digest, case, self.runner))
            exam.strict = True
            exam.limits = self.limits(FIRST_SECONDS)
            other = control and stack.enter_context(
                self._exam(control.digest, control, self.runner)
            )
            try:
                plan = survey(
                    lambda: bool(exam.answer().verdict),
                    (lambda: bool(other.answer().verdict)) if other else None,
                    error,
                )
            except Hopeless as why:
                raise Flaky(f"the oracle is no use as it is: {why}") from None
            exam.keep()
        self.tries, self.confirm = plan.tries, plan.confirm
        return plan

    def _steady(self, exam: _Exam) -> Verdict:
        """The original's verdict when every answer counts: they must all be the same."""
        while len(exam.given) < max(2, 1 + self.confirm):
            exam.answer()
            yes = sum(map(bool, exam.given))
            if yes == 0:
                raise _not_interesting(exam)
            if yes < len(exam.given):
                raise _flaky(exam)
        return self._adopt(exam)

    def _shows(self, exam: _Exam) -> Verdict:
        """The original's verdict when the bug shows only in some of the tries."""
        while not any(exam.given):
            if len(exam.given) == 3 * self.tries:
                raise _not_interesting(exam)
            exam.answer()
        for _ in range(self.confirm):
            if not exam.round(self.tries):
                raise _flaky(exam)
        return self._adopt(exam)

    def _adopt(self, exam: _Exam) -> Verdict:
        shown = [verdict for verdict in exam.given if verdict]
        signatures = {verdict.signature for verdict in shown}
        if len(signatures) > 1:
            some = " and ".join(sorted(map(str, signatures))[:2])
            raise Flaky(f"the oracle sees different bugs in the original: {some}")
        self.signature = shown[0].signature
        return shown[0]

    def judge(self, case: Case, runner: Runner | None = None) -> Verdict:
        """Does the candidate still show the bug of the original?

        An oracle that raises, hangs, crashes or takes too much memory has SKIPPED the candidate.

        Raises:
            Interrupted: `runner` was interrupted from another thread; nothing is recorded.
        """
        with self._exam(case.digest, case, runner or self.runner) as exam:
            verdict = self._verdict(exam)
            with self._lock:
                self.cache_hits += not exam.asked
        return verdict

    def final(self, case: Case) -> Verdict:
        """The verdict on the result, from fresh questions to a fresh process."""
        question = f"final {case.digest}"
        self.runner.restart()
        with self._exam(question, case, self.runner) as exam:
            return self._verdict(exam)

    def hold(self, case: Case) -> dict[str, Any]:
        """What the oracle measures on the original, to judge candidates by.

        Raises:
            UsageError: it fails to.
        """
        path = self._store.write(case).absolute()
        try:
            return persistently(lambda: self.runner.hold(path, inputs_beside(path), self.limits()))
        except WorkerError as error:
            raise _unusable(error) from error
        finally:
            self._store.discard(path)

    def suspects(self, case: Case) -> list[str]:
        """Names of values or nodes that the oracle would look at first; none if it fails to say."""
        if case.digest in self._suspects:  # a pass that is run again must see the same names
            return self._suspects[case.digest]
        path = self._store.write(case).absolute()
        names: list[str] = []
        try:
            names = persistently(
                lambda: self.runner.suspects(path, inputs_beside(path), self.limits())
            )
        except WorkerError as error:
            self._count_skip(f"suspects: {reason(error)}")
        finally:
            self._store.discard(path)
        return self._suspects.setdefault(case.digest, names)

    def limits(self, timeout: float | None = None) -> Limits:
        """Of a question; `timeout` counts while none is settled."""
        return Limits(self.timeout or timeout, self._memory, self._cpu_time)

    @property
    def often_skipped(self) -> tuple[str, int] | None:
        """The most frequent reason why the oracle gave no answer, with its count."""
        return next(iter(self._skip_reasons.most_common(1)), None)

    def _verdict(self, exam: _Exam) -> Verdict:
        verdict = exam.round(self.tries)
        for _ in range(self.confirm):
            if not verdict:
                break
            verdict = exam.round(self.tries)
        return verdict

    @contextmanager
    def _exam(self, question: str, case: Case, runner: Runner) -> Iterator[_Exam]:
        exam = _Exam(self, question, case, runner)
        try:
            yield exam
        finally:
            exam.finish()

    def _same_bug(self, verdict: Verdict) -> Verdict:
        """Slippage is refused here: another bug is boring."""
        if not verdict or None in (self.signature, verdict.signature):
            return verdict
        if verdict.signature == self.signature:
            return verdict
        detail = f"another bug: {verdict.signature}, the original's is {self.signature}"
        return Verdict.boring(detail, verdict.signature)

    def _count_call(self, seconds: float) -> None:
        with self._lock:
            self.calls += 1
            self.oracle_seconds += seconds

    def _count_skip(self, why: str) -> None:
        with self._lock:
            self.skipped += 1
            self._skip_reasons[why] += 1


class _Exam:
    """The questions about one case: replays the recorded answers, then asks the oracle.

    The case is written to disk only when a question is really asked.
    """

    def __init__(self, judge: Judge, question: str, case: Case, runner: Runner) -> None:
        self.given: list[Verdict] = []
        self.asked = False
        self.strict = False
        """On the original: an oracle that gives no answer is an error, and answers are recorded
        only by `keep` from the first no on, since a person may mend what was wrong."""
        self.limits = judge.limits()
        self._judge = judge
        self._question = question
        self._case = case
        self._runner = runner
        self._replay = deque(judge._cache.answers(question, judge.timeout))
        self._kept: list[Answer] = []
        self._path: Path | None = None

    @property
    def advice(self) -> str:
        return advice(self._runner)

    def round(self, tries: int) -> Verdict:
        """Up to `tries` questions; the first yes, else the last no, else the last skip."""
        verdicts = []
        for _ in range(tries):
            answer = self.answer()
            verdict = self._judge._same_bug(answer.verdict)
            verdicts.append(verdict)
            if verdict or answer.within is not None:  # a hang is costly: once is enough
                break
        said = [verdict for verdict in verdicts if verdict.outcome is not Outcome.SKIPPED]
        return (said or verdicts)[-1]

    def answer(self) -> Answer:
        if self._replay:
            answer = self._replay.popleft()
        else:
            self.asked = True
            answer = self._ask()
            if self.strict and (self._kept or not answer.verdict):
                self._kept.append(answer)
            else:
                self._judge._cache.add(self._question, answer)
        self.given.append(answer.verdict)
        return answer

    def keep(self) -> None:
        for answer in self._kept:
            self._judge._cache.add(self._question, answer)

    def finish(self) -> None:
        if self._path:
            self._judge._store.discard(self._path)

    def _ask(self) -> Answer:
        path = self._fresh()
        within = None
        begin = time.perf_counter()
        try:
            verdict = self._put(path)
        except WorkerError as error:
            if self.strict:
                raise _unusable(error) from error
            verdict = Verdict.skipped(reason(error))
            within = self.limits.timeout if error.kind == "timeout" else None
        seconds = time.perf_counter() - begin
        self._judge._count_call(seconds)
        if verdict.outcome is Outcome.SKIPPED:
            if self.strict:
                raise UsageError(f"the oracle skips the original: {verdict.detail}")
            self._judge._count_skip(verdict.detail)
        return Answer(verdict, seconds, within)

    def _fresh(self) -> Path:
        """The case's file; another one when the oracle has changed what it was given before."""
        before = self._path
        self._path = self._judge._store.write(self._case).absolute()
        if before is not None:
            self._judge._store.discard(before)
        return self._path

    def _put(self, path: Path) -> Verdict:
        return persistently(lambda: self._runner.ask(path, inputs_beside(path), self.limits))


def _unusable(error: WorkerError) -> UsageError:
    if error.kind == "timeout":
        return UsageError(
            f"the oracle hangs on the original: {error.message}; give a longer --timeout, "
            "or try it by hand"
        )
    if error.kind == "cpu":
        return UsageError(f"{reason(error)} on the original; allow more by --cpu-time")
    return UsageError(f"the oracle fails on the original: {explain(error)}")


def _not_interesting(exam: _Exam) -> NotInteresting:
    verdict = exam.given[-1]
    count = f" in {len(exam.given)} tries" if len(exam.given) > 2 else ""
    said = f" ({verdict.detail})" if verdict.detail else ""
    return NotInteresting(
        f"the oracle does not find the original interesting{count}{said}: check {exam.advice}"
    )


def _flaky(exam: _Exam) -> Flaky:
    """After a few more questions, to say how often the bug shows and what would allow for it."""
    while len(exam.given) < SURVEY:
        exam.answer()
    asked, yes = len(exam.given), sum(map(bool, exam.given))
    tries = math.ceil(math.log(0.01) / math.log1p(-min(yes / asked, 0.9)))
    return Flaky(
        f"the oracle contradicts itself: it said yes to the original {yes} times out of {asked}. "
        f"If the bug shows only sometimes, add --tries {tries}; if the oracle says yes by "
        "accident, mend it (--confirm 3 helps only where it is right about the original)"
    )
