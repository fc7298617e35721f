"""Branches, loop bodies and functions are opened."""

from __future__ import annotations

import numpy as np
import pytest

from onnxreduce.case import Case
from onnxreduce.edits import Conflict
from onnxreduce.passes import inline
from tests.drive import case_of, drive, has, record, valid

BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
  n = Neg(x)
  y = If(c) <
    then_branch = t () => (float[2] p) <float[2] b = {3, 4}> { m = Mul(n, w) p = Add(m, b) },
    else_branch = e () => (float[2] p) { m = Abs(n) p = Exp(m) }>
}"""

LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (int64 count, float[2] x) => (float[2] last, float[K,2] all) {
  go = Constant<value = bool {1}>()
  last, all = Loop(count, go, x) <body = b (int64 i, bool c, float[2] s)
    => (bool d, float[2] t, float[2] u) {
      d = Identity(c)
      f = Cast<to = 1>(i)
      t = Add(s, x)
      u = Mul(t, f)
    }>
}"""

SCAN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] h, float[5,2] x) => (float[2] last, float[5,2] all) {
  last, all = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] v)
    => (float[2] t, float[2] u) { t = Add(s, v) u = Tanh(t) }>(h, x)
}"""

FUNCTIONS = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[2] x) => (float[2] y) { a = local.f<k = 2.0>(x) y = Abs(a) }
<domain: "local", opset_import: ["": 17]> f <k> (a) => (b) {
  c = Constant<value_float: float = @k>() d = Mul(a, c) b = Neg(d)
}"""


@pytest.mark.parametrize(
    ("taken", "ops"), [(True, ["Neg", "Mul", "Add"]), (False, ["Neg", "Abs", "Exp"])]
)
def test_the_taken_branch_replaces_an_if(taken, ops):
    before = case_of(BRANCHES, c=np.array(taken))
    run = drive(before, [inline], has("Neg"))
    assert run.ops == ops
    assert run.calls == 1
    assert [v.name for v in run.case.model.graph.inputs] == ["x"]
    assert [v.name for v in run.case.model.graph.outputs] == ["y"]
    assert record(run.case)["y"] == pytest.approx(record(before)["y"])
    assert valid(before), "the original is untouched"


def test_both_branches_are_tried_when_the_condition_is_not_known():
    model = BRANCHES.replace("(bool c,", "(float[1] r,").replace(
        "n = Neg(x)", "n = Neg(x) z = Constant<value = float[1] {0}>() c = Less(r, z)"
    )
    case = case_of(model)
    proposals = list(inline.edits(case))
    assert [edit.branch for edit in proposals] == ["then_branch", "else_branch"]
    proposals = list(inline.edits(case.with_recording(record(case))))
    assert len(proposals) == 1


def test_an_if_that_the_bug_needs_stays():
    run = drive(case_of(BRANCHES, c=np.array(True)), [inline], has("If"))
    assert run.ops == ["Neg", "If"]
    assert run.calls == 1


def test_inlined_names_do_not_clash_with_those_of_other_bodies():
    second = BRANCHES[BRANCHES.index("  y = If") : BRANCHES.rindex("}")].replace("y = If", "z = If")
    model = BRANCHES[: BRANCHES.rindex("}")] + second + "}"
    model = model.replace("(float[2] y)", "(float[2] y, float[2] z)")
    before = case_of(model, c=np.array(True))
    run = drive(before, [inline], has("Neg"))
    assert run.ops == ["Neg", "Mul", "Add", "Mul", "Add"]
    assert record(run.case)["z"] == pytest.approx(record(before)["z"])


def test_an_if_inside_an_if():
    inner = """q = If(c) <then_branch = t2 () => (float[2] r) { r = Abs(n) },
                         else_branch = e2 () => (float[2] s) { s = Exp(n) }>
               m = Mul(q, w)"""
    model = BRANCHES.replace("m = Mul(n, w)", inner)
    before = case_of(model, c=np.array(True))
    run = drive(before, [inline], has("Neg"))
    assert run.ops == ["Neg", "Abs", "Mul", "Add"]
    assert record(run.case)["y"] == pytest.approx(record(before)["y"])


def test_a_loop_runs_once_or_not_at_all():
    before = case_of(LOOP, count=np.array(3))
    once = inline.InlineLoop(((), "last"), 1).apply(before)
    assert valid(once)
    assert [n.op_type for n in once.model.graph] == ["Cast", "Add", "Mul"]
    results = record(once)
    assert results["last"] == pytest.approx(2 * before.inputs["x"])
    assert results["all"] == pytest.approx([0, 0])
    with pytest.raises(Conflict):
        inline.InlineLoop(((), "last"), 0).apply(before)
    plain = LOOP.replace(", float[K,2] all)", ")").replace("last, all = Loop", "last = Loop")
    plain = plain.replace(", float[2] u) {", ") {").replace("u = Mul(t, f)", "")
    none = inline.InlineLoop(((), "last"), 0).apply(case_of(plain, count=np.array(3)))
    assert [n.op_type for n in none.model.graph] == ["Identity"]
    assert valid(none)


def test_what_a_loop_stacks_gets_its_axis_back_where_it_is_read():
    model = LOOP.replace("(float[2] last, float[K,2] all)", "(float[2] last, float[K,2] y)")
    model = model[: model.rindex("}")] + " y = Neg(all) }"
    once = inline.InlineLoop(((), "last"), 1).apply(case_of(model, count=np.array(1)))
    assert valid(once)
    assert record(once)["y"].shape == (1, 2)


def test_a_scan_is_opened_at_its_first_step():
    before = case_of(SCAN)
    run = drive(before, [inline], has("Tanh"))
    assert run.ops == ["Add", "Tanh"]
    assert sorted(run.case.inputs) == ["h", "x_0"]
    assert record(run.case)["all"] == pytest.approx(record(before)["all"][0])


def test_functions_are_inlined_with_their_attributes():
    before = case_of(FUNCTIONS)
    run = drive(before, [inline], has("Abs"))
    assert run.ops == ["Constant", "Mul", "Neg", "Abs"]
    assert not run.case.model.functions
    assert record(run.case)["y"] == pytest.approx(2 * abs(before.inputs["x"]))


def test_a_function_that_is_called_often_is_not_inlined():
    model = FUNCTIONS.replace("y = Abs(a)", "e = local.f<k = 3.0>(a) y = Abs(e)")
    run = drive(case_of(model), [inline], lambda case: True)
    assert len(run.case.model.functions) == 1
    assert run.calls == 0


def test_what_is_gone_is_a_conflict():
    case: Case = case_of(BRANCHES, c=np.array(True))
    for edit in (
        inline.InlineBranch(((), "n"), "then_branch"),
        inline.InlineBranch(((), "y"), "body"),
        inline.InlineLoop(((), "y"), 1),
        inline.InlineScan(((), "gone")),
        inline.InlineFunctions(("local::f::",)),
    ):
        with pytest.raises(Conflict):
            edit.apply(case)
