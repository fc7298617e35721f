"""Optional and variadic inputs, unread outputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as RightConv

from onnxreduce.edits import Conflict
from onnxreduce.passes import optional
from tests.drive import case_of, drive, has, planted, valid


class Concat(OpRun):
    """Wrong: forgets its second-last input's sign."""

    def _run(self, *args, axis=None):
        args = list(args)
        if len(args) > 1:
            args[-2] = -args[-2]
        return (np.concatenate(args, axis=axis),)


class Conv(RightConv):
    """Wrong: adds the bias twice."""

    def _run(self, x, w, b=None, **attributes):
        (y,) = super()._run(x, w, b, **attributes)
        return (y if b is None else y + b.reshape(1, -1, 1, 1),)


def test_every_optional_input_at_once_and_what_made_it():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,4,4] x, float[2,1,3,3] w, float[2] v) => (float[1,2,2,2] y) <float lo = {-1}> {
      b = Neg(v)
      c = Conv(x, w, b)
      y = Clip(c, lo)
    }"""
    run = drive(case_of(model), [optional], has("Conv", "Clip"))
    assert run.calls == 1
    assert run.ops == ["Conv", "Clip"]
    assert [v.name for v in run.case.model.graph.inputs] == ["x", "w"]
    assert list(run.case.inputs) == ["x", "w"]
    assert not run.case.model.graph.initializers


def test_a_needed_bias_stays():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,4,4] x, float[2,1,3,3] w, float[2] b) => (float[1,2,2,2] y) <float lo = {-9}> {
      c = Conv(x, w, b)
      y = Clip(c, lo)
    }"""
    run = drive(case_of(model), [optional], planted(Conv))
    conv, clip = run.case.model.graph
    assert [len(conv.inputs), len(clip.inputs)] == [3, 1]


def test_an_input_in_the_middle_is_left_out_not_shifted():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) <float lo = {-1}, float hi = {1}> { y = Clip(x, lo, hi) }"""

    def bounded_above(case):
        return [v is not None for v in case.model.graph[0].inputs][2:] == [True]

    run = drive(case_of(model), [optional], bounded_above)
    assert [v and v.name for v in run.case.model.graph[0].inputs] == ["x", None, "hi"]


@pytest.mark.parametrize("count", [2, 3, 7, 12])
def test_concat_ends_at_what_the_bug_needs(count):
    names = [f"x{i}" for i in range(count)]
    inputs = ", ".join(f"float[1,2] {name}" for name in names)
    model = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({inputs}) => (float[1,{2 * count}] y) {{ y = Concat<axis = 1>({", ".join(names)}) }}"""
    run = drive(case_of(model), [optional], planted(Concat))
    assert len(run.case.model.graph[0].inputs) == 2
    assert len(run.case.model.graph.inputs) == 2
    # The declared shape of the output follows.
    assert run.case.model.graph.outputs[0].shape == (1, 4)
    assert run.calls <= 3 + 2 * np.log2(count)


def test_shapes_declared_downstream_of_a_shorter_concat_go():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2] a, float[1,2] b, float[1,M] c) => (float[1,K] y)
    <float[1,6] r, float[1,6] s> { r = Concat<axis = 1>(a, b, c) s = Relu(r) y = Neg(s) }"""
    case = optional.DropInputs(((((), "r"), 1),)).apply(case_of(model))
    assert valid(case)
    assert [v.shape for node in case.model.graph for v in node.outputs][:2] == [None, None]
    # Declared dims of the graph's own outputs that say nothing static could be right: they stay.
    assert len(case.model.graph.outputs[0].shape) == 2


def test_sums_and_maxima_too_but_not_the_variables_of_a_loop():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] a, float[2] b, float[2] c) => (float[2] y) {
      s = Sum(a, b, c)
      m = Max(s, a, b)
      y = Mean(m)
    }"""
    run = drive(case_of(model), [optional], has("Sum", "Max"))
    assert [len(n.inputs) for n in run.case.model.graph] == [1, 1, 1]
    assert run.calls == 1
    loop = """<ir_version: 8, opset_import: ["": 17]>
    g (int64 n, bool c, float[2] x) => (float[2] y) {
      y = Loop(n, c, x) <body = b (int64 i, bool ci, float[2] s) => (bool co, float[2] t)
        { co = Identity(ci) t = Neg(s) }>
    }"""
    case = case_of(loop, n=np.array(2), c=np.array(True))
    proposals = list(optional.edits(case))
    assert all(isinstance(e, optional.DropInputs) for e in proposals)
    assert {index for e in proposals for _, index in e.slots} <= {0, 1}


def test_unread_outputs_go():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[3,1,2] x) => (float[1,1,4] h)
    <float[1,16,2] w = {WWW}, float[1,16,4] r = {RRR}> {
      y, h, c = LSTM<hidden_size = 4>(x, w, r)
    }""".replace("WWW", ", ".join(["0.5"] * 32)).replace("RRR", ", ".join(["0.1"] * 64))
    run = drive(case_of(model), [optional], has("LSTM"))
    assert [v.name for v in run.case.model.graph[0].outputs] == ["", "h"]


def test_an_output_that_is_read_is_a_conflict():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,4] x) => (float[1,1,2] y, int64[1,1,2] i) {
      y, i = MaxPool<kernel_shape = [3]>(x)
    }"""
    case = case_of(model)
    with pytest.raises(Conflict):
        optional.DropOutputs(((((), "y"), 1),)).apply(case)
    with pytest.raises(Conflict):
        optional.DropInputs(((((), "y"), 4),)).apply(case)
    with pytest.raises(Conflict):
        optional.DropInputs(((((), "y"), 0),)).apply(case)


def test_inside_bodies_and_functions():
    model = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (bool c, float[2] x) => (float[2] y) <float lo = {-1}> {
      z = If(c) <then_branch = t () => (float[2] p) { p = Clip(x, lo) },
                 else_branch = e () => (float[2] q) { q = Neg(x) }>
      y = local.f(z)
    }
    <domain: "local", opset_import: ["": 17]> f (a) => (b) {
      one = Constant<value_float = 1.0>()
      b = Clip(a, one)
    }"""
    case = case_of(model, c=np.array(True))
    run = drive(case, [optional], has("If"))
    assert not run.case.model.graph.initializers
    (function,) = run.case.model.functions.values()
    assert [n.op_type for n in function] == ["Clip"]
    onnx.checker.check_model(onnx.parser.parse_model(run.text))
