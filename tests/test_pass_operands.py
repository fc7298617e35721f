"""Inputs of one shape and initializers of one content merge; weights take over from biases."""

from __future__ import annotations

import numpy as np
import pytest

from onnxreduce.edits import Conflict
from onnxreduce.passes import operands, optional
from tests.drive import case_of, drive, has, planted
from tests.test_pass_optional import Conv

JOIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,2] a, float[1,2] b, float[3,2] c, float[1,2] d) => (float[N,2] y)
<float[2] u = {1, 2}, float[2] v = {1, 2}, float[2] w = {2, 1}> {
  p = Add(a, u)
  q = Mul(b, v)
  r = Sub(c, w)
  y = Concat<axis = 0>(p, q, r, d)
}"""


def test_everything_alike_merges_in_two_calls():
    run = drive(case_of(JOIN), [operands], has("Add", "Mul", "Sub", "Concat"))
    assert run.calls == 2
    assert set(run.case.inputs) == {"a", "c"}
    assert set(run.case.model.graph.initializers) == {"u", "w"}


def test_only_what_may_merge_does():
    def three(case):
        return len(case.inputs) >= 3 and len(case.model.graph.initializers) >= 3

    run = drive(case_of(JOIN), [operands], three)
    assert len(run.case.inputs) == 3
    assert set(run.case.model.graph.initializers) == {"u", "v", "w"}


def test_merging_equal_initializers_changes_no_value():
    case = case_of(JOIN)
    merged = operands.Merge((("u", "v"),)).apply(case)
    assert planted()(merged) == planted()(case)
    with pytest.raises(Conflict):
        operands.Merge((("u", "gone"),)).apply(case)
    with pytest.raises(Conflict):
        operands.Merge((("a", "c"),)).apply(case)


RELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,1,1,1] x) => (float[1,1,1,1] y)
<float[1,1,1,1] w = {0}, float[1] b = {-3}> {
  c = Conv(x, w, b)
  y = Relu(c)
}"""


def negative(case):
    """Something must reach the Relu that it changes."""
    conv = case.model.graph[0]
    x = float(np.asarray(case.inputs["x"]).ravel()[0])
    w, *b = [float(v.const_value.numpy().ravel()[0]) for v in conv.inputs[1:]]
    return x * w + (b[0] if b else 0.0) < 0


@pytest.mark.parametrize("x", [-2.0, 0.0, 3.0])
def test_a_weight_takes_over_from_the_bias(x):
    case = case_of(RELU, x=np.full((1, 1, 1, 1), x, np.float32))
    run = drive(case, [optional], negative)
    assert len(run.case.model.graph[0].inputs) == 2
    assert run.calls <= 3


def test_a_bias_that_is_the_bug_stays():
    run = drive(case_of(RELU.replace("-3", "3")), [optional], planted(Conv))
    assert len(run.case.model.graph[0].inputs) == 3
