"""The passes that take nodes out: on small graphs and on a shipped network, with planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper as h

from onnxreduce import schedule
from onnxreduce.case import Case
from onnxreduce.engine import Engine
from onnxreduce.graph import index
from onnxreduce.passes import _clusters, bypass, suspects
from tests.drive import Run as PlainRun
from tests.drive import case_of, drive, has
from tests.models import Builder, parallel_branches, value
from tests.recording import DATA, recorded

Predicate = Callable[[Case], bool]


class Run(PlainRun):
    """A run with recordings that know types."""

    def recorded(self, case: Case) -> Case:
        return recorded(case)


def run(case: Case, stages: Sequence[schedule.Stage], interesting: Predicate) -> Run:
    assert interesting(case), "the original must show the bug"
    observer = Run(case, interesting)
    engine = Engine(case, observer)
    engine.run(stages)
    observer.case = engine.case
    assert interesting(observer.case)
    return observer


def structure(**options: object) -> list[schedule.Stage]:
    every = schedule.stages(**options)  # type: ignore[arg-type]
    return [stage for stage in every if stage.name not in schedule.SMALL]


def only(*modules: str) -> list[schedule.Stage]:
    return [schedule.stage(module) for module in modules]


def chain(*ops: str) -> Predicate:
    """Interesting when each operator feeds the next."""

    def interesting(case: Case) -> bool:
        known = index(case.model)
        ends = {key for key, node in known.nodes.items() if node.op_type == ops[0]}
        for op in ops[1:]:
            after = {successor for key in ends for successor in known.successors(key)}
            ends = {key for key in after if known.nodes[key].op_type == op}
        return bool(ends)

    return interesting


def fed_by(op: str, source: str) -> Predicate:
    """Interesting when an operator depends on a certain graph input: dies at any cut between."""

    def interesting(case: Case) -> bool:
        known = index(case.model)
        if source not in known.inputs:
            return False
        below = known.dependents([source])
        return any(known.nodes[key].op_type == op for key in below)

    return interesting


def residual(blocks: int = 12, extra: str = "Softmax") -> Case:
    """Residual blocks, with one unusual operator in the middle one."""
    b = Builder()
    top = b.op("Relu", "x")
    for number in range(blocks):
        inner = b.op("Relu", b.op("MatMul", top, b.normal(4, 4)))
        if number == blocks // 2:
            inner = b.op(extra, inner)
        inner = b.op("MatMul", inner, b.normal(4, 4))
        top = b.op("Mul", b.op("Add", top, inner), b.weight(np.float32(0.5)))
    model = b.model([value("x", [2, 4])], [value(top, [2, 4])])
    return case_of(model)


def test_one_operator_among_many_takes_about_a_binary_search() -> None:
    result = run(residual(), structure(), has("Softmax"))
    assert result.ops == ["Softmax"]
    assert result.calls <= 10


@pytest.mark.parametrize(
    "ops",
    [
        ("Relu", "Softmax"),
        ("Relu", "Softmax", "MatMul"),
        ("MatMul", "Relu", "Softmax", "MatMul", "Add", "Mul"),
    ],
)
def test_a_chain_is_cut_out_whole(ops: tuple[str, ...]) -> None:
    result = run(residual(), structure(), chain(*ops))
    assert sorted(result.ops) == sorted(ops)
    # To find it, to prove that no node can go, and no pair of neighbours.
    assert result.calls <= 12 + 2 * len(ops) + len(ops) - 1


def test_two_parallel_branches_are_both_kept_without_what_joins_them() -> None:
    result = run(case_of(parallel_branches()), structure(), has("Relu", "Tanh"))
    assert sorted(result.ops) == ["Relu", "Tanh"]


def test_far_apart_culprits_lose_the_dead_path_between_them() -> None:
    b = Builder()
    top = b.op("Sin", "x")
    for _ in range(60):
        top = b.op("Relu", b.op("Neg", top))
    top = b.op("Cos", top)
    result = run(
        case_of(b.model([value("x", [4])], [value(top, [4])])), structure(), has("Sin", "Cos")
    )
    assert sorted(result.ops) == ["Cos", "Sin"]
    assert result.calls <= 20


def test_a_shipped_network_with_a_bug_that_needs_a_join() -> None:
    """The 66 operators of SqueezeNet and 39 nodes that make weights, down to a Concat of a Relu."""

    def concat_of_relus(case: Case) -> bool:
        known = index(case.model)
        return any(
            node.op_type == "Concat"
            and len(node.inputs) > 1
            and all(
                v is not None and (p := v.producer()) and p.op_type == "Relu" for v in node.inputs
            )
            for node in known.nodes.values()
        )

    model = onnx.load(DATA / "light" / "light_squeezenet.onnx")
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    result = run(case_of(model, data_0=image), structure(), concat_of_relus)
    assert result.ops == ["Relu", "Concat"]
    assert result.calls <= 30


def test_a_bug_that_dies_at_any_cut_is_shortened_by_bypassing() -> None:
    result = run(residual(), structure(), fed_by("Softmax", "x"))
    assert result.ops == ["Softmax"]


def test_without_cuts_the_inputs_are_the_models_own() -> None:
    case = residual()
    result = run(case, structure(cuts=False), has("Softmax"))
    assert result.ops == ["Softmax"]
    assert set(result.case.inputs) == {"x"}
    np.testing.assert_array_equal(result.case.inputs["x"], case.inputs["x"])
    assert result.calls <= 30


def test_constants_ride_along_and_then_become_initializers() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[3,2] y) {
        a = Relu(x)
        shape = Constant<value_ints=[3,2]>()
        b = Neg(a)
        r = Reshape(b, shape)
        y = Sigmoid(r)
    }"""
    result = run(case_of(text), structure(), has("Reshape"))
    assert result.ops == ["Reshape"]
    assert list(result.case.model.graph.initializers) == ["shape"]
    assert set(result.case.inputs) == {"b"}


def test_a_needed_constant_node_stays() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[3,2] y) {
        shape = Constant<value_ints=[3,2]>()
        b = Neg(x)
        y = Reshape(b, shape)
    }"""
    result = run(case_of(text), structure(), has("Reshape", "Constant"))
    assert result.ops == ["Constant", "Reshape"]


def heads(count: int) -> Case:
    b = Builder()
    trunk = b.op("Neg", "x")
    kinds = ["Relu", "Sigmoid", "Tanh", "Abs", "Exp", "Sin", "Cos", "Softplus"]
    outputs = [b.op(kind, trunk) for kind in kinds[:count]]
    return case_of(b.model([value("x", [3])], [value(name, [3]) for name in outputs]))


@pytest.mark.parametrize("count", [2, 3, 8])
def test_one_output_is_kept_with_its_cone(count: int) -> None:
    result = run(heads(count), only("outputs"), has("Sigmoid", "Neg"))
    assert result.ops == ["Neg", "Sigmoid"]
    assert len(result.case.model.graph.outputs) == 1


def test_outputs_that_are_needed_together_stay() -> None:
    result = run(heads(8), only("outputs"), has("Relu", "Cos"))
    assert sorted(result.ops) == ["Cos", "Neg", "Relu"]


def test_outputs_that_are_declared_twice_are_dropped() -> None:
    x, y, b = (value(name, [2, 3]) for name in ("x", "y", "b"))
    nodes = [h.make_node("Relu", ["x"], ["y"]), h.make_node("Erf", ["y"], ["b"])]
    proto = h.make_model(
        h.make_graph(nodes, "g", [x], [b, b, y, b]), opset_imports=[h.make_opsetid("", 17)]
    )
    result = run(case_of(proto), only("outputs"), has("Erf"))
    assert [v.name for v in result.case.model.graph.outputs] == ["b"]

    def twice(case: Case) -> bool:
        return len(case.model.graph.outputs) > 1

    kept = run(case_of(proto), only("outputs"), twice)
    assert [v.name for v in kept.case.model.graph.outputs] == ["b", "y"]


def test_two_nodes_go_at_once_where_none_goes_alone() -> None:
    """As for an oracle that has no answer for odd numbers of nodes."""
    x, y = value("v0", [2, 3]), value("v8", [2, 3])
    nodes = [h.make_node("Erf" if k == 4 else "Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(8)]
    proto = h.make_model(
        h.make_graph(nodes, "g", [x], [y]), opset_imports=[h.make_opsetid("", 17)], ir_version=8
    )

    def even(case: Case) -> bool:
        return len(case.model.graph) % 2 == 0 and has("Erf")(case)

    result = run(case_of(proto), [*only("nodes"), schedule.stage("pairs")], even)
    assert len(result.ops) == 2
    assert "Erf" in result.ops
    assert schedule.stages()[-1].name == "pairs"


def nameless() -> Case:
    x, m, y = value("x", [2, 3]), value("m", [1]), value("y", [2, 3])
    nodes = [
        h.make_node("Clip", ["x", "", "m"], []),
        h.make_node("Erf", ["x"], [""]),
        h.make_node("Neg", ["x"], ["y"]),
    ]
    graph = h.make_graph(nodes, "g", [x, m], [y])
    return case_of(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))


def test_nodes_without_named_outputs_go() -> None:
    result = run(nameless(), only("outputs"), has("Neg"))
    assert result.ops == ["Neg"]


def test_nodes_without_named_outputs_go_one_by_one() -> None:
    case = nameless()
    asked = [edit.apply(case) for edit in only("outputs")[0].edits(case)]
    assert ["Erf", "Neg"] in [[node.op_type for node in c.model.graph] for c in asked]
    assert ["Clip", "Neg"] in [[node.op_type for node in c.model.graph] for c in asked]


@pytest.mark.parametrize("module", schedule.SMALL)
def test_no_pass_stumbles_over_nodes_without_named_outputs(module: str) -> None:
    case = nameless()
    for edit in only(module)[0].edits(case):
        assert edit.describe()


def test_inputs_that_nothing_reads_are_dropped() -> None:
    model = h.make_model(
        h.make_graph(
            [h.make_node("Relu", ["x"], ["y"])],
            "g",
            [value("x", [2]), value("unused", [3])],
            [value("y", [2])],
        ),
        opset_imports=[h.make_opsetid("", 17)],
        ir_version=8,
    )
    result = run(case_of(model), only("outputs"), has("Relu"))
    assert set(result.case.inputs) == {"x"}
    assert [v.name for v in result.case.model.graph.inputs] == ["x"]


def test_equal_operators_merge() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] a, float[2,3] b) => (float[4,3] y) {
        p = Relu(a)
        q = Relu(b)
        y = Concat<axis=0>(p, q)
    }"""
    result = run(case_of(text), only("merge"), chain("Relu", "Concat"))
    assert result.ops == ["Relu", "Concat"]


def test_different_attributes_do_not_merge() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] a, float[2,3] b) => (float[4,3] y) {
        p = LeakyRelu<alpha=0.1>(a)
        q = LeakyRelu<alpha=0.2>(b)
        y = Concat<axis=0>(p, q)
    }"""
    result = run(case_of(text), only("merge"), has("Concat"))
    assert result.calls == 0


def test_inputs_of_the_same_kind_merge() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] a, float[3] b, float[2] c, float[2] d) => (float[2] y, float[3] z) {
        p = Add(a, c)
        y = Mul(p, d)
        z = Neg(b)
    }"""
    result = run(case_of(text), only("inputs"), has("Add", "Mul", "Neg"))
    assert set(result.case.inputs) == {"a", "b"}


def test_regions_of_one_type_and_shape_are_taken_out_largest_first() -> None:
    result = run(residual(), only("regions"), has("Softmax"))
    assert len(result.ops) <= 12
    assert result.calls <= 16


def test_prefix_keeps_the_shortest_part_from_the_inputs_on() -> None:
    case = residual()
    result = run(case, only("prefix"), has("Softmax"))
    assert result.ops[-1] == "Softmax"
    assert set(result.case.inputs) == {"x"}
    assert result.calls <= 12


def softmax_name(case: Case) -> str:
    return next(n.outputs[0].name or "" for n in case.model.graph if n.op_type == "Softmax")


def test_a_right_suspect_saves_questions() -> None:
    named = run(residual(40), structure(suspects=lambda case: [softmax_name(case)]), has("Softmax"))
    unnamed = run(residual(40), structure(), has("Softmax"))
    assert named.ops == unnamed.ops == ["Softmax"]
    assert named.calls < unnamed.calls
    assert named.calls <= 3


def test_wrong_suspects_cost_a_few_questions_only() -> None:
    case = residual()
    result = run(case, structure(suspects=lambda case: ["x", "nobody", "relu_0"]), has("Softmax"))
    assert result.ops == ["Softmax"]
    assert result.calls <= 24


def test_suspects_are_resolved_by_value_node_name_and_reader() -> None:
    case = residual()
    known = index(case.model)
    softmax = softmax_name(case)
    assert suspects.resolve(known, [softmax, f"n_{softmax}", "nobody"]) == [softmax]
    assert suspects.resolve(known, ["x"]) == ["relu_0"]


def test_clusters_hold_single_nodes_chains_and_joins() -> None:
    known = index(case_of(parallel_branches()).model)
    suspicion = _clusters.unusual(known, known.order)
    found = _clusters.clusters(known, known.order, suspicion)
    for group in (["a"], ["a", "r", "s"], ["s", "u", "v"], ["a", "t"]):
        assert frozenset(group) in found
    assert frozenset(["r", "t"]) not in found
    assert found[frozenset(["a"])] > found[frozenset(["a", "r"])]


def test_unusual_nodes_are_those_without_a_like() -> None:
    case = residual()
    known = index(case.model)
    suspicion = _clusters.unusual(known, known.order)
    assert suspicion[softmax_name(case)] == _clusters.UNUSUAL
    muls = [key for key, node in known.nodes.items() if node.op_type == "Mul"]
    assert {suspicion[key] for key in muls} == {1}


def test_kept_values_are_what_they_were() -> None:
    case = residual()
    result = run(case, structure(), chain("Relu", "Softmax"))
    name = next(iter(result.case.inputs))
    expected = recorded(case).recording
    assert expected is not None
    np.testing.assert_array_equal(result.case.inputs[name], expected.get(name))


def test_the_original_is_not_changed() -> None:
    case = residual()
    before = ir.to_proto(case.model).SerializeToString(deterministic=True)
    run(case, structure(), has("Softmax"))
    assert ir.to_proto(case.model).SerializeToString(deterministic=True) == before


def test_a_constant_path_is_shortened_by_bypassing() -> None:
    """What depends on no input may be replaced by what depends on none."""
    case = case_of(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1] x) => (float[1] y, float[1] z) <float[1] w = {2}> {
          t = Transpose (w)
          y = Add (t, w)
          z = Neg (x)
        }"""
    )
    run = drive(case, [bypass], lambda c: has("Transpose")(c) and len(c.model.graph.inputs) == 1)
    assert run.ops == ["Transpose", "Neg"]


def test_what_reads_a_constant_that_the_bug_needs_is_bypassed_by_it() -> None:
    """A constant that is stored takes no such place."""
    case = case_of(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1] x) => (float[1] y) <float[1] w = {2}> {
          t = Clip (w)
          a = Add (x, t)
          y = Mul (a, w)
        }"""
    )
    assert drive(case, [bypass], has("Clip")).ops == ["Clip"]
