"""Folding, lifting, and inputs that become initializers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference.op_run import OpRun

from onnxreduce.edits import Conflict
from onnxreduce.passes import constants
from tests.drive import case_of, drive, has, planted, record


class Softmax(OpRun):
    """Wrong: forgets to normalise."""

    def _run(self, x, axis=None):
        return (np.exp(x - x.max(axis=axis, keepdims=True)),)


SHAPE_CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3,4] x) => (float[2,12] y) {
  shape = Shape(x)
  zero = Constant<value_int = 0>()
  batch = Gather(shape, zero)
  rest = Constant<value = int64[1] {-1}>()
  axes = Constant<value_ints = [0]>()
  wide = Unsqueeze(batch, axes)
  to = Concat<axis = 0>(wide, rest)
  flat = Reshape(x, to)
  y = Softmax<axis = 1>(flat)
}"""


def test_static_shape_arithmetic_folds_in_one_call():
    run = drive(case_of(SHAPE_CHAIN), [constants], planted(Softmax))
    assert run.ops == ["Reshape", "Softmax"]
    assert [v.name for v in run.case.model.graph.initializers.values()] == ["to"]
    assert run.case.model.graph.initializers["to"].const_value.numpy().tolist() == [2, -1]
    assert run.steps[0] == "fold constants"
    assert run.calls <= 2


def test_a_needed_constant_operator_stays_and_the_rest_folds_around_it():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) <float[4] w = {1, -2, 3, -4}> {
      a = Neg(w)
      b = Abs(a)
      c = Relu(b)
      d = Sqrt(c)
      e = Exp(d)
      y = Add(x, e)
    }"""
    run = drive(case_of(model), [constants], has("Relu", "Add"))
    # The prefix folds; what is after the needed node could only go with it.
    assert run.ops == ["Relu", "Sqrt", "Exp", "Add"]
    assert run.case.model.graph.initializers["b"].const_value.numpy().tolist() == [1, 2, 3, 4]


def test_every_kind_of_constant_is_lifted():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, int64[2] i) => (float[2] y, int64[2] j) {
      a = Constant<value_float = 2.0>()
      b = Constant<value_floats = [1.0, 2.0]>()
      c = Constant<value_int = 3>()
      d = Constant<value_ints = [4, 5]>()
      e = Mul(x, a)
      y = Add(e, b)
      f = Mul(i, c)
      j = Add(f, d)
    }"""
    case = case_of(model, i=np.array([1, 2]))
    run = drive(case, [constants], has("Mul", "Add"))
    assert run.ops == ["Mul", "Add", "Mul", "Add"]
    assert record(run.case)["y"] == pytest.approx(record(case)["y"])
    assert record(run.case)["j"].tolist() == [7, 11]


def test_constants_inside_bodies_fold_and_lift_there():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (bool c, float[2] x) => (float[2] y) {
      y = If(c) <
        then_branch = t () => (float[2] p) {
          two = Constant<value_float = 2.0>()
          four = Mul(two, two)
          p = Mul(x, four)
        },
        else_branch = e () => (float[2] q) { q = Neg(x) }>
    }"""
    case = case_of(model, c=np.array(True))
    run = drive(case, [constants], has("If"))
    assert [n.op_type for n in run.case.model.graph.all_nodes()] == ["If", "Mul", "Neg"]
    assert record(run.case)["y"] == pytest.approx(4 * case.inputs["x"])


def test_random_operators_are_not_constant():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y) {
      r = RandomNormal<shape = [2]>()
      n = Neg(r)
      y = Add(x, n)
    }"""
    run = drive(case_of(model), [constants], has("Add"))
    assert run.ops == ["RandomNormal", "Neg", "Add"]
    assert run.calls == 0


def test_old_models_keep_their_initializers_as_inputs_until_that_is_tried():
    model = """<ir_version: 3, opset_import: ["": 9]>
    g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> {
      v = Neg(w)
      y = Mul(x, v)
    }"""
    case = case_of(model)
    run = drive(case, [constants], lambda c: has("Mul")(c) and c.model.ir_version == 3)
    assert run.ops == ["Mul"]
    assert [v.name for v in run.case.model.graph.inputs] == ["x", "v"]
    assert list(run.case.inputs) == ["x"]
    run = drive(case, [constants], has("Mul"))
    assert [v.name for v in run.case.model.graph.inputs] == ["x"]
    assert run.case.model.graph.initializers["v"].const_value.numpy().tolist() == [-1, -2]


def test_a_default_that_was_fed_becomes_what_it_was_fed():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"""
    case = case_of(model, w=np.array([5, 6], np.float32))
    fed = constants.Unlist(("w",)).apply(case)
    assert list(fed.inputs) == ["x"]
    assert record(fed)["y"] == pytest.approx(case.inputs["x"] * [5, 6])


def test_second_operands_are_frozen_and_the_last_input_never():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] w, float[4,2] x, float[3] b) => (float[4,3] y) {
      m = MatMul(x, w)
      y = Add(m, b)
    }"""
    run = drive(case_of(model), [constants], has("MatMul", "Add"))
    assert [v.name for v in run.case.model.graph.inputs] == ["x"]
    assert set(run.case.model.graph.initializers) == {"w", "b"}
    assert run.calls == 1
    with pytest.raises(Conflict):
        constants.Freeze(("x",)).apply(run.case)


def test_an_input_whose_readers_have_no_other_varying_operand_stays():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float[2] z) => (float[2] y) { n = Neg(z) y = Add(x, n) }"""
    run = drive(case_of(model), [constants], has("Neg"))
    # z alone feeds Neg, which would fold; x has the varying n beside it.
    assert [v.name for v in run.case.model.graph.inputs] == ["z"]


def test_a_condition_is_not_frozen():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (bool c, float[2] x) => (float[2] y) {
      y = If(c) <then_branch = t () => (float[2] p) { p = Abs(x) },
                 else_branch = e () => (float[2] q) { q = Neg(x) }>
    }"""
    assert not constants.may_freeze(case_of(model, c=np.array(True)).model, ["c"])


def test_what_is_declared_stays_as_declared():
    proto = onnx.parser.parse_model(SHAPE_CHAIN.replace("float[2,12] y", "float[N,M] y"))
    folded = constants.FoldAll().apply(case_of(proto))
    assert [str(d) for d in folded.model.graph.outputs[0].shape] == ["N", "M"]
    assert not any(v.metadata_props for n in folded.model.graph for v in n.outputs)
