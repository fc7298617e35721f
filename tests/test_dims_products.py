"""The smallest product of sizes, and the smallest size: the true least, in O(log n) questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as choices
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Net
from test_dims import recorded
from test_pass_dims import input_shape, shrink

from onnxreduce.case import Case
from onnxreduce.dims import analyse
from onnxreduce.dims.classes import prices
from onnxreduce.dims.factors import Factors
from onnxreduce.dims.solve import Plan


def vector(*shape: int) -> Case:
    net = Net()
    return net.case(net.op("Relu", net.image(*shape)))


def made(caps: Sequence[int]) -> set[int]:
    """Every product, by brute force."""
    return {prod(factors) for factors in choices(*(range(1, cap + 1) for cap in caps))}


@given(st.lists(st.integers(1, 14), min_size=1, max_size=4), st.integers(1, 5000))
def test_products_are_all_there_are(caps: list[int], size: int) -> None:
    every = made(caps)
    found = Factors(caps).at_least(size)
    assert found == min((number for number in every if number >= size), default=None)
    if found is not None:
        splits = list(Factors(caps).splits(found))
        assert len(splits) == len(set(splits)) > 0
        for split in splits:
            assert prod(split) == found
            assert all(factor <= cap for factor, cap in zip(split, caps, strict=True))


def test_products_of_long_axes() -> None:
    assert Factors((100_000, 100_000)).at_least(9_999_800_002) == 9_999_900_000
    assert Factors((2048, 7, 7)).at_least(1025) == 1025


@pytest.mark.parametrize("least", [101, 401, 1025, 1031, 1033, 2001])
def test_number_of_elements(least: int) -> None:
    """Not round, and often a number that no sizes come to: the next one that they do."""
    run = shrink(vector(64, 7, 5), lambda case: prod(input_shape(case)) >= least)
    assert prod(input_shape(run.case)) == min(n for n in made((64, 7, 5)) if n >= least)
    assert run.calls <= 70


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(2, 20), min_size=2, max_size=3), st.data())
def test_any_number_of_elements(caps: list[int], data: st.DataObject) -> None:
    least = data.draw(st.integers(1, prod(caps)))
    run = shrink(vector(*caps), lambda case: prod(input_shape(case)) >= least)
    assert prod(input_shape(run.case)) == min(n for n in made(caps) if n >= least)
    assert run.calls <= 20 + 5 * prod(caps).bit_length()


@pytest.mark.parametrize("size", [10, 100, 1000, 10_000, 100_000])
def test_thresholds_cost_the_logarithm(size: int) -> None:
    for least in {2, size // 3, size - 1}:
        run = shrink(vector(size), lambda case, t=least: input_shape(case)[0] >= t)
        assert input_shape(run.case) == (least,)
        assert run.calls <= 2 * size.bit_length() + 16


KINDS: dict[str, Callable[[int, int], bool]] = {
    "any": lambda n, k: True,
    "odd": lambda n, k: n % 2 == 1,
    "multiple": lambda n, k: n % k == 0,
    "no multiple": lambda n, k: n % k != 0,
}


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(2, 2000),
    st.floats(0, 1),
    st.sampled_from([2, 3, 4, 5, 8]),
)
def test_any_condition_on_a_size(kind: str, size: int, part: float, factor: int) -> None:
    least = max(1, round(part * size))

    def shows(n: int) -> bool:
        return n >= least and KINDS[kind](n, factor)

    while not shows(size):
        size += 1
    run = shrink(vector(size), lambda case: shows(input_shape(case)[0]))
    assert input_shape(run.case)[0] == next(n for n in range(1, size + 1) if shows(n))
    assert run.calls <= 4 * size.bit_length() + 32


def test_batch_that_is_no_multiple_of_four() -> None:
    run = shrink(vector(22, 6), lambda case: input_shape(case)[0] > 4 and input_shape(case)[0] % 4)
    assert input_shape(run.case) == (5, 1)


def test_odd_height() -> None:
    net = Net()
    case = net.case(net.conv(net.image(1, 3, 31, 12), 3, 4))
    run = shrink(case, lambda case: input_shape(case)[2] % 2 == 1 and input_shape(case)[2] > 6)
    assert input_shape(run.case) == (1, 1, 7, 1)


def test_values_survive_where_groups_meet_a_concatenation() -> None:
    """Two readings of the axes compete there; a bug in certain values of the input shrinks under
    them as well."""
    net = Net()
    x = net.image(1, 8, 6, 6)
    joined = net.op("Concat", net.conv(x, 8, 12), net.conv(x, 8, 12), axis=1)
    case = net.case(net.conv(net.op("Relu", joined), 24, 24, group=6))
    needed = {float(value) for value in np.asarray(case.inputs["x"])[0, 3, 2, 2:4]}

    def shows(candidate: Case) -> bool:
        return needed <= set(np.asarray(candidate.inputs["x"]).ravel().tolist())

    run = shrink(case, shows)
    assert shows(run.case)
    assert run.case.size.elements < 40


def test_what_one_more_index_costs() -> None:
    net = Net()
    a, b = net.op("MatMul", net.image(5, 6), net.weight(6, 4)), net.weight(5, 3)
    case = recorded(net.case(net.op("Add", net.op("Concat", a, b, axis=1), net.weight(7))))
    analysis = analyse(case)
    costs = prices(analysis, Plan({}))
    found = {symbol.size: costs[symbol] for symbol in analysis.classes}
    assert found == {5: 6 + 3, 6: 5 + 4, 4: 6 + 1, 3: 5 + 1}
    rows, *_ = (symbol for symbol in analysis.classes if symbol.size == 5)
    small = prices(analysis, analysis.plan({rows: 2}))
    assert [small[s] for s in analysis.classes if s.size == 6] == [2 + 4]
