"""Numbers that a person would have written."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx.reference.op_run import OpRun

from onnxreduce.case import Case
from onnxreduce.complexity import array_complexity
from onnxreduce.edits import Conflict
from onnxreduce.passes import values
from onnxreduce.passes._recipes import KEEP, cook, recipes, special
from tests.drive import case_of, drive, has, planted

DENSE = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {WWW}> { m = MatMul(x, w) y = Relu(m) }"""
DENSE = DENSE.replace("WWW", ", ".join(f"{0.137 * (i % 7) - 0.3:.6f}" for i in range(16)))

ELEMENTWISE = """<ir_version: 8, opset_import: ["": 17]>
g (float[N] x) => (float[N] y) { y = Abs(x) }"""


class Relu(OpRun):
    """Wrong: gives every second element of a row half of what it is."""

    def _run(self, x):
        y = np.maximum(x, 0)
        y[..., 1::2] /= 2
        return (y,)


def weight(case: Case) -> np.ndarray:
    return case.model.graph.initializers["w"].const_value.numpy()


def test_a_bug_that_needs_no_values_costs_one_call():
    run = drive(case_of(DENSE), [values], has("MatMul"))
    assert run.calls == 1
    assert not weight(run.case).any()
    assert not run.case.inputs["x"].any()


def test_a_bug_in_wrong_values_ends_at_zeros_and_ones():
    run = drive(case_of(DENSE), [values], planted(Relu))
    everything = np.concatenate([weight(run.case).ravel(), run.case.inputs["x"].ravel()])
    assert set(everything) <= {0.0, 1.0}
    assert run.calls <= 40


@pytest.mark.parametrize("needed", [np.nan, np.inf, -np.inf, 1e-40])
def test_special_values_that_the_bug_needs_are_kept(needed):
    x = np.linspace(-3.3, 4.7, 12, dtype=np.float32)
    x[5] = needed

    def interesting(case: Case) -> bool:
        held = case.inputs["x"]
        return bool(
            np.isnan(held).any() if np.isnan(needed) else (held == np.float32(needed)).any()
        )

    run = drive(case_of(ELEMENTWISE, x=x), [values], interesting)
    rest = np.delete(run.case.inputs["x"], 5)
    assert not rest.any()
    assert run.calls <= 4


def test_negative_zero_is_kept_when_it_is_the_bug():
    x = np.array([1.5, -0.0, 2.5], np.float32)

    def interesting(case: Case) -> bool:
        held = case.inputs["x"]
        return bool((np.signbit(held) & (held == 0)).any())

    run = drive(case_of(ELEMENTWISE, x=x), [values], interesting)
    assert run.case.inputs["x"].tolist() == [0, 0, 0]
    assert interesting(run.case)


def test_few_digits_when_small_integers_do_not_do():
    x = np.array([0.123456, 7.654321, -3.14159], np.float32)

    def interesting(case: Case) -> bool:
        return bool(0.1 < case.inputs["x"][0] < 0.3)

    run = drive(case_of(ELEMENTWISE, x=x), [values], interesting)
    assert run.case.inputs["x"].tolist() == pytest.approx([0.1, 0, 0], abs=0.11)
    assert len(str(run.case.inputs["x"][0])) <= 4


def test_scattered_elements_are_found():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(256).astype(np.float32) + 3

    def interesting(case: Case) -> bool:
        return bool(case.inputs["x"][77] > 1.5 and case.inputs["x"][200] > 1.5)

    run = drive(case_of(ELEMENTWISE, x=x), [values], interesting)
    assert np.count_nonzero(run.case.inputs["x"]) <= 16
    assert (run.case.inputs["x"] == np.rint(run.case.inputs["x"])).all()
    assert run.calls <= 90


@pytest.mark.parametrize(("count", "least"), [(9, 3), (9, 1), (100, 64), (5, 5)])
def test_integers_end_at_the_least_that_show_the_bug(count, least):
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[128] x) => (float[K] y, int64[K] i) <int64[1] k = {KKK}> {
      y, i = TopK(x, k)
    }""".replace("KKK", str(count))

    def interesting(case: Case) -> bool:
        return int(case.model.graph.initializers["k"].const_value.numpy()[0]) >= least

    run = drive(case_of(model), [values], interesting)
    assert run.case.model.graph.initializers["k"].const_value.numpy().tolist() == [least]
    assert run.calls <= 4 + 2 * np.log2(count)


def test_sequences_get_shorter():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }"""
    items = [np.full(2, i, np.float32) for i in range(7)]
    case = Case(ir.from_proto(onnx.parser.parse_model(model)), {"s": items})
    run = drive(case, [values], lambda c: len(c.inputs["s"]) >= 2)
    assert len(run.case.inputs["s"]) == 2
    assert not any(item.any() for item in run.case.inputs["s"])


def test_narrow_types_and_booleans():
    model = """<ir_version: 10, opset_import: ["": 21]>
    g (bfloat16[4] x, bool[4] c, uint8[4] u) => (bfloat16[4] y, uint8[4] v) {
      n = Neg(x) y = Where(c, n, x) v = Max(u)
    }"""
    x = np.array([1.5, -2.25, 3, 0.1], ml_dtypes.bfloat16)
    case = case_of(model, x=x, c=np.array([True, False, True, True]), u=np.arange(4, dtype="u1"))
    for edit in values.edits(case):
        changed = edit.apply(case)
        assert changed.inputs["x"].dtype == ml_dtypes.bfloat16
        assert changed.inputs["c"].dtype == bool


def test_a_target_that_is_gone_is_a_conflict():
    case = case_of(DENSE)
    gone = values.Target((), "initializer", "gone")
    there = values.Target((), "initializer", "w")
    for edit in (
        values.Fill("zeros", (gone,)),
        values.Fill("identity", (values.Target((), "input", "x"),)),
        values.FillElements("zeros", there, (99,)),
        values.SetElement(gone, 0, 1),
        values.DropItems("x", (0,)),
    ):
        with pytest.raises(Conflict):
            edit.apply(case)


arrays = st.one_of(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)),
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)),
    hnp.arrays(np.float16, hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)),
    hnp.arrays(np.bool_, hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)),
)


@given(arrays)
@settings(max_examples=150, deadline=None)
def test_recipes_keep_shape_and_dtype_and_special_values(array):
    for recipe in recipes(array):
        made = cook(recipe, array)
        assert (made.shape, made.dtype) == (array.shape, array.dtype)
        if recipe.endswith(KEEP):
            where = special(array)
            assert made[where].tobytes() == array[where].tobytes()
    zeros = cook("zeros", array)
    assert array_complexity(zeros) <= array_complexity(array)
