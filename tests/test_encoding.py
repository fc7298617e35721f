"""What is remembered between candidates never shows: a model is encoded as if it were the first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import nested_model
from recording import light_case

from onnxreduce import encoding, size
from onnxreduce.case import Case, graphs
from onnxreduce.cloning import clone_model
from onnxreduce.encoding import Encoded, encode
from onnxreduce.size import Size, bulk, measure


def from_scratch(model: ir.Model) -> Encoded:
    nodes, tensors = dict(encoding._nodes), dict(encoding._initializers)
    encoding._nodes.clear()
    encoding._initializers.clear()
    try:
        return encode(model)
    finally:  # so that what was remembered longest is asked again after the next edit
        encoding._nodes.update(nodes)
        encoding._initializers.update(tensors)


def measured_from_scratch(model: ir.Model) -> Size:
    tensors = dict(size._tensors)
    size._tensors.clear()
    size._attributes.clear()
    size._elements.clear()
    try:
        return measure(model, {})
    finally:
        size._tensors.update(tensors)


def nodes(model: ir.Model) -> list[ir.Node]:
    return [node for graph in graphs(model) for node in graph]


def rename_value(model: ir.Model, pick: int) -> None:
    made = [value for node in nodes(model) for value in node.outputs]
    made[pick % len(made)].name = f"renamed{pick}"


def rename_node(model: ir.Model, pick: int) -> None:
    nodes(model)[pick % len(nodes(model))].name = f"node{pick}"


def retype(model: ir.Model, pick: int) -> None:
    made = [value for node in nodes(model) for value in node.outputs]
    made[pick % len(made)].type = ir.TensorType(ir.DataType(1 + pick % 7))


def reshape(model: ir.Model, pick: int) -> None:
    made = [value for node in nodes(model) for value in node.outputs]
    made[pick % len(made)].shape = None if pick % 5 == 0 else ir.Shape([pick, "N", None])


def annotate(model: ir.Model, pick: int) -> None:
    made = [value for node in nodes(model) for value in node.outputs]
    made[pick % len(made)].meta[encoding.QUANTIZATION] = {"SCALE_TENSOR": f"s{pick}"}


def attribute(model: ir.Model, pick: int) -> None:
    node = nodes(model)[pick % len(nodes(model))]
    node.attributes["made_up"] = ir.AttrInt64("made_up", pick)


def constant(model: ir.Model, pick: int) -> None:
    node = nodes(model)[pick % len(nodes(model))]
    tensor = ir.Tensor(np.arange(pick, dtype=np.float32), name="made_up")
    node.attributes["tensor"] = ir.AttrTensor("tensor", tensor)


def weights(model: ir.Model, pick: int) -> None:
    values = list(model.graph.initializers.values())
    if values:
        values[pick % len(values)].const_value = ir.Tensor(np.arange(pick, dtype=np.float32))


def declare(model: ir.Model, pick: int) -> None:
    values = list(model.graph.initializers.values())
    if values:
        values[pick % len(values)].shape = ir.Shape(["M"])


def metadata(model: ir.Model, pick: int) -> None:
    nodes(model)[pick % len(nodes(model))].metadata_props[f"key{pick}"] = "text"


def doc_string(model: ir.Model, pick: int) -> None:
    nodes(model)[pick % len(nodes(model))].doc_string = f"text{pick}"


def input_of(model: ir.Model, pick: int) -> None:
    every = nodes(model)
    node = every[pick % len(every)]
    if node.inputs:
        node.replace_input_with(pick % len(node.inputs), None)


def expose(model: ir.Model, pick: int) -> None:
    made = [value for node in model.graph for value in node.outputs]
    value = made[pick % len(made)]
    if value not in model.graph.outputs:
        model.graph.outputs.append(value)


EDITS: list[Callable[[ir.Model, int], None]] = [
    rename_value, rename_node, retype, reshape, annotate, attribute, constant, weights, declare,
    metadata, doc_string, input_of, expose,
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["nested", "squeezenet"]),
    st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 400)), max_size=6),
)
def test_what_is_remembered_never_shows(name: str, edits: list[tuple[object, int]]) -> None:
    model = MODELS[name]()
    for edit, pick in edits:
        model = clone_model(model)
        edit(model, pick)  # type: ignore[operator]
        now = encode(model)
        assert now == from_scratch(model)
        assert measure(model, {}) == measured_from_scratch(model)
        assert bulk(model, {}) == measure(model, {})[:3]
        proto = onnx.ModelProto.FromString(now.content)
        assert proto.SerializeToString(deterministic=True) == now.content


MODELS: dict[str, Callable[[], ir.Model]] = {
    "nested": lambda: ir.from_proto(nested_model()),
    "squeezenet": lambda: clone_model(SQUEEZENET.model),
}
SQUEEZENET = light_case("squeezenet")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 400)), max_size=6),
)
def test_a_copy_is_equal_and_its_own(name: str, edits: list[tuple[object, int]]) -> None:
    model = MODELS[name]()
    for edit, pick in edits:
        edit(model, pick)  # type: ignore[operator]
    before = encode(model)
    for node in model.graph:
        node.meta["mark"] = node.name
    copy = clone_model(model)
    assert encode(copy) == before
    assert [node.meta["mark"] for node in copy.graph] == [node.name for node in model.graph]
    assert not {id(node) for node in nodes(copy)} & {id(node) for node in nodes(model)}
    for edit in EDITS:
        edit(copy, 7)
    assert encode(model) == before


def test_a_copy_needs_what_is_read() -> None:
    a = ir.Value(name="a")
    node = ir.Node("", "Relu", [a], num_outputs=1)
    node.outputs[0].name = "y"
    graph = ir.Graph([], [node.outputs[0]], nodes=[node], name="g", opset_imports={"": 17})
    with pytest.raises(ValueError, match="reads a before it is made"):
        clone_model(ir.Model(graph, ir_version=8))


def test_weights_in_a_body_of_a_function_are_told_apart_from_those_of_the_main_graph() -> None:
    """Both are the first initializers of their graphs."""
    function = ir.from_proto(nested_model())
    body = next(g for g in graphs(function) if g is not function.graph)
    value = ir.Value(name="big", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([400]))
    value.const_value = ir.Tensor(np.zeros(400, np.float32))
    body.register_initializer(value)
    outer = clone_model(function)
    call = ir.Node("local", "f", [], num_outputs=1)
    call.outputs[0].name = "y"
    main = ir.Graph([], [call.outputs[0]], nodes=[call], name="main", opset_imports={"": 17})
    local = ir.Function("local", "f", graph=outer.graph, attributes=[])
    model = ir.Model(main, ir_version=8, functions=[local])
    assert [part.index for part in Case(model, {}).payloads] == [None]
