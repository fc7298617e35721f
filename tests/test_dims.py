"""The analysis as a whole, on networks: any plan gives a model that is valid and runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from drive import Values, record, run_ort
from networks import NETWORKS, Net
from onnx import numpy_helper

from onnxreduce.case import Case
from onnxreduce.dims import Change, Resize, analyse, rules
from onnxreduce.dims.analysis import Analysis
from onnxreduce.dims.emit import emit
from onnxreduce.dims.expr import Sym
from onnxreduce.dims.keep import Indices
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict
from onnxreduce.tensors import Array

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def recorded(case: Case) -> Case:
    """With every value of the main graph, as ONNX Runtime computes it."""
    return case.with_recording(record(case))


def outputs(case: Case) -> dict[str, Array]:
    proto = ir.to_proto(case.model)
    assert isinstance(proto, onnx.ModelProto)
    if all(onnx.defs.has(node.op_type, node.domain) or node.domain for node in proto.graph.node):
        onnx.checker.check_model(proto)
    names = [value.name for value in proto.graph.output]
    return dict(zip(names, run_ort(proto, case.inputs), strict=True))


def light(name: str, seed: int = 0) -> Case:
    """A light model of the onnx package, its constant weights made random."""
    rng = np.random.default_rng(seed)
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    stored = {w.name: w for w in proto.graph.initializer}
    real = [value for value in proto.graph.input if value.name not in stored]
    kept, shapes = [], set()
    for node in proto.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            shape = numpy_helper.to_array(stored[node.input[0]])
            shapes.add(node.input[0])
            fan = max(1, int(np.prod(shape[1:])))
            array = (rng.standard_normal(shape) / fan**0.5).astype(np.float32)
            if len(shape) == 1:
                array = np.abs(array) + np.float32(0.5)
            stored[node.output[0]] = numpy_helper.from_array(array, node.output[0])
        else:
            kept.append(node)
    graph = proto.graph
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(w for name, w in stored.items() if name not in shapes)
    del graph.input[:]
    graph.input.extend(real)
    proto.ir_version = max(proto.ir_version, 4)
    fed = {
        value.name: rng.standard_normal(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in real
    }
    return Case(ir.from_proto(proto), fed)


def random_plans(
    analysis: Analysis, count: int, seed: int
) -> Iterator[tuple[Plan, dict[Sym, Indices]]]:
    """Random sizes of one to three classes, with random kept indices."""
    rng = random.Random(seed)
    symbols = list(analysis.classes)
    for _ in range(count):
        asked = {}
        for symbol in rng.sample(symbols, min(len(symbols), rng.choice([1, 1, 2, 3]))):
            low = analysis.classes[symbol].least
            asked[symbol] = rng.choice(
                [low, rng.randint(low, symbol.size), max(low, symbol.size - 1)]
            )
        try:
            plan = analysis.plan(asked)
        except Conflict:
            continue
        chosen = {
            symbol: np.array(sorted(rng.sample(range(symbol.size), size)), np.int64)
            for symbol, size in asked.items()
            if rng.random() < 0.5
        }
        yield plan, chosen


def assert_valid(
    case: Case,
    analysis: Analysis,
    count: int,
    seed: int,
    run: Callable[[Case], dict[str, Array]] = outputs,
) -> int:
    """Every accepted plan gives a case that runs and has the planned shapes."""
    done = 0
    for plan, chosen in random_plans(analysis, count, seed):
        try:
            candidate = emit(analysis, plan, chosen)
        except Conflict:
            continue
        done += 1
        for name, array in run(candidate).items():
            axes = analysis.axes[name]
            if axes is None:
                continue
            assert array.shape == tuple(map(plan.size, axes)), (name, plan.changed())
    return done


def random_trials(case: Case, analysis: Analysis, accepted: int) -> None:
    """So many accepted plans, however many are turned down on the way."""
    done, seed = 0, 100
    while done < accepted:
        found = assert_valid(case, analysis, min(100, accepted - done), seed)
        assert found or seed < 110, "no plan is accepted"
        done, seed = done + found, seed + 1


@pytest.fixture(scope="module", params=sorted(NETWORKS))
def network(request: pytest.FixtureRequest) -> Case:
    return recorded(NETWORKS[request.param]())


def test_random_sizes_are_valid(network: Case) -> None:
    analysis = analyse(network)
    assert not analysis.unruly
    assert assert_valid(network, analysis, 25, seed=1) > 8


def test_random_sizes_are_valid_where_only_sizes_agree(network: Case) -> None:
    """The reading that the pass takes first."""
    analysis = analyse(network, loose=True)
    assert not analysis.unruly
    if analysis.space.distributed:
        assert assert_valid(network, analysis, 25, seed=4) > 8


def test_nothing_assigned_changes_nothing(network: Case) -> None:
    analysis = analyse(network)
    same = emit(analysis, analysis.plan({}))
    assert same.digest == network.digest
    with pytest.raises(Conflict):
        Resize(()).apply(network)


LEAST = {
    "attention": 22,
    "branching": 11,
    "detector": 44,
    "embedder": 58,
    "looping": 9,
    "merger": 23,
    "packed_attention": 33,
    "quantised": 27,
    "scanning": 4,
    "shuffler": 34,
    "speech": 87,
    "unet": 32,
}
"""Elements of inputs and weights with everything at its least."""


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_everything_at_its_least(name: str) -> None:
    case = recorded(NETWORKS[name]())
    from test_pass_dims import shrink

    small = shrink(case, lambda candidate: True).case
    outputs(small)
    analysis = analyse(small)
    assert analysis.elements(analysis.plan({})) <= LEAST[name]


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_lost_rule_is_probed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator's rule removed in turn: fewer classes may be free, but every plan is valid."""
    case = recorded(NETWORKS[name]())
    kinds = {node.op_type for node in case.model.graph}
    known = rules.known()
    for kind in sorted(kinds & {op_type for _, op_type in known}):
        monkeypatch.setattr(
            rules,
            "find",
            lambda domain, op_type, lost=kind: (
                None if op_type == lost else known.get((domain, op_type))
            ),
        )
        analysis = Analysis(recorded(case))
        assert_valid(case, analysis, 4, seed=len(kind))


ELEMENTWISE = ("Add", "Mul", "Sub", "Relu", "Sigmoid", "Where", "PRelu", "Softplus", "Max", "Pow")


@pytest.mark.parametrize("op_type", ELEMENTWISE)
def test_elementwise_operators_are_probed_as_well_as_ruled(
    op_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    x, weight = net.image(2, 3, 5), net.weight(3, 1)
    mask = net.const(np.ones((3, 5)), np.bool_)
    operands = {"Relu": [x], "Sigmoid": [x], "Softplus": [x], "Where": [mask, x, weight]}
    case = recorded(net.case(net.op(op_type, *operands.get(op_type, [x, weight]))))
    ruled = Analysis(case)
    monkeypatch.setattr(rules, "find", lambda domain, op_type: None)
    probed = Analysis(case)
    assert probed.unruly
    assert [c.anchors for c in probed.classes.values()] == [
        c.anchors for c in ruled.classes.values()
    ]


# --- declared shapes, literals, roots -------------------------------------------------------------


def resized(case: Case, *changes: tuple[tuple[object, ...], int]) -> Case:
    return Resize(tuple(Change(anchor, size) for anchor, size in changes)).apply(case)


def test_symbolic_dims_stay_symbolic() -> None:
    small = resized(recorded(NETWORKS["attention"]()), (("axis", "x", 1, 0), 3))
    declared = list(small.model.graph.inputs[0].shape or ())
    assert [str(dim) for dim in declared[:2]] == ["batch", "time"]
    assert small.inputs["x"].shape == (2, 3, 48)  # type: ignore[union-attr]


def test_dims_of_one_name_stay_equal() -> None:
    net = Net()
    a = net.input("a", np.ones((4, 3), np.float32), ["n", 3])
    b = net.input("b", np.ones((4, 2), np.float32), ["n", 2])
    case = recorded(net.case(net.op("Relu", a), net.op("Relu", b)))
    small = resized(case, (("axis", "a", 0, 0), 2))
    assert small.inputs["b"].shape == (2, 2)  # type: ignore[union-attr]


def test_a_literal_that_readers_need_to_differ_gets_copies() -> None:
    net = Net()
    x, y = net.image(4, 6), net.input("y", np.ones((4, 6), np.float32))
    shape = net.const([2, 12])
    case = recorded(net.case(net.op("Reshape", x, shape), net.op("Reshape", y, shape)))
    small = resized(case, (("axis", "x", 1, 0), 3))
    assert [a.shape for a in outputs(small).values()] == [(2, 6), (2, 12)]
    assert len(small.model.graph.initializers) == 2


def test_indices_follow_what_is_kept() -> None:
    net = Net()
    tokens = net.input("tokens", np.array([0, 5, 9], np.int64))
    case = recorded(net.case(net.op("Gather", net.weight(10, 4), tokens)))
    anchor = ("axis", "c0", 0, 0)
    small = Resize((Change(anchor, 2, (5, 9)),)).apply(case)
    assert small.inputs["tokens"].tolist() == [0, 0, 1]  # type: ignore[union-attr]
    outputs(small)


def test_constants_and_overridable_initializers_are_sliced() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, float[4] w = {1,2,3,4}) => (float[2,4] y) {
          c = Constant <value: tensor = float[4] {5,6,7,8}> ()
          a = Add(x, c)
          y = Mul(a, w)
        }"""
    )
    case = recorded(Case(ir.from_proto(proto), {"x": np.ones((2, 4), np.float32)}))
    small = resized(case, (("axis", "x", 1, 0), 3))
    assert outputs(small)["y"].tolist() == [[6, 14, 24]] * 2


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
    g (bool c, float[3,4] x) => (float[a,b] y) {
      a = Relu(x)
      y = If (c) <
        then_branch = t () => (float[3,4] p) { p = Neg(a) },
        else_branch = e () => (float[m,n] q) { q = %s }>
    }"""


def branches(other: str, **inputs: Array) -> Case:
    proto = onnx.parser.parse_model(BRANCHES % other)
    return recorded(Case(ir.from_proto(proto), {"x": np.ones((3, 4), np.float32), **inputs}))


def test_branches_share_axes_with_what_they_read() -> None:
    case = branches("Abs(a)", c=np.array(True))
    small = resized(case, (("axis", "x", 1, 0), 2), (("axis", "x", 0, 0), 1))
    assert outputs(small)["y"].shape == (1, 2)


def test_a_known_condition_says_which_shape_comes_out() -> None:
    case = branches("Concat <axis = 0> (a, a)", c=np.array(True))
    small = resized(case, (("axis", "x", 1, 0), 2), (("axis", "x", 0, 0), 1))
    assert outputs(small)["y"].shape == (1, 2)
    case = branches("Concat <axis = 0> (a, a)", c=np.array(False))
    small = resized(case, (("axis", "x", 1, 0), 2), (("axis", "x", 0, 0), 1))
    assert outputs(small)["y"].shape == (2, 2)


def test_branches_of_different_shapes_stay_where_data_decides() -> None:
    text = (BRANCHES % "Concat <axis = 0> (a, a)").replace(
        "a = Relu(x)", "a = Relu(x) d = ReduceMax <keepdims = 0> (x) c = Cast <to = 9> (d)"
    )
    proto = onnx.parser.parse_model(text.replace("bool c, ", ""))
    analysis = analyse(recorded(Case(ir.from_proto(proto), {"x": np.ones((3, 4), np.float32)})))
    assert not analysis.classes
    assert "depends on values" in analysis.unruly["y"]


def test_bodies_that_share_names_keep_their_axes() -> None:
    case = branches("Abs(a)", c=np.array(True))
    model = case.copy_model()
    for graph in (attribute.as_graph() for attribute in model.graph[1].attributes.values()):
        graph.outputs[0].name = "same"
    analysis = analyse(recorded(Case(model, case.inputs)))
    assert not analysis.classes
    assert "names of its body" in analysis.unruly["y"]


def test_a_state_that_grows_keeps_its_axes() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (int64 n, bool c, float[3,4] x) => (float[3,m] y) {
          y = Loop (n, c, x) <body = b (int64 i, bool go, float[3,k] s) => (bool on, float[3,l] t) {
            on = Identity(go)
            t = Concat <axis = 1> (s, x)
          }>
        }"""
    )
    inputs = {"n": np.array(2), "c": np.array(True), "x": np.ones((3, 4), np.float32)}
    assert not analyse(recorded(Case(ir.from_proto(proto), inputs))).classes


def test_a_model_that_the_checker_refuses_is_analysed() -> None:
    """Attributes that do not fit and unknown domains freeze a node, no more."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "other": 1]>
        g (float[2,6] x) => (float[2,6] y) {
          a = Relu(x)
          b = Softmax <axis = [1, 2]> (a)
          c = other.Thing(b)
          y = Neg(x)
        }"""
    )
    shapes = Values({name: np.ones((2, 6), np.float32) for name in "abcy"})
    case = Case(ir.from_proto(proto), {"x": np.ones((2, 6), np.float32)}).with_recording(shapes)
    assert "c" in analyse(case).unruly


def test_edits_are_plain_and_say_what_they_do() -> None:
    edit = Resize((Change(("axis", "x", 1, 0), 3), Change(("axis", "w", 0, 0), 1)))
    assert edit.describe() == "resize x[1] to 3, w[0] to 1"
    with pytest.raises(Conflict):
        edit.apply(recorded(NETWORKS["unet"]()))
