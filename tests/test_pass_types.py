"""Plainer element types and operator sets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxreduce.case import Case
from onnxreduce.edits import Conflict
from onnxreduce.passes import types
from tests.drive import case_of, drive, has, valid


def dtypes(case: Case) -> set[str]:
    graph = case.model.graph
    values = [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    return {value.dtype.name for value in values}


@pytest.mark.parametrize(
    ("name", "numpy_type"),
    [("double", np.float64), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)],
)
def test_a_whole_model_becomes_float(name, numpy_type):
    model = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({name}[2,2] x) => ({name}[2,2] y) {{
      two = Constant<value = {name}[1] {{2}}>()
      m = Mul(x, two)
      y = Relu(m)
    }}"""
    before = case_of(model, x=np.array([[1, -2], [3, 0.5]], numpy_type))

    def interesting(case: Case) -> bool:
        return has("Mul", "Relu")(case)

    run = drive(before, [types], interesting)
    assert dtypes(run.case) == {"FLOAT"}
    assert run.case.inputs["x"].dtype == np.float32
    assert run.calls == 1
    # Nothing of the original was changed in place.
    assert dtypes(before) == {name.upper()}


def test_casts_follow():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, int32[2] i) => (float16[2] y) {
      h = Cast<to = 10>(x)
      j = Cast<to = 10>(i)
      y = Add(h, j)
    }"""
    run = drive(case_of(model), [types], has("Add"))
    assert dtypes(run.case) == {"FLOAT", "INT64"}
    assert [n.attributes["to"].as_int() for n in list(run.case.model.graph)[:2]] == [1, 1]


def test_one_part_keeps_the_type_that_the_bug_needs():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float16[2] x, float16[2] z) => (float16[2] y, float16[2] w) { y = Neg(x) w = Abs(z) }"""

    def interesting(case: Case) -> bool:
        return case.inputs["x"].dtype == np.float16

    run = drive(case_of(model), [types], interesting)
    kinds = {
        v.name: v.dtype.name for v in (*run.case.model.graph.inputs, *run.case.model.graph.outputs)
    }
    assert kinds == {"x": "FLOAT16", "y": "FLOAT16", "z": "FLOAT", "w": "FLOAT"}


def test_quantise_dequantise_pairs_go():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y)
    <float s = {0.05}, uint8 z = {128}, float[1,1,4,4] d> {
      q = QuantizeLinear(x, s, z)
      d = DequantizeLinear(q, s, z)
      c = Conv(d, w)
      r = QuantizeLinear(c, s, z)
      e = DequantizeLinear(r, s, z)
      y = Relu(e)
    }"""
    run = drive(case_of(model), [types], has("Conv", "Relu"))
    assert run.ops == ["Conv", "Relu"]
    assert not run.case.model.graph.initializers
    assert run.calls == 1


@pytest.mark.parametrize("version", [11, 13, 19, 21])
def test_opsets_end_at_the_plain_one(version):
    model = f"""<ir_version: 8, opset_import: ["": {version}]>
    g (float[2,3] x) => (float[2,3] y) {{ y = Softmax<axis = 1>(x) }}"""
    run = drive(case_of(model), [types], has("Softmax"))
    assert run.case.model.graph.opset_imports[""] == 17
    assert run.calls == 1


def test_an_operator_that_changed_is_converted():
    model = """<ir_version: 8, opset_import: ["": 12]>
    g (float[2,3] x) => (float[2] y) { s = Squeeze<axes = [0]>(z) z = Unsqueeze<axes = [0]>(x)
      y = ReduceSum<axes = [1], keepdims = 0>(s) }"""
    lines = model.replace(
        "s = Squeeze<axes = [0]>(z) z = Unsqueeze<axes = [0]>(x)",
        "z = Unsqueeze<axes = [0]>(x) s = Squeeze<axes = [0]>(z)",
    )
    case = case_of(lines)
    assert not valid(types.Relabel(17).apply(case))
    assert valid(types.Convert(17).apply(case))


def test_a_bug_of_one_version_stays_there():
    model = """<ir_version: 8, opset_import: ["": 20]>
    g (float[2] x) => (float[2] y) { y = Gelu(x) }"""
    case = case_of(model)
    run = drive(case, [types], has("Gelu"))
    assert run.case.model.graph.opset_imports[""] == 20
    with pytest.raises(Conflict):
        types.Relabel(20).apply(case)


def test_sequences_of_rare_types_too():
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (seq(double[N]) s) => (double[M] y) { y = ConcatFromSequence<axis = 0>(s) }"""
    proto = onnx.parser.parse_model(model)
    case = Case(ir.from_proto(proto), {"s": [np.ones(2), np.zeros(3)]})
    made = types.Retype(("DOUBLE",)).apply(case)
    assert valid(made)
    assert [item.dtype.name for item in made.inputs["s"]] == ["float32", "float32"]


def test_nothing_to_do_is_a_conflict():
    model = (
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }"""
    )
    case = case_of(model)
    assert list(types.edits(case)) == []
    with pytest.raises(Conflict):
        types.Retype(("DOUBLE",)).apply(case)
    with pytest.raises(Conflict):
        types.DropPairs(("y",)).apply(case)
