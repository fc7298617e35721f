from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxreduce.compare import Tolerance, compare, compare_arrays


def test_the_summary_names_the_worst_element() -> None:
    expected = np.zeros((1, 1, 4, 5), np.float32)
    expected[0, 0, 3, 4] = 2.1
    actual = expected.copy()
    actual[0, 0, 3, 4] = 0.442
    found = compare({"Y": expected}, {"Y": actual}, Tolerance(1e-3))
    assert found.summary() == "max abs 1.658 at Y[0,0,3,4] (expected 2.1, actual 0.442)"
    assert found.kind == "values"
    assert found.worst.mismatched == 1
    assert found.worst.total == 20


@given(
    hnp.arrays(np.float32, (7,), elements=st.floats(width=32)),
    hnp.arrays(np.float32, (7,), elements=st.floats(width=32)),
    st.sampled_from([0.0, 1e-3, 1.0, 1e9]),
    st.sampled_from([0.0, 1e-5, 0.1]),
)
def test_agreement_is_that_of_numpy(
    expected: np.ndarray, actual: np.ndarray, atol: float, rtol: float
) -> None:
    wide = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = np.isclose(*wide, rtol=rtol, atol=atol, equal_nan=True)
    found = compare_arrays(expected, actual, Tolerance(atol, rtol))
    assert (found.kind == "same") == wanted.all()
    assert found.mismatched == (~wanted).sum()
    if not wanted.all():
        assert not wanted[found.worst]


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([np.int64, np.uint64]),
)
def test_wide_integers_are_compared_exactly(a: int, b: int, dtype: type) -> None:
    if dtype is np.uint64:
        a, b = a + 2**63, b + 2**63
    found = compare_arrays(np.array([a], dtype), np.array([b], dtype))
    assert (found.kind == "same") == (a == b)
    assert found.max_abs == pytest.approx(abs(a - b), rel=1e-15)
    assert found.expected == str(a)


@pytest.mark.parametrize(
    ("expected", "actual", "kind", "text"),
    [
        (np.ones((1, 3)), np.ones((3, 1)), "shape", "shape of y: expected [1,3], actual [3,1]"),
        (
            np.ones(2, np.float32),
            np.ones(2, np.float16),
            "dtype",
            "dtype of y: expected float32, actual float16",
        ),
        (
            np.array([1.0, 2.0]),
            np.array([1.0, np.nan]),
            "nonfinite",
            "y[1]: expected 2, actual nan (1 of 2 elements differ)",
        ),
        (
            np.array([np.inf]),
            np.array([-np.inf]),
            "nonfinite",
            "y[0]: expected inf, actual -inf (1 of 1 elements differ)",
        ),
        (np.float32(1.5), np.float32(2.5), "values", "max abs 1 at y (expected 1.5, actual 2.5)"),
        (
            np.array(["a", "b"], object),
            np.array(["a", "c"]),
            "values",
            "max abs 1 at y[1] (expected 'b', actual 'c')",
        ),
        (
            np.array([True]),
            np.array([False]),
            "values",
            "max abs 1 at y[0] (expected True, actual False)",
        ),
    ],
)
def test_kinds(expected: np.ndarray, actual: np.ndarray, kind: str, text: str) -> None:
    found = compare_arrays(expected, actual, name="y")
    assert found.kind == kind
    assert found.summary() == text


def test_non_finite_values_in_the_same_places_agree() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert compare_arrays(values, values.copy()).kind == "same"


def test_the_worst_output_names_the_comparison() -> None:
    one = np.ones(2, np.float32)
    found = compare(
        {"a": one, "b": one, "c": one, "d": one},
        {"a": one, "b": one + 9, "c": np.array([1, np.nan], np.float32), "d": one},
    )
    assert found.kind == "nonfinite"
    assert [d.name for d in found.wrong] == ["b", "c"]
    assert compare({"a": one}, {}).summary() == "a: expected a value, actual none"


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_ulps_count_the_numbers_between(dtype: type) -> None:
    smallest = np.array([1], f"u{np.dtype(dtype).itemsize}").view(dtype)
    found = compare_arrays(-smallest, smallest)
    assert found.ulps == 2  # through zero, of which there is one
    one = np.array([1], dtype)
    following = (one.view(f"u{one.itemsize}") + 3).astype(f"u{one.itemsize}").view(dtype)
    assert compare_arrays(one, following).ulps == 3


def test_integers_have_no_ulps_and_zero_no_angle() -> None:
    found = compare_arrays(np.zeros(2, np.int32), np.ones(2, np.int32))
    assert found.ulps is None
    assert found.cosine is None
    small = compare_arrays(np.array([1, 2], ml_dtypes.int4), np.array([1, 3], ml_dtypes.int4))
    assert small.ulps is None
    assert small.max_abs == 1
    assert small.expected == "2"


def test_cosine_of_large_and_of_opposite_vectors() -> None:
    large = np.array([3e200, 4e200])
    assert compare_arrays(large, large * 2, Tolerance(rtol=9)).cosine == pytest.approx(1)
    assert compare_arrays(large, -large, Tolerance(rtol=9)).cosine == pytest.approx(-1)


def test_sequences_and_optionals() -> None:
    one, two = np.ones(1), np.full(1, 2.0)
    assert compare({"s": [one, one]}, {"s": [one, two]}).summary().startswith("max abs 1 at s.1[0]")
    assert compare({"s": [one]}, {"s": [one, one]}).kind == "shape"
    assert compare({"s": None}, {"s": None}).agree
    assert compare({"s": None}, {"s": one}).kind == "dtype"


def test_figures() -> None:
    found = compare_arrays(np.float32([1, 2]), np.float32([1, 3]))
    assert found.figures() == (
        "max rel 0.5, mean abs 0.5, 4194304 ulps, cosine 0.989949, 1 of 2 elements out of tolerance"
    )


def test_empty_tensors_agree() -> None:
    assert compare({"y": np.ones((0, 3))}, {"y": np.ones((0, 3))}).agree
    assert compare({"y": np.ones((0, 3))}, {"y": np.ones((3, 0))}).kind == "shape"


def test_complex_values() -> None:
    found = compare_arrays(np.array([1 + 1j]), np.array([1 - 1j]))
    assert found.max_abs == 2
    assert found.ulps is None


def test_a_share_of_the_largest_value_is_allowed() -> None:
    expected, actual = np.float32([100, 0]), np.float32([100, 2])
    assert compare_arrays(expected, actual, Tolerance(scale=0.03)).kind == "same"
    assert compare_arrays(expected, actual, Tolerance(scale=0.01)).kind == "values"
    assert str(Tolerance(1e-3, scale=0.01)) == "atol=0.001, rtol=0, scale=0.01"
