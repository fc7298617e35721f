"""The search for the smallest size: exact, and in few questions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreduce.dims.sizes import STRIDED, Sizes, descend, smallest


def answer(sizes: Sizes, works: Callable[[int], bool]) -> tuple[int, list[int]]:
    asked: list[int] = []
    try:
        size = next(sizes)
        while True:
            assert size not in asked
            asked.append(size)
            size = sizes.send(works(size))
    except StopIteration as stop:
        return stop.value, asked


PREDICATES: dict[str, Callable[[int, int, int], bool]] = {
    "any": lambda n, t, k: True,
    "at least": lambda n, t, k: n >= t,
    "odd": lambda n, t, k: n >= t and n % 2 == 1,
    "even": lambda n, t, k: n >= t and n % 2 == 0,
    "multiple": lambda n, t, k: n >= t and n % k == 0,
    "no multiple": lambda n, t, k: n >= t and n % k != 0,
}


@given(
    st.sampled_from(sorted(PREDICATES)),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.sampled_from([2, 3, 4, 5, 6, 7, 8, 16, 32]),
)
def test_is_exact(kind: str, known: int, threshold: int, factor: int) -> None:
    def works(size: int) -> bool:
        return PREDICATES[kind](size, threshold, factor)

    while not works(known):
        known += 1
    found, asked = answer(smallest(1, known), works)
    assert found == next(size for size in range(1, known + 1) if works(size))
    assert all(1 <= size < known for size in asked)


def test_thresholds_cost_the_logarithm() -> None:
    for known in (65, 1025, 65536, 10**6):
        for threshold in (1, 2, 3, 64, 65, known // 3, known - 1, known):
            found, asked = answer(smallest(1, known), lambda size, t=threshold: size >= t)
            assert found == threshold
            assert len(asked) <= 2 * known.bit_length() + 5


def test_costs_few_questions_on_average() -> None:
    rng = random.Random(0)
    counts = []
    while len(counts) < 2000:
        known = rng.choice([rng.randint(2, 16), rng.randint(2, 300), rng.randint(2, 2048)])
        threshold = rng.choice([1, rng.randint(1, known), min(known, 2 ** rng.randint(0, 10))])
        kind, factor = rng.choice(sorted(PREDICATES)), rng.choice([2, 3, 4, 8, 16])
        if PREDICATES[kind](known, threshold, factor):
            works = lambda n: PREDICATES[kind](n, threshold, factor)  # noqa: B023, E731
            counts.append(len(answer(smallest(1, known), works)[1]))
    assert sum(counts) / len(counts) < 8.5


@pytest.mark.parametrize("known", [50, 101, 224])
def test_strided_steps_see_parity_behind_a_stride(known: int) -> None:
    def works(size: int) -> bool:
        return -(-size // 2) % 2 == known // 2 % 2 and size >= 9

    start = next(size for size in range(known, known + 4) if works(size))
    found, _ = answer(smallest(1, start, STRIDED), works)
    assert works(found)
    assert found < 14


def test_descends_from_a_fixpoint_in_few_questions() -> None:
    found, asked = answer(descend(1, 65), lambda size: size >= 65)
    assert found == 65
    assert len(asked) <= 3


def test_nothing_to_ask_at_the_least() -> None:
    assert answer(smallest(3, 3), lambda size: True) == (3, [])
