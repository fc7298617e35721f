"""Bodies that the bug needs end small."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxreduce.case import Case
from onnxreduce.edits import Conflict
from onnxreduce.passes import subgraphs, tidy
from tests.drive import case_of, drive, has, record, run_ort, valid

BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (bool c, float[2] x, float[2] z) => (float[2] y) {
  y, unread = If(c) <
    then_branch = t () => (float[2] p, float[2] o) {
      a = Neg(x) b = Abs(a) d = Exp(b) e = Sqrt(d) f = Add(e, z) p = Tanh(f) o = Neg(f)
    },
    else_branch = e () => (float[2] q, float[2] r) {
      h = Mul(x, x) i = Mul(h, z) q = Neg(i) r = Abs(i)
    }>
}"""

LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (int64 n, float[2] x, float[3] z) => (float[2] y) {
  go = Constant<value = bool {1}>()
  y, other, stack = Loop(n, go, x, z) <body = b (int64 i, bool c, float[2] s, float[3] r)
    => (bool d, float[2] t, float[3] u, float[2] v) {
      d = Identity(c) a = Neg(s) e = Abs(a) t = Exp(e) u = Neg(r) v = Sqrt(t)
    }>
}"""

SCAN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] h, float[3] k, float[5,2] x) => (float[2] y) {
  y, other, one, two = Scan<num_scan_inputs = 1, scan_output_axes = [0, 1],
    body = b (float[2] s, float[3] r, float[2] v)
    => (float[2] t, float[3] u, float[2] w, float[2] q) {
      t = Add(s, v) u = Neg(r) w = Tanh(t) q = Exp(t)
    }>(h, k, x)
}"""


def inner(case: Case) -> list[str]:
    return [node.op_type for node in case.model.graph.all_nodes()]


def test_a_needed_operator_in_a_branch_is_what_is_left_of_it():
    before = case_of(BRANCHES, c=np.array(True))
    run = drive(before, [subgraphs], has("If", "Sqrt", "Tanh"))
    assert sorted(inner(run.case)) == ["Constant", "If", "Sqrt", "Tanh"]
    assert len(run.case.model.graph[0].outputs) == 1
    assert "z" not in run.case.inputs
    assert valid(run.case)


def test_an_if_alone_ends_with_hollow_branches_in_few_calls():
    run = drive(case_of(BRANCHES, c=np.array(True)), [subgraphs, tidy], has("If"))
    assert sorted(inner(run.case)) == ["Constant", "Constant", "If"]
    assert run.calls <= 4
    assert record(run.case)["y"].tolist() == [0, 0]


def test_loop_variables_and_stacks_that_nobody_reads_go():
    before = case_of(LOOP, n=np.array(3))
    run = drive(before, [subgraphs], has("Loop", "Abs", "Exp"))
    assert sorted(inner(run.case)) == ["Abs", "Constant", "Exp", "Identity", "Loop"]
    loop = run.case.model.graph[1]
    assert (len(loop.inputs), len(loop.outputs)) == (3, 1)
    assert "z" not in run.case.inputs


def test_dropped_outputs_leave_the_rest_as_it_was():
    for model, given in ((LOOP, {"n": np.array(3)}), (SCAN, {})):
        before = case_of(model, **given)
        slots = list(subgraphs._spare_outputs(before.model))
        for slot in slots:
            assert valid(subgraphs.DropBodyOutputs((slot,)).apply(before))
        after = subgraphs.DropBodyOutputs(tuple(slots)).apply(before)
        assert valid(after)
        old, new = (run_ort(ir.to_proto(c.model), c.inputs)[0] for c in (before, after))
        assert new == pytest.approx(old)
        assert len(after.model.graph.node(len(after.model.graph) - 1).outputs) == 1


def test_nodes_in_functions_are_bypassed():
    model = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (float[2] x) => (float[2] y) { a = local.f(x) y = local.f(a) }
    <domain: "local", opset_import: ["": 17]> f (a) => (b) {
      c = Neg(a) d = Abs(c) e = Exp(d) b = Tanh(e)
    }"""

    def interesting(case: Case) -> bool:
        return any(n.op_type == "Exp" for f in case.model.functions.values() for n in f)

    run = drive(case_of(model), [subgraphs], interesting)
    (function,) = run.case.model.functions.values()
    assert [n.op_type for n in function] == ["Exp"]
    assert onnx.checker.check_model(ir.to_proto(run.case.model)) is None


def test_what_does_not_fit_is_a_conflict():
    case = case_of(BRANCHES, c=np.array(True))
    place = ("y", "then_branch")
    for edit in (
        subgraphs.Hollow((((*place[:1], "body"), ((2,), (2,))),)),
        subgraphs.Hollow(((place, ((2,),)),)),
        subgraphs.DropBodyOutputs(((((), "y"), 0),)),
        subgraphs.DropBodyOutputs(((((), "y"), 7),)),
        subgraphs.BypassInside(((place, "gone", "a"),)),
        subgraphs.BypassInside(((place, "a", "z"),)),
        subgraphs.BypassInside((((*place, "a", "body"), "a", "z"),)),
    ):
        with pytest.raises(Conflict):
            edit.apply(case)
