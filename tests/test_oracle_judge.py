"""The judge: verdicts from answers, on originals and candidates, steady oracles and flaky ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx.parser
import onnx_ir as ir
import pytest

from onnxreduce.case import Case
from onnxreduce.errors import Flaky, NotInteresting, ReduceError, UsageError
from onnxreduce.modelio import Store, inputs_beside
from onnxreduce.oracle.cache import Cache
from onnxreduce.oracle.judge import Judge
from onnxreduce.oracle.loading import find_oracle
from onnxreduce.oracle.runners import Limits
from onnxreduce.process import WorkerError
from onnxreduce.verdict import Outcome, Verdict

YES = Verdict.interesting()
NO = Verdict.boring()


@dataclass(frozen=True)
class Item:
    """Stands for a case: the judge looks at its digest only."""

    nodes: tuple[int, ...] = (1, 2, 3)

    @property
    def digest(self) -> str:
        return repr(self.nodes)


@dataclass
class Shelf:
    """A store that notes what lies in it; what is held already is not written again."""

    folder: Path
    written: int = 0
    there: Counter[Path] = field(default_factory=Counter)
    items: dict[Path, Item] = field(default_factory=dict)

    def write(self, case: Any) -> Path:
        held = [path for path in self.there if self.items[path] == case]
        if not held:
            self.written += 1
            held = [self.folder / str(self.written) / "model.onnx"]
            self.items[held[0]] = case
        self.there[held[0]] += 1
        return held[0]

    def discard(self, path: Path) -> None:
        assert self.there[path] > 0
        self.there[path] -= 1
        self.there += Counter()  # forgets what nobody holds


class Scripted:
    """A runner that answers what a function says, or what a list holds."""

    def __init__(
        self, answers: Callable[[Path], Verdict] | Iterable[Verdict | WorkerError]
    ) -> None:
        self.restarts = 0
        self.limits: list[Limits] = []
        self._answers = answers if callable(answers) else iter(answers)

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        assert inputs_path == inputs_beside(model_path)
        self.limits.append(limits)
        answer = self._answers(model_path) if callable(self._answers) else next(self._answers)
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        raise WorkerError("exception", "ValueError: no idea")

    def identity(self) -> str:
        return ""

    def restart(self) -> None:
        self.restarts += 1

    def interrupt(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Court:
    judge: Judge
    runner: Scripted
    shelf: Shelf
    cache: Cache

    def original(self, item: Item | None = None) -> Verdict:
        return self.judge.original(item or Item())  # type: ignore[arg-type]

    def verdict(self, *nodes: int) -> Verdict:
        return self.judge.judge(Item(nodes))  # type: ignore[arg-type]


@pytest.fixture
def court(tmp_path: Path) -> Callable[..., Court]:
    def make(answers: Any, cache: Cache | None = None, **options: Any) -> Court:
        runner, shelf = Scripted(answers), Shelf(tmp_path)
        cache = cache or Cache(None, "f")
        return Court(Judge(runner, cache, shelf, **options), runner, shelf, cache)

    return make


def refusal(court: Court, kind: type[ReduceError]) -> str:
    with pytest.raises(kind) as info:
        court.original()
    assert not court.shelf.there
    return str(info.value)


# The original


def test_original_is_asked_twice(court) -> None:
    c = court([Verdict.interesting("max abs 3", "wrong"), Verdict.interesting("", "wrong")])
    assert c.original().detail == "max abs 3"
    assert (c.judge.calls, c.judge.signature, c.shelf.written) == (2, "wrong", 1)
    assert not c.shelf.there


def test_timeout_from_the_first_run(court, monkeypatch) -> None:
    clock = iter([0.0, 3.0, 3.0, 4.0])
    monkeypatch.setattr("onnxreduce.oracle.judge.time.perf_counter", lambda: next(clock))
    c = court([YES, YES], memory=5)
    c.original()
    assert c.judge.timeout == 30
    assert c.runner.limits == [Limits(600, 5), Limits(30, 5)]
    assert c.judge.oracle_seconds == 4


def test_least_timeout_and_a_given_one(court) -> None:
    c = court([YES] * 2)
    c.original()
    assert c.judge.timeout == 10
    c = court([YES] * 2, timeout=3.5)
    c.original()
    assert c.runner.limits == [Limits(3.5)] * 2


def test_original_is_boring(court) -> None:
    message = refusal(court([Verdict.boring("max abs 0")] * 2), NotInteresting)
    assert message.startswith("the oracle does not find the original interesting (max abs 0): ")
    assert NotInteresting.exit_status == 1


def test_boring_original_is_not_remembered(court) -> None:
    cache = Cache(None, "f")
    refusal(court([NO, NO], cache), NotInteresting)
    assert court([YES, YES], cache).original()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (WorkerError("exception", "ValueError: x", "Traceback...\nline"), "ValueError: x\nTrace"),
        (WorkerError("timeout", "no answer within 600 s"), "hangs on the original: no answer"),
        (WorkerError("crash", "SIGABRT", tail="double free\n"), "died: SIGABRT\ndouble free"),
        (WorkerError("cpu", "more than 5 s of processor time"), "took more than 5 s"),
        (WorkerError("memory", "900 MiB of memory in use"), "too much memory: 900 MiB"),
        (Verdict.skipped("no GPU"), "skips the original: no GPU"),
    ],
)
def test_original_without_an_answer(court, error: Any, words: str) -> None:
    assert words in refusal(court([error] * 3), UsageError)
    assert words in refusal(court([YES] + [error] * 3), UsageError)


def test_contradiction_is_flaky_with_advice(court) -> None:
    c = court([YES, NO] + [YES, NO] * 4)
    message = refusal(c, Flaky)
    assert "yes to the original 5 times out of 10" in message
    assert "--tries 7" in message  # 0.5 ** 7 < 1 %
    assert c.judge.calls == 10
    assert "1 times out of 10" in refusal(court([NO, YES] + [NO] * 8), Flaky)
    assert Flaky.exit_status == 4


def test_two_bugs_in_the_original(court) -> None:
    c = court([Verdict.interesting("", "wrong"), Verdict.interesting("", "nan")])
    assert "different bugs in the original: nan and wrong" in refusal(c, Flaky)


def test_tries_allow_for_a_bug_that_shows_sometimes(court) -> None:
    c = court([NO, NO, YES], tries=3)
    assert c.original()
    assert c.judge.calls == 3
    assert "in 9 tries" in refusal(court([NO] * 9, tries=3), NotInteresting)


def test_confirmations_of_the_original(court) -> None:
    c = court([YES] * 4, confirm=3)
    assert c.original()
    assert c.judge.calls == 4
    refusal(court([YES, YES, YES, NO] + [YES] * 6, confirm=3), Flaky)
    c = court([NO, YES, NO, YES, NO, YES], tries=2, confirm=2)
    assert c.original()
    assert c.judge.calls == 6
    refusal(court([YES, NO, NO] + [YES] * 7, tries=2, confirm=1), Flaky)


# Candidates


def test_candidates(court) -> None:
    c = court([YES, NO, Verdict.skipped("no GPU")])
    assert [c.verdict(n).outcome for n in range(3)] == [
        Outcome.INTERESTING,
        Outcome.BORING,
        Outcome.SKIPPED,
    ]
    assert (c.judge.calls, c.judge.skipped, c.shelf.written) == (3, 1, 3)
    assert not c.shelf.there


def test_skips_are_counted_by_reason(court) -> None:
    errors = [WorkerError("crash", "SIGSEGV"), WorkerError("exception", "KeyError: 'a'")]
    c = court([errors[0]] * 3 + [errors[1]] + [errors[0]] * 3 + [YES])
    assert c.verdict(1) == Verdict.skipped("the oracle's process died: SIGSEGV")
    assert c.verdict(2) == Verdict.skipped("the oracle raised KeyError: 'a'")
    assert c.judge.often_skipped == ("the oracle's process died: SIGSEGV", 1)
    c.verdict(3)
    c.verdict(4)
    assert c.judge.often_skipped == ("the oracle's process died: SIGSEGV", 2)
    assert c.judge.skipped == 3


def test_process_that_dies_costs_a_retry(court) -> None:
    killed = WorkerError("crash", "SIGKILL")
    c = court([killed, YES, YES, killed, killed, NO])
    assert c.original()
    assert c.verdict(1).outcome is Outcome.BORING
    assert (c.judge.calls, c.judge.skipped) == (3, 0)


def test_another_bug_is_boring(court) -> None:
    c = court([Verdict.interesting("", s) for s in ("a", "a", "b", "a", None)])
    c.original()
    assert c.verdict(1) == Verdict.boring("another bug: b, the original's is a", "b")
    assert c.verdict(2)
    assert c.verdict(3)
    assert c.verdict(1).outcome is Outcome.BORING  # from the cache as well


def test_cache_answers_again(court) -> None:
    c = court([YES, NO])
    for _ in range(3):
        assert c.verdict(1)
        assert not c.verdict(2)
    assert (c.judge.calls, c.judge.cache_hits, c.shelf.written) == (2, 4, 2)


def test_tries(court) -> None:
    c = court([NO, NO, YES, NO, NO, NO], tries=3)
    assert c.verdict(1)
    assert not c.verdict(2)
    assert c.shelf.written == 2
    assert c.verdict(1)
    assert c.judge.calls == 6


def test_tries_with_skips(court) -> None:
    skip, hang = Verdict.skipped("x"), WorkerError("timeout", "no answer within 1 s")
    c = court([skip, NO, skip, skip, skip, skip, skip, YES, hang], tries=3, timeout=1)
    assert c.verdict(1).outcome is Outcome.BORING
    assert c.verdict(2).outcome is Outcome.SKIPPED
    assert c.verdict(3)
    assert c.verdict(4).outcome is Outcome.SKIPPED  # after one question: a hang is costly


def test_confirm(court) -> None:
    c = court([YES, YES, YES, YES, YES, NO, NO], confirm=2)
    assert c.verdict(1)
    assert not c.verdict(2)
    assert not c.verdict(3)
    assert c.judge.calls == 7


def test_tries_and_confirm_together(court) -> None:
    c = court([NO, YES, YES, NO, YES], tries=2, confirm=2)
    assert c.verdict(1)
    c = court([NO, YES, NO, NO], tries=2, confirm=2)
    assert not c.verdict(1)


def test_resumed_run_asks_nothing_again(court) -> None:
    def play(c: Court) -> list[Verdict]:
        return [c.original(), *(c.verdict(n) for n in (1, 2, 3)), c.judge.final(Item((1,)))]

    rng = random.Random(0)
    cache = Cache(None, "f")
    first = court(lambda path: YES if rng.random() < 0.7 else NO, cache, tries=3, confirm=1)
    said = play(first)
    second = court([], cache, tries=3, confirm=1)
    assert play(second) == said
    assert second.judge.calls == 0
    assert second.judge.timeout == first.judge.timeout


def test_interrupted_run_goes_on_within_a_candidate(court) -> None:
    cache = Cache(None, "f")
    with pytest.raises(StopIteration):
        court([YES, YES], cache, confirm=3).verdict(1)
    c = court([YES, NO], cache, confirm=3)
    assert not c.verdict(1)
    assert c.judge.calls == 2


def test_longer_timeout_asks_again(court) -> None:
    cache = Cache(None, "f")
    hang = WorkerError("timeout", "no answer within 1 s")
    assert not court([hang], cache, timeout=1.0).verdict(1)
    assert not court([], cache, timeout=0.5).verdict(1)
    assert court([YES], cache, timeout=2.0).verdict(1)
    assert court([], cache, timeout=2.0).verdict(1)


def test_final_asks_a_fresh_process(court) -> None:
    c = court([YES, YES, NO])
    assert c.verdict(1)
    assert c.judge.final(Item((1,)))  # type: ignore[arg-type]
    assert c.runner.restarts == 1
    assert not c.judge.final(Item((2,)))  # type: ignore[arg-type]


def test_suspects_that_fail_are_none(court) -> None:
    c = court([])
    assert c.judge.suspects(Item()) == []  # type: ignore[arg-type]
    assert c.judge.often_skipped == ("suspects: the oracle raised ValueError: no idea", 1)
    assert not c.shelf.there


# Flaky oracles: how often a reduction ends where it should


def reduce(court: Court, size: int) -> tuple[int, ...]:
    """Drop chunks of items, halving, to a fixpoint: what any reducer does with verdicts."""
    court.original(Item(tuple(range(size))))
    kept, again = tuple(range(size)), True
    while again:
        again = False
        chunk = len(kept) // 2
        while chunk:
            start = 0
            while start < len(kept):
                candidate = kept[:start] + kept[start + chunk :]
                if candidate and court.verdict(*candidate):
                    kept, again = candidate, True
                else:
                    start += chunk
            chunk //= 2
    return kept


def ends(
    court: Callable[..., Court], seed: int, answer: Callable[..., bool], **options: int
) -> Any:
    """Where a reduction of 32 items ends, when `answer` says whether the culprit is seen."""
    rng = random.Random(seed)

    def ask(path: Path) -> Verdict:
        return YES if answer(17 in c.shelf.items[path].nodes, rng.random()) else NO

    c = court(ask, **options)
    return reduce(c, 32)


def test_bug_that_shows_in_60_percent(court) -> None:
    runs = [ends(court, s, lambda there, luck: there and luck < 0.6, tries=6) for s in range(200)]
    assert runs.count((17,)) >= 190


def test_oracle_that_says_yes_by_accident_in_5_percent(court) -> None:
    runs = [ends(court, s, lambda there, luck: there or luck < 0.05, confirm=3) for s in range(200)]
    assert runs.count((17,)) == 200


def test_without_the_options_it_goes_wrong(court) -> None:
    """So the two simulations above can fail."""
    accident = [ends(court, s, lambda there, luck: there or luck < 0.3) for s in range(50)]
    assert accident.count((17,)) < 40
    shy = [ends(court, s, lambda there, luck: there and luck < 0.6, tries=3) for s in range(50)]
    assert shy.count((17,)) < 48


# The cache


def test_cache_keeps_answers_apart(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    runner, shelf = Scripted([YES, NO]), Shelf(tmp_path)
    one, two = Cache(path, "one"), Cache(path, "two")
    assert Judge(runner, one, shelf).judge(Item())  # type: ignore[arg-type]
    assert not Judge(runner, two, shelf).judge(Item())  # type: ignore[arg-type]
    one.close()
    reopened = Judge(Scripted([]), Cache(path, "one"), shelf)
    assert reopened.judge(Item())  # type: ignore[arg-type]
    two.close()


def test_cache_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    path.write_bytes(b"not a database " * 100)
    cache = Cache(path, "f")
    assert cache.answers("q") == []
    cache.close()


# With real oracles and models


def test_real_oracles(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = %s (x) }'
    oracle = tmp_path / "oracle.py"
    oracle.write_text(
        "import os, time\n"
        "def interesting(case, op='Relu'):\n"
        "    kind = case.model.graph.node[0].op_type\n"
        "    if kind == 'Abs': os.abort()\n"
        "    if kind == 'Exp': raise ValueError('too hot')\n"
        "    if kind == 'Log': time.sleep(60)\n"
        "    return kind == op\n"
    )
    source = find_oracle(str(oracle))
    runner = source.open()
    judge = Judge(
        runner, Cache(None, source.fingerprint()), Store(tmp_path / "work", False), timeout=5
    )

    def case(kind: str) -> Case:
        return Case(ir.from_proto(onnx.parser.parse_model(text % kind)), {})

    try:
        assert judge.original(case("Relu"))
        assert [judge.judge(case(kind)).detail for kind in ("Abs", "Exp", "Log", "Sin")] == [
            "the oracle's process died: SIGABRT",
            "the oracle raised ValueError: too hot",
            "no answer within 5 s",
            "",
        ]
        assert judge.final(case("Relu"))
        assert (judge.calls, judge.skipped) == (7, 3)
        with pytest.raises(UsageError, match=r"fails on the original: .*SIGABRT"):
            judge.original(case("Abs"))
        with pytest.raises(UsageError, match=r"hangs on the original: no answer within 5 s"):
            judge.original(case("Log"))
        with pytest.raises(UsageError, match=r"(?s)too hot\nTraceback.*in interesting"):
            judge.original(case("Exp"))
    finally:
        runner.close()
    left = [p for p in (tmp_path / "work").rglob("*") if p.is_file()]
    assert left == []
