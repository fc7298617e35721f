"""What is left reads as if written by hand."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxreduce.activations import MadeUp
from onnxreduce.case import Case
from onnxreduce.edits import Conflict
from onnxreduce.passes import tidy
from onnxreduce.passes._draft import places
from onnxreduce.passes._names import Renaming, renamings
from tests.drive import case_of, drive, has, record

MODEL = """<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 3, "local": 1],
  producer_name: "exporter", producer_version: "9.9", model_version: 7,
  domain: "made.by.hand">
torch_jit (float[1,2,4,4] pixel_values, float[1,2,4,4] other_input) => (float[1,2,2,2] prediction)
<float[2,2,3,3] encoder_conv_weight = {WWW}, float[2] encoder_conv_bias = {1, 2},
 float[1,2,4,4] sum_out, float[1,2,2,2] conv_out> {
  [first_add] sum_out = Add(pixel_values, other_input)
  [second] conv_out = Conv(sum_out, encoder_conv_weight, encoder_conv_bias)
  [finally] prediction = Relu(conv_out)
}
<domain: "local", opset_import: ["": 17]> unused (a) => (b) { b = Neg(a) }
""".replace("WWW", ", ".join(["0.5"] * 36))


def case() -> Case:
    proto = onnx.parser.parse_model(MODEL)
    proto.metadata_props.add(key="k", value="v")
    proto.graph.node[0].doc_string = "stack trace"
    return case_of(proto)


def test_two_calls_make_it_plain():
    before = case()
    run = drive(before, [tidy], has("Conv"))
    assert run.calls == 2
    model = run.case.model
    assert (model.ir_version, dict(model.graph.opset_imports)) == (8, {"": 17})
    assert (model.producer_name, model.model_version) == (None, None)
    assert not model.metadata_props
    assert not model.functions
    assert [v.name for v in model.graph.inputs] == ["x1", "x2"]
    assert set(model.graph.initializers) == {"w", "b"}
    assert [v.name for n in model.graph for v in n.outputs] == ["add", "conv", "y"]
    assert [n.name for n in model.graph] == ["add", "conv", "relu"]
    assert all(v.type is None for n in list(model.graph)[:2] for v in n.outputs)
    assert set(run.case.inputs) == {"x1", "x2"}
    assert record(run.case)["y"] == pytest.approx(record(before)["prediction"])


def test_a_name_that_the_bug_needs_stays():
    def named(c: Case) -> bool:
        return "encoder_conv_bias" in c.model.graph.initializers

    run = drive(case(), [tidy], named)
    assert set(run.case.model.graph.initializers) == {"w", "encoder_conv_bias"}
    assert [v.name for n in run.case.model.graph for v in n.outputs] == ["add", "conv", "y"]


def test_metadata_that_the_bug_needs_stays():
    run = drive(case(), [tidy], lambda c: c.model.metadata_props.get("k") == "v")
    assert not run.case.model.producer_name
    assert run.case.model.ir_version == 8


def test_clean_changes_no_other_case():
    before = case()
    digest = before.digest
    drive(before, [tidy], has("Conv"))
    assert Case(before.model, before.inputs).digest == digest


def test_a_newer_operator_set_keeps_the_ir_version_it_needs():
    model = """<ir_version: 12, opset_import: ["": 21]>
    g (float[2] x) => (float[2] y) { y = Neg(x) }"""
    run = drive(case_of(model), [tidy], has("Neg"))
    assert run.case.model.ir_version == 10


def test_names_follow_roles_also_where_others_are_shorter():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x2, float[2] long_name) => (float[2] z) {
      y = Add(x2, long_name) add = Neg(y) x1 = Abs(add) z = Add(x1, y)
    }"""
    run = drive(case_of(model), [tidy], has("Add"))
    assert [v.name for v in run.case.model.graph.inputs] == ["x1", "x2"]
    assert [v.name for n in run.case.model.graph for v in n.outputs] == ["add", "neg", "abs", "y"]
    proposals = list(tidy.edits(run.case))
    assert proposals == []


def test_swapping_names_is_one_edit():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float[2] y) => (float[2] z) <float[2] w = {1, 2}> {
      v = Sub(x, y) z = Mul(v, w)
    }"""
    before = case_of(model)
    swap = tidy.Rename((Renaming((), "value", "x", "w"), Renaming((), "value", "w", "x")))
    after = swap.apply(before)
    assert [v.name for v in after.model.graph.inputs] == ["w", "y"]
    assert list(after.model.graph.initializers) == ["x"]
    assert record(after)["z"] == pytest.approx(record(before)["z"])
    for taken in (Renaming((), "value", "x", "v"), Renaming((), "value", "x", "w")):
        with pytest.raises(Conflict):
            tidy.Rename((taken,)).apply(before)


def test_bodies_do_not_hide_outer_names():
    model = """<ir_version: 8, opset_import: ["": 17]>
    main_graph (bool condition, float[2] in_put) => (float[2] out_put) {
      before = Neg(in_put)
      out_put = If(condition) <
        then_branch = the_then () => (float[2] result) { inner = Abs(before) result = Neg(inner) },
        else_branch = the_else () => (float[2] result) { inner = Neg(before) result = Abs(inner) }>
    }"""
    before = case_of(model, condition=np.array(True))
    run = drive(before, [tidy], has("If"))
    model = run.case.model
    text = run.text
    assert "result" not in text
    assert "inner" not in text
    assert model.graph.name == "g"
    assert [graph.name for _, graph in places(model)][1:] == ["then_branch", "else_branch"]
    assert onnx.checker.check_model(ir.to_proto(model), full_check=True) is None
    old, new = record(before)["out_put"], record(run.case)["y"]
    assert new == pytest.approx(old)
    assert list(tidy.edits(run.case)) == []


def test_an_operator_without_a_name_still_gives_one():
    """It cannot run, but a bug in reading it can be reduced."""
    before = case_of(onnx.parser.parse_model(MODEL))
    model = before.copy_model()
    model.graph[0].op_type = model.graph[1].op_type = ""
    renamed = tidy.Rename(tuple(renamings(model))).apply(Case(model, before.inputs))
    assert [v.name for n in renamed.model.graph for v in n.outputs] == ["v1", "v2", "y"]
    assert [n.name for n in renamed.model.graph] == ["n1", "n2", "relu"]


OPEN = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,3] x) => (float[N,?] y, float[?,3] z) { y = Relu(x) z = Neg(x) }"""


def declared(c: Case) -> list[list[object]]:
    graph = c.model.graph
    return [[getattr(d, "value", d) for d in v.shape] for v in (*graph.inputs, *graph.outputs)]


def test_open_dims_are_declared_as_they_are():
    before = case_of(OPEN, x=np.ones((2, 3), np.float32))
    run = drive(before, [tidy], has("Relu"))
    assert declared(run.case) == [[2, 3]] * 3
    assert list(tidy.edits(run.case)) == []


def test_a_bug_in_dynamic_shapes_keeps_its_own():
    before = case_of(OPEN, x=np.ones((2, 3), np.float32))
    run = drive(before, [tidy], lambda c: declared(c)[0] == ["N", 3])
    assert declared(run.case) == [["N", 3], [2, 3], [2, 3]]
    run = drive(before, [tidy], lambda c: "N" in declared(c)[1])
    assert declared(run.case) == declared(before)


def test_a_model_that_no_backend_runs_gets_the_shapes_that_are_inferred():
    model = """<ir_version: 8, opset_import: ["": 17, "custom": 1]>
    g (float[N] x) => (float[K] y, float[L] z) <int64[1] w = {2}> {
      y = Reshape(x, w) z = custom.Op(x)
    }"""
    before = case_of(model, x=np.ones(1, np.float32))
    before = before.with_recording(MadeUp.of(before))
    first = next(tidy.edits(before))
    # What inference leaves open is not invented.
    assert declared(first.apply(before)) == [[1], [2], ["L"]]
