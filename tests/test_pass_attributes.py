"""Attributes towards their defaults and least values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as RightConv

from onnxreduce.edits import Conflict
from onnxreduce.passes import attributes
from tests.drive import case_of, drive, has, planted

CONV = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,2,8,8] x, float[2,2,3,3] w) => (float[1,2,4,4] y) {
  c = Conv<auto_pad = "SAME_UPPER", strides = [2, 2], dilations = [1, 1], group = 1,
           kernel_shape = [3, 3]>(x, w)
  e = Elu<alpha = 0.731>(c)
  y = LeakyRelu<alpha = 0.2>(e)
}"""


class Conv(RightConv):
    """Wrong: pads SAME_UPPER as SAME_LOWER when strides are above 1."""

    def _run(self, x, w, b=None, auto_pad=None, strides=None, **attributes):
        if auto_pad == "SAME_UPPER" and strides and max(strides) > 1:
            auto_pad = "SAME_LOWER"
        return super()._run(x, w, b, auto_pad=auto_pad, strides=strides, **attributes)


class Elu(OpRun):
    """Wrong for every alpha but 1."""

    def _run(self, x, alpha=None):
        y = np.where(x > 0, x, 1.0 * (np.exp(x) - 1)).astype(x.dtype)
        return (y,)


class MaxPool(OpRun):
    """Wrong from a kernel of 5 on."""

    threshold = 5


def test_only_what_the_bug_needs_is_left():
    run = drive(case_of(CONV), [attributes], planted(Conv))
    assert set(run.case.model.graph[0].attributes) == {"auto_pad", "strides"}
    assert not run.case.model.graph[1].attributes
    assert not run.case.model.graph[2].attributes
    strides = run.case.model.graph[0].attributes["strides"].as_ints()
    # One stride of 2 is enough.
    assert sorted(strides) == [1, 2]


def test_all_at_once_costs_one_call():
    run = drive(case_of(CONV), [attributes], has("Conv", "Elu", "LeakyRelu"))
    assert run.calls == 1
    assert all(not n.attributes for n in run.case.model.graph)
    assert run.case.model.graph.outputs[0].shape == (1, 2, 6, 6)


def test_a_float_that_has_to_stay_gets_round():
    run = drive(case_of(CONV), [attributes], planted(Elu))
    (setting,) = run.case.model.graph[1].attributes.values()
    assert setting.as_float() == 0.0


def test_required_attributes_are_not_dropped():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,8,8] x) => (float[1,1,N,M] y) {
      p = MaxPool<kernel_shape = [7, 5], strides = [2, 1], pads = [1, 2, 1, 2]>(x)
      y = Concat<axis = 1>(p)
    }"""

    def wide(case):
        kernel = case.model.graph[0].attributes.get("kernel_shape")
        return kernel is not None and kernel.as_ints()[0] >= 5

    run = drive(case_of(model), [attributes], wide)
    assert set(run.case.model.graph[0].attributes) == {"kernel_shape"}
    assert tuple(run.case.model.graph[0].attributes["kernel_shape"].as_ints()) == (5, 1)
    assert run.case.model.graph[1].attributes["axis"].as_int() == 0


@pytest.mark.parametrize("least", [0, 1, 2, 3, 7, 33, 64])
def test_an_integer_ends_at_its_threshold_in_logarithmic_calls(least):
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N] x) => (float[N] y) { y = custom.Op<level = 100>(x) }"""
    case = case_of(model.replace('["": 17]', '["": 17, "custom": 1]'))
    calls = 0
    proposals = attributes.edits(case)
    answer = None
    while True:
        try:
            edit = proposals.send(answer)
        except StopIteration:
            break
        candidate = edit.apply(case)
        level = candidate.model.graph[0].attributes.get("level")
        calls += 1
        answer = candidate if level is not None and level.as_int() >= least else None
        case = answer or case
    assert case.model.graph[0].attributes["level"].as_int() == least
    assert calls <= 2 * 7 + 1


def test_what_is_gone_is_a_conflict():
    case = case_of(CONV)
    for edit in (
        attributes.DropAttributes(((((), "c"), "pads"),)),
        attributes.DropAttributes(((((), "gone"), "group"),)),
        attributes.SetAttribute((((), "c"), "group"), 1),
        attributes.SetAttribute((((), "c"), "pads"), (0, 0, 0, 0)),
    ):
        with pytest.raises(Conflict):
            edit.apply(case)


def test_counts_and_codes_are_no_numbers():
    model = """<ir_version: 8, opset_import: ["": 18]>
    g (float[4] x) => (float16[2] y, float[2] b) {
      a, b = Split<num_outputs = 2>(x)
      y = Cast<to = 10>(a)
    }"""
    proposals = list(attributes.edits(case_of(model)))
    assert not any(isinstance(edit, attributes.SetAttribute) for edit in proposals)


def test_what_describes_a_weight_or_does_not_fit_costs_no_question():
    """A kernel of 7 on one pixel needs its pads; groups and kernels change with the weight."""
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2,1,1] x, float[2,1,7,7] w) => (float[1,2,1,1] y) {
      y = Conv<kernel_shape = [7, 7], pads = [3, 3, 3, 3], strides = [2, 2], group = 2>(x, w)
    }"""
    run = drive(case_of(model), [attributes], lambda case: len(case.model.graph[0].attributes) == 4)
    (conv,) = run.case.model.graph
    assert run.invalid == 0
    assert conv.attributes["strides"].as_ints() == (1, 1)
    assert conv.attributes["pads"].as_ints() == (3, 3, 3, 3)
    assert conv.attributes["kernel_shape"].as_ints() == (7, 7)
    assert conv.attributes["group"].as_int() == 2


def test_pads_go_as_far_as_the_kernel_allows():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,3,3] x) => (float[1,1,N,M] y) {
      y = MaxPool<kernel_shape = [4, 4], pads = [2, 2, 2, 2], strides = [3, 3]>(x)
    }"""

    def wide(case):
        names = case.model.graph[0].attributes
        return "pads" in names and names["kernel_shape"].as_ints()[0] == 4

    run = drive(case_of(model), [attributes], wide)
    assert run.invalid == 0
    (pool,) = run.case.model.graph
    assert sum(pool.attributes["pads"].as_ints()[::2]) == 1
