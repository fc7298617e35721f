"""The index over a main graph."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper as h
from recording import light_case, parsed

from onnxreduce.graph import SINK, SOURCE, Index, index

LOOP = """
agraph (float[2] x, int64 n, bool c) => (float[2] y) {
    a = Relu(x)
    b = Neg(a)
    k = Constant<value = float {2.0}>()
    y = Loop(n, c, b) <body = body (int64 i, bool go, float[2] s) => (bool stay, float[2] t) {
        stay = Identity(go)
        u = If(stay) <
            then_branch = yes () => (float[2] p) { p = Add(s, a) },
            else_branch = no () => (float[2] q) { q = Mul(s, k) }
        >
        t = Identity(u)
    }>
}
"""


def model_of(text: str) -> ir.Model:
    return parsed(text).model


def chain(length: int, skip: int = 0) -> onnx.ModelProto:
    nodes = [
        h.make_node("Add", [f"v{k}", f"v{max(0, k - skip)}"], [f"v{k + 1}"]) for k in range(length)
    ]
    value = h.make_tensor_value_info
    graph = h.make_graph(nodes, "g", [value("v0", 1, ["N"])], [value(f"v{length}", 1, ["N"])])
    return h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 18)])


def test_captures_of_nested_bodies_are_reads() -> None:
    known = Index(model_of(LOOP))
    assert known.reads["y"] == ("n", "c", "b", "a", "k")
    assert known.readers("a") == ("b", "y")
    assert known.readers("k") == ("y",)
    assert known.producer("a") == "a"
    assert known.producer("x") is None
    assert known.ancestors("y") == {"a", "b", "k"}
    assert known.descendants("a") == {"b", "y"}


def test_the_index_of_a_model_is_made_once() -> None:
    model = model_of(LOOP)
    assert index(model) is index(model)


def test_what_depends_on_an_input() -> None:
    known = Index(
        model_of(
            """agraph (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
                d = Dropout(w)
                k = Neg(w)
                r = RandomNormal<shape = [2]>()
                s = Neg(r)
                y = Sum(x, k, s, d)
            }"""
        )
    )
    assert [known.depends_on_input(v) for v in ("x", "w", "k", "r", "s", "d", "y")] == [
        True, False, False, True, True, True, True,
    ]  # fmt: skip


def test_random_numbers_in_functions_and_bodies_are_seen() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18, "local": 1]>
        agraph (bool c) => (float[2] y) {
            f = local.outer()
            g = local.plain()
            b = If(c) <
                then_branch = yes () => (float[2] p) { p = RandomUniform<shape = [2]>() },
                else_branch = no () => (float[2] q) { q = Constant<value = float[2] {1, 2}>() }
            >
            y = Sum(f, g, b)
        }
        <domain: "local", opset_import: ["": 18, "local": 1]>
        outer () => (o) { o = local.inner() }
        <domain: "local", opset_import: ["": 18]>
        inner () => (o) { o = RandomNormal<shape = [2]>() }
        <domain: "local", opset_import: ["": 18]>
        plain () => (o) { o = Constant<value = float[2] {1, 2}>() }
        """
    )
    known = Index(ir.serde.deserialize_model(model))
    assert known.depends_on_input("f")
    assert known.depends_on_input("b")
    assert not known.depends_on_input("g")


def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    model = model_of("agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    model.graph.inputs.append(model.graph.initializers["w"])
    known = Index(model)
    assert known.inputs == ("x",)
    assert not known.depends_on_input("w")


def test_order_is_topological_even_when_the_model_is_not() -> None:
    proto = chain(6, 2)
    assert Index(ir.serde.deserialize_model(proto)).order == tuple(f"v{k}" for k in range(1, 7))
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    assert Index(ir.serde.deserialize_model(proto)).order == tuple(f"v{k}" for k in range(1, 7))


def test_nearest_goes_to_ancestors_first() -> None:
    known = Index(
        model_of(
            """agraph (float[2] x) => (float[2] y) {
                a = Abs(x)
                b = Neg(a)
                c = Relu(b)
                d = Exp(b)
                y = Add(c, d)
            }"""
        )
    )
    assert list(known.nearest("c")) == ["c", "b", "y", "a", "d"]
    assert known.neighbours("b") == ("a", "c", "d")


def test_segments_of_a_network_with_constants_and_dead_nodes() -> None:
    known = Index(
        model_of(
            """agraph (float[2] x) => (float[2] y) {
                k = Constant<value = float[2] {1, 2}>()
                k2 = Neg(k)
                a = Abs(x)
                b = Relu(a)
                c = Exp(a)
                dead = Cos(b)
                d = Sum(b, c, k)
                y = Mul(d, k2)
            }"""
        )
    )
    assert known.cuts() == ["a", "d", "y"]
    assert known.segments() == [["a"], ["k", "b", "c", "dead", "d"], ["k2", "y"]]
    assert "dead" not in known.live


def test_squeezenet_falls_apart_at_its_squeeze_layers() -> None:
    known = index(light_case("squeezenet").model)
    segments = known.segments()
    assert sorted(key for part in segments for key in part) == sorted(known.order)
    assert len(segments) > 20
    assert len(known.regions()) > 60


@st.composite
def networks(draw: st.DrawFn) -> ir.Model:
    """Random networks of binary nodes over two inputs and a constant."""
    values = ["x", "z", "w"]
    nodes = []
    for number in range(draw(st.integers(1, 14))):
        pool = values[-4:] if draw(st.booleans()) else values
        read = [draw(st.sampled_from(pool)) for _ in range(2)]
        nodes.append(h.make_node("Add", read, [f"n{number}"]))
        values.append(f"n{number}")
    value = h.make_tensor_value_info
    outputs = draw(st.lists(st.sampled_from(values[3:]), min_size=1, max_size=2, unique=True))
    graph = h.make_graph(
        nodes,
        "g",
        [value("x", 1, [2]), value("z", 1, [2])],
        [value(name, 1, [2]) for name in outputs],
        [h.make_tensor("w", 1, [2], [1.0, 2.0])],
    )
    return ir.serde.deserialize_model(h.make_model(graph, ir_version=8))


def passes_all(known: Index, value: str, start: tuple[str, str], end: tuple[str, str]) -> bool:
    """By definition: no path is left from start to end when the value is taken away."""
    graph = known._flow.copy()
    vertex = ("value", value)
    if vertex not in graph or vertex in (start, end):
        return vertex in graph
    graph.remove_node(vertex)
    return not nx.has_path(graph, start, end)


@settings(max_examples=150, deadline=None)
@given(networks())
def test_cuts_are_the_values_that_all_paths_share(model: ir.Model) -> None:
    known = Index(model)
    if not nx.has_path(known._flow, SOURCE, SINK):
        assert known.cuts() == []
        return
    made = [v for v in known.order if passes_all(known, v, SOURCE, SINK)]
    assert known.cuts() == made
    parts = known.segments()
    assert sorted(key for part in parts for key in part) == sorted(known.order)
    place = {key: number for number, part in enumerate(parts) for key in part}
    flowing = [key for key in known.order if key in known.live and known.depends_on_input(key)]
    for key in flowing:
        for reader in known.successors(key):
            if reader in known.live:
                assert place[key] <= place[reader]


@settings(max_examples=150, deadline=None)
@given(networks())
def test_chains_enclose_single_entry_single_exit_regions(model: ir.Model) -> None:
    known = Index(model)
    found = {pair for values in known.chains() for pair in pairwise(values)}
    for first, second in found:
        assert passes_all(known, first, SOURCE, ("value", second))
        assert passes_all(known, second, ("value", first), SINK)
    linked = {value for pair in found for value in pair}
    values = [v[1] for v in known._flow if v[0] == "value"]
    for first in values:
        for second in values:
            vertex = ("value", second)
            if first != second and nx.has_path(known._flow, ("value", first), vertex):
                enclosed = passes_all(known, first, SOURCE, vertex) and passes_all(
                    known, second, ("value", first), SINK
                )
                assert not enclosed or {first, second} <= linked


@pytest.mark.parametrize(("skip", "segments"), [(0, 10_000), (5, 1)])
def test_ten_thousand_nodes(skip: int, segments: int) -> None:
    model = ir.serde.deserialize_model(chain(10_000, skip))
    known = Index(model)
    assert len(known.segments()) == segments
    assert len(known.ancestors("v10000")) == 9_999
    assert known.regions()
