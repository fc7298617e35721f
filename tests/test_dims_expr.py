"""Unification of axis expressions, and the indices and sizes that follow from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreduce.dims.expr import (
    UNIT,
    Expr,
    SizeMismatch,
    Space,
    Sym,
    leaves,
    normal,
    product,
    total,
)
from onnxreduce.dims.keep import keep
from onnxreduce.dims.solve import Driven, Plan, System, solve
from onnxreduce.edits import Conflict


def shape(expr: Expr) -> str:
    """The expression by sizes."""
    expr = normal(expr)
    if isinstance(expr, Sym):
        return str(expr.size)
    mark = "*" if not hasattr(expr, "parts") or type(expr).__name__ == "Prod" else "+"
    return "(" + mark.join(map(shape, expr.parts)) + ")" if expr.parts else "1"


def test_symbols_become_one() -> None:
    space = Space()
    a, b, c = (space.fresh(5) for _ in range(3))
    space.unify(a, b)
    space.unify(b, c)
    assert normal(a) is normal(c)


def test_size_one_is_unit() -> None:
    assert Space().fresh(1) is UNIT


def test_sizes_must_agree() -> None:
    space = Space()
    with pytest.raises(SizeMismatch):
        space.unify(space.fresh(4), space.fresh(5))


def test_a_rigid_symbol_freezes_what_it_meets() -> None:
    space = Space()
    whole, a, b = space.fresh(6, rigid=True), space.fresh(2), space.fresh(3)
    space.unify(whole, product((a, b)))
    assert all(leaf.rigid for leaf in leaves(whole))
    other = space.fresh(7)
    space.unify(other, space.fresh(7, rigid=True))
    assert all(leaf.rigid for leaf in leaves(other))


def test_products_split_where_a_factor_divides() -> None:
    space = Space()
    a, b, c, d = space.fresh(12), space.fresh(5), space.fresh(4), space.fresh(15)
    space.unify(product((a, b)), product((c, d)))
    assert shape(a) == "(4*3)"
    assert shape(d) == "(3*5)"
    assert not space.constraints


def test_products_peel_from_the_right_too() -> None:
    space = Space()
    last, other = space.fresh(7), space.fresh(7)
    left = product((space.fresh(4), space.fresh(9), last))
    right = product((space.fresh(6), space.fresh(6), other))
    space.unify(left, right)
    assert normal(last) is normal(other)
    assert len(space.constraints) == 1


def test_shuffled_factors_only_tie_sizes() -> None:
    space = Space()
    space.unify(
        product((space.fresh(80), space.fresh(3))), product((space.fresh(3), space.fresh(80)))
    )
    assert [(shape(pair.left), shape(pair.right)) for pair in space.constraints] == [
        ("(80*3)", "(3*80)")
    ]


def test_sums_split_the_longer_segment() -> None:
    space = Space()
    a, b, c, d = space.fresh(3), space.fresh(7), space.fresh(5), space.fresh(5)
    space.unify(total((a, b)), total((c, d)))
    assert (shape(c), shape(b)) == ("(3+2)", "(2+5)")


def test_a_product_meets_a_sum_by_its_first_factor() -> None:
    space = Space()
    outer, inner = space.fresh(5), space.fresh(4)
    space.unify(product((outer, inner)), total((space.fresh(8), space.fresh(12))))
    assert shape(outer) == "(2+3)"
    space = Space()
    space.unify(product((space.fresh(5), space.fresh(4))), total((space.fresh(7), space.fresh(13))))
    assert len(space.constraints) == 1


def test_kept_indices_of_products_and_sums() -> None:
    space = Space()
    a, b = Sym(1, 3), Sym(2, 4)
    kept = {a: np.array([0, 2]), b: np.array([1, 3])}
    assert keep(product((a, b)), kept).tolist() == [1, 3, 9, 11]
    assert keep(total((b, a, space.fresh(2))), kept).tolist() == [1, 3, 4, 6, 7, 8]
    assert keep(space.fresh(9), kept) is None


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]]]:
    sizes = draw(st.lists(st.integers(2, 5), min_size=2, max_size=4))
    kept = [
        sorted(draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size))) for size in sizes
    ]
    cut = draw(st.integers(1, len(sizes) - 1))
    return sizes, [cut], kept


@given(grids())
def test_kept_indices_survive_reshape(grid: tuple[list[int], list[int], list[list[int]]]) -> None:
    """Slicing a tensor and reshaping it is the same as reshaping it and slicing that."""
    sizes, (cut,), kept = grid
    symbols = [Sym(i, size) for i, size in enumerate(sizes)]
    chosen = {s: np.array(k) for s, k in zip(symbols, kept, strict=True)}
    data = np.arange(np.prod(sizes)).reshape(sizes)
    merged = data.reshape(int(np.prod(sizes[:cut])), int(np.prod(sizes[cut:])))
    rows, columns = keep(product(symbols[:cut]), chosen), keep(product(symbols[cut:]), chosen)
    expected = data[np.ix_(*kept)].reshape(len(rows), len(columns))
    assert np.array_equal(merged[np.ix_(rows, columns)], expected)


def halved(symbol: Sym) -> Driven:
    axis = Sym(100 + symbol.serial, -(-symbol.size // 2))
    return Driven(axis, lambda size: -(-size(symbol) // 2), "stride 2")


def test_driven_sizes_follow() -> None:
    a = Sym(1, 32)
    first = halved(a)
    assert isinstance(first.axis, Sym)
    second = halved(first.axis)
    system = System(driven=[first, second])
    system.settle({a: 1})
    plan = solve(system, {a: 9})
    assert (plan.size(first.axis), plan.size(second.axis)) == (5, 3)


def test_a_skip_connection_leaves_multiples() -> None:
    """Down by two and up by two meets the original: only even sizes go."""
    a = Sym(1, 32)
    down = halved(a)
    up = Driven(a, lambda size: 2 * size(down.axis), "resize")
    system = System(driven=[down, up])
    system.settle({a: 1})
    assert [n for n in range(1, 12) if feasible(system, a, n)] == [2, 4, 6, 8, 10]


def feasible(system: System, symbol: Sym, size: int) -> bool:
    try:
        return solve(system, {symbol: size}).size(symbol) == size
    except Conflict:
        return False


def test_stored_axes_do_not_grow_and_rigid_ones_do_not_move() -> None:
    a, b = Sym(1, 8), Sym(2, 8, rigid=True)
    system = System()
    system.settle({a: 1})
    for symbol, size in ((a, 9), (a, 0), (b, 4)):
        assert not feasible(system, symbol, size)
    assert Plan({}).size(product((a, b))) == 64


def test_a_kernel_pulls_the_input_along() -> None:
    """The output of a window that must stay is kept by changing what it reads."""
    length, kernel = Sym(1, 7), Sym(2, 7)
    system = System(driven=[Driven(UNIT, lambda size: size(length) - size(kernel) + 1, "window")])
    system.settle({length: 1, kernel: 1})
    assert solve(system, {kernel: 3}).size(length) == 3


def test_tied_sizes_move_together() -> None:
    space = Space()
    a, b, c, d = space.fresh(80), space.fresh(3), space.fresh(3), space.fresh(80)
    assert isinstance(a, Sym)
    space.unify(product((a, b)), product((c, d)))
    system = System(same=space.constraints)
    system.settle(dict.fromkeys((*leaves(a), *leaves(b), *leaves(c), *leaves(d)), 1))
    plan = solve(system, {a: 40})
    assert plan.size(product((a, b))) == plan.size(product((c, d))) == 120
