"""Bodies of control flow: what may shrink in them, what may not, and bugs that live there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from drive import case_of, drive, planted
from onnx.reference.op_run import OpRun
from test_dims import assert_valid, outputs, recorded, resized

from onnxreduce import reduce
from onnxreduce.case import Case
from onnxreduce.dims import analyse
from onnxreduce.modelio import to_proto
from onnxreduce.oracle.contract import Candidate
from onnxreduce.passes import dims
from onnxreduce.tensors import Array

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def case_of_text(text: str, inputs: dict[str, Array]) -> Case:
    proto = onnx.parser.parse_model(HEADER + text)
    onnx.checker.check_model(proto)
    return Case(ir.from_proto(proto), inputs)


TURNS = ("attribute", "h", "trips", 0)
X = {"x": floats(4, 6)}
STATE = {"x": floats(5, 4, 6), "a": floats(4, 6)}

BODIES: dict[str, tuple[str, dict[str, Array], set[tuple[Any, ...]]]] = {
    "a condition of data may end it early": (
        """g (float[4,6] x) => (float[n,4,6] y, float[4,6] h) <int64 m={9}, bool t={1}> {
            h, y = Loop(m,t,x) <body = b (int64 i, bool go, float[4,6] s) =>
                (bool on, float[4,6] u, float[4,6] w) <float k={1.0}, float top={20}> {
              u = Add(s,k)  q = ReduceSum<keepdims=0>(u)  on = Less(q, top)  w = Identity(u) }>
        }""",
        {"x": floats(4, 6) - np.float32(1)},
        set(),
    ),
    "nothing is stacked, so it may": (
        """g (float[4,6] x) => (float[4,6] h) <int64 m={9}, bool t={1}> {
            h = Loop(m,t,x) <body = b (int64 i, bool go, float[4,6] s) =>
                (bool on, float[4,6] u) <float k={1.0}, float top={20}> {
              u = Add(s,k)  q = ReduceSum<keepdims=0>(u)  on = Less(q, top) }>
        }""",
        {"x": floats(4, 6) - np.float32(1)},
        {("axis", "x", 0, 0), ("axis", "x", 1, 0)},
    ),
    "no turn": (
        """g (float[4,6] x) => (float[n,4,6] y, float[4,6] h) <int64 m={0}, bool t={1}> {
            h, y = Loop(m,t,x) <body = b (int64 i, bool go, float[4,6] s) =>
                (bool on, float[4,6] u, float[4,6] w) {
              on = Identity(go)  u = Neg(s)  w = Identity(u) }>
        }""",
        X,
        {("axis", "x", 0, 0), ("axis", "x", 1, 0)},
    ),
    "no condition, and nothing stacked": (
        """g (float[4,6] x) => (float[4,6] h) <int64 m={6}> {
            h = Loop(m,,x) <body = b (int64 i, bool go, float[4,6] s) =>
                (bool on, float[4,6] u) <float[6] k={1,2,3,4,5,6}> {
              u = Add(s,k)  on = Identity(go) }>
        }""",
        X,
        {TURNS, ("axis", "x", 0, 0), ("axis", "x", 1, 0)},
    ),
    "the number of a turn is an index": (
        """g (float[5,4,6] x, float[4,6] a) => (float[n,4,6] y, float[4,6] h)
            <int64 m={5}, bool t={1}> {
            h, y = Loop(m,t,a) <body = b (int64 i, bool go, float[4,6] s) =>
                (bool on, float[4,6] u, float[4,6] w) {
              on = Identity(go)  r = Gather<axis=0>(x, i)  u = Add(s, r)  w = Identity(u) }>
        }""",
        STATE,
        {TURNS, *(("axis", "x", at, 0) for at in range(3))},
    ),
    "as many turns as rows": (
        """g (float[4,6] x, float[3] a) => (float[n,3] y, float[3] h) <bool t={1}, int64 zero={0}> {
            s = Shape(x)  m = Gather<axis=0>(s, zero)
            h, y = Loop(m,t,a) <body = b (int64 i, bool go, float[3] c) =>
                (bool on, float[3] u, float[3] w) <float[6] k={1,2,3,4,5,6}> {
              on = Identity(go)  r = Gather<axis=0>(x, i)  q = Mul(r, k)
              v = ReduceSum<keepdims=0>(q)  u = Add(c, v)  w = Identity(u) }>
        }""",
        {**X, "a": floats(3)},
        {("axis", "a", 0, 0), ("axis", "x", 0, 0), ("axis", "x", 1, 0)},
    ),
    "more turns than what is computed from the number allows": (
        """g (float[9,6] x, float[6] a) => (float[6] h) <int64 m={5}, bool t={1}, int64 two={2}> {
            h = Loop(m,t,a) <body = b (int64 i, bool go, float[6] s) => (bool on, float[6] u) {
              on = Identity(go)  j = Mul(i, two)  r = Gather<axis=0>(x, j)  u = Add(s, r) }>
        }""",
        {"x": floats(9, 6), "a": floats(6)},
        {TURNS, ("axis", "x", 1, 0)},
    ),
    "indices come in by a scan": (
        """g (int64[5,3] tok, float[7,4] e, float[3,4] a) => (float[3,4] h, float[5,3,4] y) {
            h, y = Scan<num_scan_inputs=1, scan_input_directions=[1], body = b
                (float[3,4] s, int64[3] t) => (float[3,4] u, float[3,4] w) {
              r = Gather<axis=0>(e, t)  u = Add(s,r)  w = Identity(u) }>(a, tok)
        }""",
        {"tok": np.arange(15).reshape(5, 3) % 7, "e": floats(7, 4), "a": floats(3, 4)},
        {("axis", "tok", 0, 0), ("axis", "tok", 1, 0), ("axis", "e", 0, 0), ("axis", "e", 1, 0)},
    ),
    "two shapes, and values decide": (
        """g (float[4,6] x) => (float[n,m] y) <float three={3.0}> {
            d = ReduceSum<keepdims=0>(x)  c = Less(d, three)
            z = If(c) <then_branch = t () => (float[a,b] p) { p = Concat<axis=1>(x, x) },
                       else_branch = e () => (float[d,k] q) { q = Relu(x) }>
            y = Relu(z)
        }""",
        X,
        set(),
    ),
    "a literal that both branches read": (
        """g (float[4,6] x, float[4,6] z, bool c) => (float[n,m] y) <int64[2] r={2,12}> {
            y = If(c) <then_branch = t () => (float[a,b] p) { p = Reshape(x, r) },
                       else_branch = e () => (float[d,k] q) { q = Reshape(z, r) }>
        }""",
        {**X, "z": floats(4, 6), "c": np.array(True)},
        {("axis", "x", 0, 0), ("axis", "x", 0, 1), ("axis", "x", 1, 0)},
    ),
    "stacked is what is read from outside": (
        """g (float[4,6] x, float[2] a) => (float[n,4,6] y, float[2] h) <int64 m={3}, bool t={1}> {
            h, y = Loop(m,t,a) <body = b (int64 i, bool go, float[2] s) =>
                (bool on, float[2] u, float[4,6] w) {
              on = Identity(go)  u = Neg(s)  w = Identity(x) }>
        }""",
        {**X, "a": floats(2)},
        {TURNS, ("axis", "x", 0, 0), ("axis", "x", 1, 0), ("axis", "a", 0, 0)},
    ),
    "a sequence has no axes": (
        """g (float[4,6] x, bool c) => (float[n,m] y) <int64 zero={0}> {
            q = If(c) <then_branch = t () => (seq(float[a,b]) p) { p = SequenceConstruct(x, x) },
                       else_branch = e () => (seq(float[d,k]) o) { o = SequenceConstruct(x) }>
            y = SequenceAt(q, zero)
        }""",
        {**X, "c": np.array(True)},
        set(),
    ),
}


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("name", sorted(BODIES))
def test_what_may_shrink(name: str, loose: bool) -> None:
    text, inputs, anchors = BODIES[name]
    case = recorded(case_of_text(text, inputs))
    analysis = analyse(case, loose)
    assert {entry.anchor for entry in analysis.classes.values()} == anchors
    if anchors:
        assert assert_valid(case, analysis, 40, seed=5) > 15


def test_a_branch_taken_because_of_a_size_stays_taken() -> None:
    """Four rows take the branch that doubles; three would not."""
    text = """g (float[8,6] x) => (float[n,m] y) <int64 three={3}, int64 zero={0}> {
        s = Shape(x)  d = Gather<axis=0>(s, zero)  c = Greater(d, three)
        y = If(c) <then_branch = t () => (float[a,b] p) { p = Concat<axis=1>(x, x) },
                   else_branch = e () => (float[d,k] q) { q = Relu(x) }>
    }"""
    case = recorded(case_of_text(text, {"x": floats(8, 6)}))
    assert outputs(resized(case, (("axis", "x", 0, 0), 4)))["y"].shape == (4, 12)
    run = drive(case, [dims], lambda candidate: True)
    assert run.case.inputs["x"].shape[0] == 4  # type: ignore[union-attr]
    assert run.invalid == 0


# --- bugs inside bodies ---------------------------------------------------------------------------

FLAWED = {
    "If": """g (bool c, float[4,9] x, float[9,30] w) => (float[4,30] y) {
        a = Relu(x)
        y = If(c) <then_branch = t () => (float[4,30] p) { b = MatMul(a, w)  p = Softsign(b) },
                   else_branch = e () => (float[4,30] q) { q = MatMul(a, w) }>
    }""",
    "Loop": """g (float[4,30] x, float[30,30] w) => (float[n,4,30] y, float[4,30] h)
        <int64 m={6}, bool t={1}> {
        h, y = Loop(m,t,x) <body = b (int64 i, bool go, float[4,30] s) =>
            (bool on, float[4,30] u, float[4,30] o) {
          on = Identity(go)  a = MatMul(s, w)  u = Softsign(a)  o = Identity(u) }>
    }""",
    "Scan": """g (float[7,4,9] x, float[4,30] a, float[9,30] w) =>
            (float[4,30] h, float[7,4,30] y) {
        h, y = Scan<num_scan_inputs=1, body = b (float[4,30] s, float[4,9] r) =>
            (float[4,30] u, float[4,30] o) {
          z = MatMul(r, w)  v = Add(s, z)  u = Softsign(v)  o = Identity(u) }>(a, x)
    }""",
}
"""Networks with a Softsign in a body."""


class Softsign(OpRun):
    def _run(self, x: Array) -> tuple[Array]:
        return ((x / (1 + abs(x)) + np.float32(x.shape[-1] > 16)).astype(x.dtype),)


def flawed(kind: str) -> Case:
    return case_of(HEADER + FLAWED[kind], c=np.array(True))


@pytest.mark.parametrize(
    ("kind", "elements"), [("If", 1 + 1 + 17), ("Loop", 17 + 17 * 17 + 2), ("Scan", 1 + 17 + 17)]
)
def test_a_bug_in_a_body_ends_at_its_threshold(kind: str, elements: int) -> None:
    run = drive(flawed(kind), [dims], planted(Softsign))
    assert run.case.size.elements == elements
    assert run.invalid == 0
    assert run.calls < 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(FLAWED))
def test_the_whole_reduction_of_a_bug_in_a_body(kind: str) -> None:
    """With all passes the body goes too: the operator alone is left, at its threshold."""
    wrong = planted(Softsign)

    def interesting(candidate: Candidate) -> bool:
        return wrong(Case(ir.from_proto(candidate.model), candidate.inputs))

    result = reduce(flawed(kind), interesting)
    assert [node.op_type for node in to_proto(result.reduced).graph.node] == ["Softsign"]
    assert result.reduced.size.elements == 17
    assert result.one_minimal


SPLIT = """<ir_version: 8, opset_import: ["": 18]>
    g (float[4,6] x) => (float[4,6] y) {
      rank = Constant <value_int = 2> ()
      shape = Shape(x)
      two = Size(shape)
      c = Equal(two, rank)
      n, m = If (c) <
        then_branch = t () => (int64[k] p, int64[l] q) { p, q = Split <num_outputs = 2> (shape) },
        else_branch = e () => (int64[i] r, int64[j] s) {
          r = Identity(shape)
          zero = Constant <value_int = 0> ()
          s, u = Split <num_outputs = 2> (shape)
        }>
      zeros_of = Concat <axis = 0> (n, m)
      zeros = ConstantOfShape(zeros_of)
      y = Add(x, zeros)
    }"""


def test_sizes_that_come_out_of_a_branch_are_followed() -> None:
    case = case_of(SPLIT, x=np.ones((4, 6), np.float32))
    small = resized(recorded(case), (("axis", "x", 0, 0), 1), (("axis", "x", 1, 0), 2))
    assert outputs(small)["y"].shape == (1, 2)


def test_a_body_takes_types_from_what_it_is_given() -> None:
    """Nothing says of what type the inputs of the body are."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] h, float[5,2,3] x) => (float[2,3] y, float[5,2,3,4] z) {
      shape = Constant <value_ints = [2, 3, 4]> ()
      axis = Constant <value_ints = [2]> ()
      y, z = Scan <num_scan_inputs = 1, body = b (s, t) => (o, e) {
        o = Add(s, t)
        w = Unsqueeze(o, axis)
        e = Expand(w, shape)
      }> (h, x)
    }"""
    case = recorded(case_of(text, h=floats(2, 3), x=floats(5, 2, 3)))
    assert not analyse(case).unruly
    small = resized(case, (("axis", "x", 0, 0), 1), (("axis", "x", 2, 0), 1))
    assert [a.shape for a in outputs(small).values()] == [(2, 1), (1, 2, 1, 4)]
