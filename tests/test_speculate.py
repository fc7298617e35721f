"""Looking ahead changes when questions are put, never what is made of the answers."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxreduce import search, speculate
from onnxreduce.asking import Overdue, ask_alone
from onnxreduce.case import Case
from onnxreduce.chances import Chances
from onnxreduce.edits import Proposals
from onnxreduce.engine import Engine, Question, Straight
from onnxreduce.schedule import Fewer, Stage
from onnxreduce.speculate import SPARE, Speculation
from onnxreduce.surgery import DeleteNodes, KeepNodes
from onnxreduce.verdict import Outcome, Verdict
from onnxreduce.walk import Walk


def line(length: int) -> Case:
    body = "".join(f"v{i + 1} = Relu (v{i}) " for i in range(length))
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] v0) => (float[2] v{length})'
    return Case(ir.from_proto(onnx.parser.parse_model(f"{head} {{ {body} }}")), {})


def keys(case: Case) -> list[str]:
    return [str(node.outputs[0].name) for node in case.model.graph]


class Values:
    """Enough of a recording: what a line computes is of no interest."""

    made_up = False

    def get(self, name: str) -> None:
        return None

    def type_of(self, name: str) -> None:
        return None


def windows(case: Case) -> Proposals:
    yield from search.window(keys(case), lambda some: KeepNodes(tuple(sorted(some))))


def halves(case: Case) -> Proposals:
    yield from search.halving(keys(case), _drop, all_at_once=False)


def singles(case: Case) -> Proposals:
    yield from search.to_fixpoint(keys(case), _drop, all_at_once=False)


def fails(case: Case) -> Proposals:
    yield _drop(frozenset(keys(case)[:1]))
    raise ZeroDivisionError("a mistake in a pass")


@dataclass(frozen=True)
class Afresh:
    """An edit after which nothing is known of the values."""

    edit: DeleteNodes

    def describe(self) -> str:
        return self.edit.describe()

    def apply(self, case: Case) -> Case:
        candidate = self.edit.apply(case)
        return Case(candidate.model, candidate.inputs)


def afresh(case: Case) -> Proposals:
    yield from search.halving(keys(case), lambda some: Afresh(_drop(some)), all_at_once=False)


def _drop(some: frozenset[str]) -> DeleteNodes:
    return DeleteNodes(tuple(sorted(some)))


def stages(broken: bool, records: bool) -> list[Stage]:
    row = [
        Stage("windows", windows, Fewer(), records),
        Stage("halves", halves, Fewer()),
        Stage("singles", singles, records=records),
    ]
    return [Stage("fails", fails), *row] if broken else row


@dataclass
class Oracle:
    """Says yes, no or invalid by a hash of the candidate: no order in it that could help."""

    salt: int
    yes: float
    questions: list[str] = field(default_factory=list)

    def __call__(self, case: Case) -> Verdict:
        digest = hashlib.sha256(f"{self.salt} {case.digest}".encode()).digest()
        if digest[0] < 40:
            return Verdict.invalid("by chance")
        if digest[1] < 255 * self.yes:
            return Verdict.interesting()
        return Verdict.boring()


class FakeDesk:
    """Answers in threads, in no particular order; counts what is held."""

    seconds = 0.002
    """What an answer takes at most."""

    def __init__(self, oracle: Oracle, jobs: int) -> None:
        self.jobs = jobs
        self.held: list[Case] = []
        self.asked: list[str] = []
        self.recorded: list[str] = []
        self.most = 0
        self._busy = 0
        self._oracle = oracle
        self._lock = threading.Lock()
        self._rng = random.Random(oracle.salt)
        self._checks, self._asks = ThreadPoolExecutor(jobs), ThreadPoolExecutor(jobs + SPARE)

    def check(self, case: Case) -> Future[str | None]:
        return self._checks.submit(self._check, case)

    def _check(self, case: Case) -> str | None:
        time.sleep(self._rng.random() / 1000)
        verdict = self._oracle(case)
        if verdict.outcome is Outcome.INVALID:
            return verdict.detail
        with self._lock:
            self.held.append(case)
        return None

    def ask(self, case: Case) -> Future[Verdict]:
        return self._asks.submit(self._ask, case)

    def _ask(self, case: Case) -> Verdict:
        with self._lock:
            self.asked.append(case.digest)
            self._busy += 1
            self.most = max(self.most, self._busy)
        time.sleep(self._rng.random() * self.seconds)
        with self._lock:
            self._busy -= 1
        return self._oracle(case)

    def record(self, case: Case) -> Future[Case]:
        return self._checks.submit(self._record, case)

    def _record(self, case: Case) -> Case:
        with self._lock:
            self.recorded.append(case.digest)
        return case.with_recording(Values())

    def cancel(self, verdict: Future[Verdict]) -> None:
        verdict.cancel()

    def release(self, case: Case) -> None:
        with self._lock:
            self.held = [other for other in self.held if other is not case]

    def close(self) -> None:
        self._checks.shutdown()
        self._asks.shutdown()


class Run:
    """An observer that writes down what it sees."""

    def __init__(self, oracle: Oracle, jobs: int | None) -> None:
        self.log: list[tuple[str, ...]] = []
        self.recordings: list[str] = []
        self._oracle = oracle
        self._ahead: Speculation | None = None
        self.desk = FakeDesk(oracle, jobs or 1)
        self._jobs = jobs

    def path(self, walk: Walk, recorded) -> Straight | Speculation:
        if self._jobs is None:
            return Straight(walk, recorded)
        self._ahead = Speculation(walk, recorded, self.desk)
        return self._ahead

    def ask(self, question: Question) -> Verdict:
        verdict = self._ahead.verdict() if self._ahead else self._oracle(question.case)
        self.log.append((question.stage, question.edit, question.case.digest, verdict.outcome.name))
        return verdict

    def stage(self, name: str) -> None:
        self.log.append(("stage", name))

    def accepted(self, question: Question, verdict: Verdict) -> None:
        self.log.append(("accepted", question.case.digest))

    def recorded(self, case: Case) -> Case:
        self.recordings.append(case.digest)
        return case if case.recording is not None else case.with_recording(Values())

    def broken(self, stage: str, error: Exception) -> None:
        self.log.append(("broken", stage, type(error).__name__))

    def close(self) -> None:
        if self._ahead:
            self._ahead.close()
        self.desk.close()


def reduce(
    oracle: Oracle,
    length: int,
    jobs: int | None,
    broken: bool = False,
    records: bool = False,
    row: list[Stage] | None = None,
) -> Run:
    run = Run(oracle, jobs)
    engine = Engine(line(length), run, run.path)
    try:
        engine.run(row or stages(broken, records))
    finally:
        run.close()
    run.log.append(("end", engine.case.digest))
    return run


@settings(max_examples=40, deadline=None)
@given(
    salt=st.integers(0, 10**6),
    yes=st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]),
    length=st.integers(2, 14),
    jobs=st.integers(1, 5),
    broken=st.booleans(),
    records=st.booleans(),
)
def test_any_number_of_jobs_takes_the_same_way(
    salt: int, yes: float, length: int, jobs: int, broken: bool, records: bool
) -> None:
    oracle = Oracle(salt, yes)
    straight = reduce(oracle, length, None, broken, records)
    ahead = reduce(oracle, length, jobs, broken, records)
    assert ahead.log == straight.log
    assert set(ahead.recordings) <= set(straight.recordings)  # none of another way is told of
    assert ahead.desk.most <= jobs + SPARE
    assert not ahead.desk.held


def test_recordings_ahead_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculate, "PATIENT", -1.0)
    monkeypatch.setattr(FakeDesk, "seconds", 0.04)
    monkeypatch.setattr(speculate, "LIKELY", 0.0)
    row = [Stage("afresh", afresh, records=True), Stage("singles", singles, records=True)]
    made = 0  # how many come in time is up to the machine
    for salt in range(4):
        oracle = Oracle(salt, 0.6)
        straight = reduce(oracle, 12, None, row=row)
        ahead = reduce(oracle, 12, 3, row=row)
        made += len(ahead.desk.recorded)
        assert ahead.log == straight.log
        assert set(ahead.recordings) <= set(straight.recordings)  # none of another way is told of
        assert not ahead.desk.held
    assert made


def test_several_are_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDesk, "seconds", 0.04)
    run = reduce(Oracle(1, 0.1), 12, 3, broken=False, records=False)
    assert run.desk.most >= 3


def test_pass_that_does_not_repeat_itself_is_left_out() -> None:
    count = iter(range(1000))

    def fickle(case: Case) -> Proposals:
        some = keys(case)
        for _ in some:
            yield _drop(frozenset([some[next(count) % len(some)]]))

    oracle = Oracle(5, 0.5)
    run = Run(oracle, 2)
    engine = Engine(line(12), run, run.path)
    engine.run([Stage("fickle", fickle), Stage("singles", singles)])
    run.close()
    assert all(entry[1] in ("fickle",) for entry in run.log if entry[0] == "broken")
    accepted = [entry[1] for entry in run.log if entry[0] == "accepted"]
    assert engine.case.digest == accepted[-1]


def test_no_verdict_in_time() -> None:
    late = threading.Event()

    class Slow(FakeDesk):
        def _ask(self, case: Case) -> Verdict:
            late.wait()
            return Verdict.boring()

    desk = Slow(Oracle(3, 0.5), 1)
    desk._oracle = lambda case: Verdict.boring()
    walk = Walk(line(4), [Stage("singles", singles)])
    ahead = Speculation(walk, lambda case: case, desk)
    with pytest.raises(Overdue):
        ahead.verdict(lambda: 0.1)
    with pytest.raises(Overdue):
        ask_alone(desk, line(3), 0.1)
    late.set()
    ahead.close()
    desk.close()


def test_errors_of_the_desk_arrive() -> None:
    class Broken(FakeDesk):
        def _ask(self, case: Case) -> Verdict:
            raise OSError(28, "No space left on device")

    run = Run(Oracle(3, 0.5), 2)
    run.desk = Broken(Oracle(3, 0.5), 2)
    with pytest.raises(OSError, match="No space"):
        Engine(line(8), run, run.path).run(stages(broken=False, records=False))
    run.close()


def test_killed_questions_are_asked_again_when_their_turn_comes() -> None:
    class Killing(FakeDesk):
        kills = 0

        def _ask(self, case: Case) -> Verdict:
            if self._rng.random() < 0.4:
                self.kills += 1
                raise CancelledError
            return super()._ask(case)

    oracle = Oracle(11, 0.2)
    straight = reduce(oracle, 12, None, broken=False, records=False)
    run = Run(oracle, 3)
    run.desk = Killing(oracle, 3)
    engine = Engine(line(12), run, run.path)
    engine.run(stages(broken=False, records=False))
    run.close()
    assert run.desk.kills
    assert run.log == straight.log[:-1]


def test_chances_come_from_the_table_and_then_from_the_run() -> None:
    walk = Walk(line(4), [Stage("tidy", singles), Stage("odd", singles)])
    walk.go_on(lambda case: case)
    chances = Chances()
    first = walk.position()
    assert chances.yes(first) > 0.9
    for _ in range(20):
        chances.learn(first, False)
    assert chances.yes(first) < 0.2
    walk.answer(False, lambda case: case)
    assert chances.yes(walk.position()) < 0.2  # after a no
    later = replace(first, round=2)
    assert chances.yes(later) < 0.1
    unknown = replace(first, question=replace(first.question, stage="odd"))
    assert 0.1 < chances.yes(unknown) < 0.9


def test_positions_tell_rounds_and_questions() -> None:
    walk = Walk(line(3), [Stage("singles", singles)])
    walk.go_on(lambda case: case)
    seen = []
    while walk.question is not None:
        position = walk.position()
        seen.append((position.round, position.asked))
        again = Walk.at(position).position()
        assert (again.round, again.asked) == seen[-1]
        walk.answer(len(seen) == 1, lambda case: case)
    assert seen == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
