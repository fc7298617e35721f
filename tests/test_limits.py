"""Budgets and flaky oracles: what is promised for ``--tries``, ``--confirm`` and ``--error``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from models import parallel_branches

from onnxreduce.errors import Flaky, OutOfTime
from onnxreduce.oracle.contract import Candidate
from onnxreduce.oracle.flaky import Rate, survey, tail
from onnxreduce.reducer import reduce


def kinds(case: Candidate) -> set[str]:
    return {node.op_type for node in case.model.graph.node}


def shows_sometimes(seed: int, share: float) -> Callable[[Candidate], bool]:
    """A bug of one node that shows only in a share of the questions, and nowhere else."""
    rng = random.Random(seed)
    return lambda case: "Tanh" in kinds(case) and rng.random() < share


def yes_by_accident(seed: int, share: float) -> Callable[[Candidate], bool]:
    """A bug of one node; other candidates are called interesting by accident."""
    rng = random.Random(seed)
    return lambda case: "Tanh" in kinds(case) or rng.random() < share


@pytest.mark.slow
def test_tries_find_a_bug_that_shows_sometimes() -> None:
    ends = []
    for seed in range(20):
        result = reduce(parallel_branches(), shows_sometimes(seed, 0.6), tries=6)
        ends.append([node.op_type for node in result.reduced.model.graph])
    print("one node left in", ends.count(["Tanh"]), "of 20 runs")
    assert ends.count(["Tanh"]) >= 19


@pytest.mark.slow
def test_confirmations_refuse_accidents() -> None:
    ends = []
    for seed in range(20):
        result = reduce(parallel_branches(), yes_by_accident(seed, 0.05), confirm=3)
        ends.append([node.op_type for node in result.reduced.model.graph])
    print("uninteresting results:", sum("Tanh" not in end for end in ends), "of 20 runs")
    assert all("Tanh" in end for end in ends)


def test_error_chooses_tries() -> None:
    result = reduce(parallel_branches(), shows_sometimes(3, 0.6), error=1e-3)
    assert [node.op_type for node in result.reduced.model.graph] == ["Tanh"]
    assert any("shows only sometimes" in note for note in result.notes)
    assert result.settings["tries"] >= 8  # 0.4 ** 8 < 1e-3
    assert result.settings["confirm"] == 0


def test_error_chooses_confirmations() -> None:
    result = reduce(parallel_branches(), yes_by_accident(3, 0.1), error=1e-3)
    assert "Tanh" in [node.op_type for node in result.reduced.model.graph]
    assert any("yes by accident" in note for note in result.notes)
    assert result.settings["tries"] == 1
    assert result.settings["confirm"] >= 2  # 0.1 ** 3 = 1e-3


def test_hopeless_oracle_is_refused() -> None:
    rng = random.Random(2)
    with pytest.raises(Flaky, match="does not tell them apart"):
        reduce(parallel_branches(), lambda case: rng.random() < 0.5, error=1e-3)
    with pytest.raises(Flaky, match="0 of"):
        reduce(parallel_branches(), lambda case: False, error=1e-3)


def often(seed: int, share: float) -> Callable[[], bool]:
    rng = random.Random(seed)
    return lambda: rng.random() < share


@pytest.mark.parametrize(
    ("shows", "accidents"),
    [(0.3, 0.0), (0.6, 0.0), (0.9, 0.0), (1.0, 0.0), (1.0, 0.02), (1.0, 0.1), (0.9, 0.02)],
)
def test_survey_keeps_the_bound(shows: float, accidents: float) -> None:
    error, broken, questions = 1e-2, 0, []
    for seed in range(200):
        plan = survey(often(2 * seed, shows), often(2 * seed + 1, accidents), error)
        rounds = 1 + plan.confirm
        missed = 1 - (1 - (1 - shows) ** plan.tries) ** rounds
        believed = (1 - (1 - accidents) ** plan.tries) ** rounds
        # What is so rare that the survey did not see it is promised nothing.
        noticed = plan.shows.yes < plan.shows.asked, plan.accidents.yes > 0
        broken += (missed > error and noticed[0]) or (believed > error and noticed[1])
        questions.append(plan.shows.asked + plan.accidents.asked)
    assert broken <= 8
    assert sum(questions) / 200 < (100 if accidents == 0 else 300)


def test_limits_of_a_rate() -> None:
    assert Rate(5, 10).least(0.025) == pytest.approx(0.1871, abs=1e-3)  # Clopper and Pearson
    assert Rate(5, 10).most(0.025) == pytest.approx(0.8129, abs=1e-3)
    assert Rate(0, 10).least(0.05) == 0
    assert Rate(10, 10).least(0.05) == pytest.approx(0.05**0.1, abs=1e-6)
    assert tail(0, 5, 0.3) == pytest.approx(1)


def test_patience() -> None:
    result = reduce(parallel_branches(), lambda case: "Tanh" in kinds(case), patience=1)
    assert result.stopped_by == "patience"
    assert not result.one_minimal
    whole = reduce(parallel_branches(), lambda case: "Tanh" in kinds(case), patience=1000)
    assert whole.stopped_by is None


@pytest.mark.parametrize(("setup", "first"), [(60, 0), pytest.param(0, 60, marks=pytest.mark.slow)])
def test_seconds_bound_what_comes_first(setup: int, first: int, tmp_path: Path) -> None:
    oracle = tmp_path / "oracle.py"
    oracle.write_text(
        "import time\n"
        f"def setup():\n    time.sleep({setup})\n"
        f"def interesting(case):\n    time.sleep({first})\n    return True\n"
    )
    output = tmp_path / "out"
    with pytest.raises(OutOfTime, match="before the oracle had judged the original") as caught:
        reduce(parallel_branches(), oracle, output=output, max_seconds=2)
    assert caught.value.exit_status == 3
    assert not output.exists()


@pytest.mark.slow
def test_seconds_bound_the_confirmation(tmp_path: Path) -> None:
    """The second process is slow to start: the result is there, but not confirmed."""
    oracle = tmp_path / "oracle.py"
    oracle.write_text(
        "import pathlib, time\n"
        f"second = pathlib.Path({str(tmp_path / 'second')!r})\n"
        "def setup():\n"
        "    if second.exists():\n"
        "        time.sleep(250)\n"
        "    second.touch()\n"
        "def interesting(case):\n"
        "    return 'Tanh' in [node.op_type for node in case.model.graph.node]\n"
    )
    result = reduce(parallel_branches(), oracle, output=tmp_path / "out", max_seconds=60, jobs=1)
    assert (result.stopped_by, result.confirmed) == ("max-seconds", False)
    assert [node.op_type for node in result.reduced.model.graph] == ["Tanh"]


def test_seconds_and_calls() -> None:
    began = time.monotonic()

    def slow(case: Candidate) -> bool:
        time.sleep(0.2)
        return "Tanh" in kinds(case)

    result = reduce(parallel_branches(), slow, max_seconds=4)
    assert result.stopped_by in ("max-seconds", None)
    assert time.monotonic() - began < 30
    few = reduce(parallel_branches(), lambda case: "Tanh" in kinds(case), max_calls=5, jobs=3)
    assert few.stopped_by == "max-calls"
    assert few.oracle_calls <= 5
