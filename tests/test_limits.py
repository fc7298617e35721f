"""Budgets and flaky oracles: what is promised for ``--tries``, ``--confirm`` and ``--error``."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from models import parallel_branches

from onnxreduce.oracle.contract import Candidate
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
