"""The search on integers alone: a set of integers is interesting when it holds what is needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxreduce import search

Predicate = Callable[[frozenset[int]], bool]


class Driver:
    """Plays the engine: asks only about strictly smaller sets, and counts the questions."""

    def __init__(self, count: int, interesting: Predicate) -> None:
        self.current = frozenset(range(count))
        self.asked: list[frozenset[int]] = []
        self._interesting = interesting

    def keep(self, items: frozenset[int]) -> frozenset[int]:
        return items

    def drop(self, items: frozenset[int]) -> frozenset[int]:
        return self.current - items

    def run(self, strategy: search.Strategy[frozenset[int], int]) -> list[int]:
        answer = None
        while True:
            try:
                question = strategy.send(answer)
            except StopIteration as stop:
                left = list(stop.value)
                break
            assert question < self.current, "a question must be smaller than what there is"
            assert question not in self.asked, "asked twice"
            self.asked.append(question)
            answer = True if self._interesting(question) else None
            if answer:
                self.current = question
        assert frozenset(left) == self.current
        return left


def holds(*needed: int) -> Predicate:
    return lambda items: items >= frozenset(needed)


def strategies(driver: Driver, count: int) -> dict[str, Callable[[], Any]]:
    items = range(count)
    return {
        "window": lambda: search.window(items, driver.keep),
        "islands": lambda: search.islands(items, driver.keep),
        "guess": lambda: search.guess(items, driver.keep, {}),
        "halving": lambda: search.halving(items, driver.drop, all_at_once=False),
        "chunks": lambda: search.chunks(items, driver.drop, all_at_once=False),
        "sweep": lambda: search.sweep(items, driver.drop, 3, all_at_once=False),
        "fixpoint": lambda: search.to_fixpoint(items, driver.drop, all_at_once=False),
    }


NAMES = sorted(strategies(Driver(1, holds()), 1))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_every_strategy_keeps_what_is_needed(name: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 24))
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    driver = Driver(count, holds(*needed))
    left = driver.run(strategies(driver, count)[name]())
    assert needed <= set(left)
    assert left == sorted(left)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 24))
def test_every_strategy_survives_a_predicate_that_is_not_monotone(
    name: str, seed: int, count: int
) -> None:
    def interesting(items: frozenset[int]) -> bool:
        return random.Random(f"{seed}{sorted(items)}").random() < 0.3

    driver = Driver(count, interesting)
    left = driver.run(strategies(driver, count)[name]())
    assert len(left) == count or interesting(frozenset(left))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 33, 100, 1000])
def test_window_comes_close_to_any_run(count: int) -> None:
    for start, length in product(range(0, count, max(1, count // 7)), (1, 2, 5, 40)):
        needed = range(start, min(count, start + length))
        driver = Driver(count, holds(*needed))
        left = driver.run(search.window(range(count), driver.keep))
        assert set(needed) <= set(left)
        assert len(left) <= 1.25 * len(needed) + 1


def test_window_costs_about_a_binary_search() -> None:
    count = 176
    costs = []
    for place in range(count):
        driver = Driver(count, holds(place))
        driver.run(search.window(range(count), driver.keep))
        costs.append(len(driver.asked))
    assert sum(costs) / count < 9  # log2(176) = 7.5
    assert max(costs) <= 13


def test_heavy_items_are_found_sooner() -> None:
    heavy = dict.fromkeys(range(8, 200, 37), 16)

    def cost(place: int, weights: dict[int, int]) -> int:
        driver = Driver(200, holds(place))
        left = driver.run(search.window(range(200), driver.keep, weights=weights))
        assert left == [place]
        return len(driver.asked)

    with_weights = sum(cost(place, heavy) for place in heavy)
    assert with_weights <= sum(cost(place, {}) for place in heavy) - len(heavy)


def test_window_stops_early_when_told() -> None:
    driver = Driver(100, holds(50))
    left = driver.run(search.window(range(100), driver.keep, until=16))
    assert 50 in left
    assert len(left) <= 16
    assert len(driver.asked) <= 7


def test_far_apart_culprits_cost_less_than_ddmin() -> None:
    """Mean calls for two of 176 needed: classic ddmin takes about 48 here."""
    costs = []
    for seed in range(40):
        pair = random.Random(seed).sample(range(176), 2)
        driver = Driver(176, holds(*pair))
        left = driver.run(search.islands(range(176), driver.keep))
        assert set(pair) <= set(left)
        assert len(left) <= 8
        costs.append(len(driver.asked))
    assert sum(costs) / len(costs) < 22


def test_islands_find_culprits_at_both_ends_and_between() -> None:
    driver = Driver(200, holds(0, 117, 199))
    assert driver.run(search.islands(range(200), driver.keep)) == [0, 117, 199]
    assert len(driver.asked) < 35


def test_guess_finds_a_group_in_about_as_many_questions_as_bits() -> None:
    groups = {frozenset({k, k + 3, k + 7}): 1.0 for k in range(20)}
    costs = []
    for group in groups:
        driver = Driver(32, holds(*group))
        assert frozenset(driver.run(search.guess(range(32), driver.keep, groups))) == group
        costs.append(len(driver.asked))
    assert sum(costs) / len(costs) < 9


def test_guess_ignores_groups_with_strangers() -> None:
    driver = Driver(4, holds(1, 2))
    left = driver.run(search.guess(range(4), driver.keep, {frozenset({1, 2, 99}): 5.0}))
    assert left == [1, 2]


def test_nearest_takes_the_first_ring_and_asks_none_twice() -> None:
    driver = Driver(20, holds(9, 10, 11))
    rings = [frozenset({10}), frozenset({10}), frozenset(range(8, 13)), frozenset(range(5, 16))]
    assert driver.run(search.nearest(rings, driver.keep)) == list(range(8, 13))
    assert len(driver.asked) == 2


def test_nearest_gives_nothing_when_no_ring_is_accepted() -> None:
    strategy = search.nearest([frozenset({1}), frozenset({2})], lambda ring: ring)
    assert next(strategy) == {1}
    assert strategy.send(None) == {2}
    with pytest.raises(StopIteration) as stop:
        strategy.send(None)
    assert stop.value.value == []


def test_halving_drops_everything_first() -> None:
    asked = []
    strategy = search.halving(range(64), lambda items: items)
    asked.append(next(strategy))
    with pytest.raises(StopIteration) as stop:
        strategy.send(True)
    assert asked == [frozenset(range(64))]
    assert stop.value.value == []


def test_halving_is_cheap_for_a_few() -> None:
    driver = Driver(256, holds(200))
    assert driver.run(search.halving(range(256), driver.drop, all_at_once=False)) == [200]
    assert len(driver.asked) <= 16


def test_sweep_goes_backwards() -> None:
    strategy = search.sweep("abcde", lambda items: "".join(sorted(items)), 2)
    assert [next(strategy), strategy.send(None), strategy.send(True)] == ["de", "bc", "a"]


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_fixpoint_is_one_minimal_even_without_monotony(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    yes = data.draw(st.sets(st.integers(1, 2**count - 2))) if count > 1 else set()
    driver = Driver(count, lambda items: sum(1 << k for k in items) in yes)
    strategy = search.to_fixpoint(range(count), driver.drop, all_at_once=False)
    left = set(driver.run(strategy))
    for item in left:
        assert sum(1 << k for k in left - {item}) not in yes


def collect(strategy: Any, accept: Callable[[Collection[int]], bool]) -> list[Any]:
    asked: list[Any] = []
    answer = None
    while True:
        try:
            asked.append(strategy.send(answer))
        except StopIteration:
            return asked
        answer = True if accept(asked[-1]) else None


@pytest.mark.parametrize("name", NAMES)
def test_strategies_are_deterministic(name: str) -> None:
    def once() -> list[frozenset[int]]:
        driver = Driver(20, holds(3, 11))
        driver.run(strategies(driver, 20)[name]())
        return driver.asked

    assert once() == once()


def test_an_empty_list_asks_nothing() -> None:
    for strategy in (
        search.window([], frozenset),
        search.islands([], frozenset),
        search.guess([], frozenset, {}),
        search.halving([], frozenset),
        search.chunks([], frozenset),
        search.to_fixpoint([], frozenset),
    ):
        assert collect(strategy, lambda items: False) == []
