"""Graphs that nobody would write, with planted bugs: no pass fails, and the result is minimal.

The graphs have bodies that capture values, optional inputs, odd names, dims of zero, scalars and
several types. The bug is a predicate over the graph, so what must be left is known; whether it is
minimal is judged here, by edits that share no code with the passes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxreduce.case import Case
from onnxreduce.engine import Engine
from onnxreduce.schedule import stages
from tests.drive import Run, valid
from tests.recording import recording_of

NAMES = ["x", "a/b:0", "..", "é", "a b", "0", "x_1", "W", "input", "%s", "'", "a.b", "-", "y\t"]
FLOATS = (np.float32, np.float64)
TYPES = (*FLOATS, np.int64, np.int32)
PERMUTATIONS = {2: [(1, 0)], 3: [(1, 2, 0), (0, 2, 1), (2, 1, 0)]}
Array = np.ndarray[Any, Any]
Predicate = Callable[[onnx.ModelProto], bool]


@dataclass
class Sketch:
    """A graph while it is drawn, with the values that it computes."""

    draw: Any
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def name(self) -> str:
        base = self.draw(st.sampled_from(NAMES))
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}{count}"
        self.taken.add(name)
        return name

    def array(self) -> Array:
        shape = self.draw(st.lists(st.sampled_from([2, 1, 3, 0]), max_size=3))
        dtype = self.draw(st.sampled_from(TYPES))
        return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)

    def weight(self, array: Any, dtype: Any = np.int64) -> str:
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def pick(self, wanted: Callable[[Array], bool] = lambda a: True) -> str | None:
        fitting = [name for name, value in self.values.items() if wanted(value)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def add(self, kind: str, inputs: list[str], value: Array, **attributes: Any) -> str:
        output = self.name()
        node = helper.make_node(kind, inputs, [output], **attributes)
        node.name = self.draw(st.sampled_from(["", f"{kind} {output}", output]))
        self.nodes.append(node)
        self.values[output] = np.asarray(value)
        return output


def unary(s: Sketch) -> None:
    x = s.pick()
    kind, f = s.draw(
        st.sampled_from([("Neg", np.negative), ("Abs", np.abs), ("Identity", np.array)])
    )
    if x is not None:
        s.add(kind, [x], f(s.values[x]))


def smooth(s: Sketch) -> None:
    x = s.pick(lambda a: a.dtype in FLOATS)
    if x is not None:
        kind, f = s.draw(st.sampled_from([("Tanh", np.tanh), ("Relu", lambda a: np.maximum(a, 0))]))
        s.add(kind, [x], f(s.values[x]).astype(s.values[x].dtype))


def binary(s: Sketch) -> None:
    x = s.pick()
    if x is None:
        return
    a = s.values[x]
    y = s.pick(lambda b: b.dtype == a.dtype and (b.shape == a.shape or b.ndim == 0))
    assert y is not None
    kind, f = s.draw(st.sampled_from([("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract)]))
    s.add(kind, [x, y], f(a, s.values[y]))


def cast(s: Sketch) -> None:
    x = s.pick()
    if x is not None:
        dtype = s.draw(st.sampled_from(TYPES))
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        s.add("Cast", [x], s.values[x].astype(dtype), to=to)


def transpose(s: Sketch) -> None:
    x = s.pick(lambda a: a.ndim in PERMUTATIONS)
    if x is not None:
        perm = s.draw(st.sampled_from(PERMUTATIONS[s.values[x].ndim]))
        s.add("Transpose", [x], s.values[x].transpose(perm), perm=perm)


def reshape(s: Sketch) -> None:
    x = s.pick(lambda a: a.size > 0)
    if x is not None:
        shape = s.draw(st.sampled_from([[-1], [1, -1], [-1, 1, 1]]))
        s.add("Reshape", [x, s.weight(shape)], s.values[x].reshape(shape))


def unsqueeze(s: Sketch) -> None:
    x = s.pick(lambda a: a.ndim < 3)
    if x is not None:
        s.add("Unsqueeze", [x, s.weight([0])], s.values[x][None])


def concat(s: Sketch) -> None:
    x = s.pick(lambda a: a.ndim > 0)
    if x is not None:
        axis = s.draw(st.integers(0, s.values[x].ndim - 1))
        s.add("Concat", [x, x], np.concatenate([s.values[x]] * 2, axis), axis=axis)


def reduce_sum(s: Sketch) -> None:
    """With axes, or without the optional input."""
    x = s.pick()
    if x is None:
        return
    value = s.values[x]
    if value.ndim and s.draw(st.booleans()):
        total = value.sum(0, dtype=value.dtype)
        s.add("ReduceSum", [x, s.weight([0])], total, keepdims=0)
    else:
        s.add("ReduceSum", [x], value.sum(dtype=value.dtype), keepdims=0)


def clip(s: Sketch) -> None:
    """An optional input left out in the middle, at the end, or not at all."""
    x = s.pick()
    if x is None:
        return
    value = s.values[x]
    low, high = s.draw(
        st.sampled_from([(False, True), (True, False), (True, True), (False, False)])
    )
    inputs = [x]
    inputs += [s.weight(-1, value.dtype) if low else ""] if low or high else []
    inputs += [s.weight(2, value.dtype)] if high else []
    value = np.maximum(value, -1) if low else value
    s.add("Clip", inputs, np.minimum(value, 2) if high else value)


def shape(s: Sketch) -> None:
    x = s.pick()
    if x is not None:
        s.add("Shape", [x], np.array(s.values[x].shape, np.int64))


def matmul(s: Sketch) -> None:
    x = s.pick(lambda a: a.dtype in FLOATS and a.ndim == 2)
    if x is not None:
        a = s.values[x]
        w = np.ones((a.shape[1], 2), a.dtype)
        s.add("MatMul", [x, s.weight(w, a.dtype)], a @ w)


def branch(s: Sketch) -> None:
    """`If`: both bodies capture a value, one another one too."""
    x = s.pick()
    if x is None:
        return
    a = s.values[x]
    y = s.pick(lambda b: b.dtype == a.dtype and b.shape == a.shape)
    truth = s.draw(st.booleans())
    condition = s.weight(truth, np.bool_)
    bodies = []
    for kind, inputs in (("Add", [x, y]), ("Neg", [x])):
        name = s.name()
        result = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), None)
        bodies.append(
            helper.make_graph([helper.make_node(kind, inputs, [name])], s.name(), [], [result])
        )
    value = a + s.values[y] if truth else -a  # type: ignore[index]
    s.add("If", [condition], value, then_branch=bodies[0], else_branch=bodies[1])


def loop(s: Sketch) -> None:
    """`Loop` with an optional condition left out; the body captures what it adds."""
    x = s.pick()
    if x is None:
        return
    a = s.values[x]
    y = s.pick(lambda b: b.dtype == a.dtype and b.shape == a.shape)
    trips = s.draw(st.integers(0, 3))
    i, c, v, c2, v2 = (s.name() for _ in range(5))
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", [c], [c2]), helper.make_node("Add", [v, y], [v2])],
        s.name(),
        [info(i, 7, []), info(c, 9, []), info(v, kind, None)],
        [info(c2, 9, []), info(v2, kind, None)],
    )
    value = a
    for _ in range(trips):
        value = value + s.values[y]  # type: ignore[index]
    s.add("Loop", [s.weight(trips), "", x], value, body=body)


MAKERS = [
    unary, smooth, binary, cast, transpose, reshape, unsqueeze, concat, reduce_sum, clip, shape,
    matmul, branch, loop,
]  # fmt: skip


@st.composite
def models(draw: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model that is valid, with its inputs."""
    s = Sketch(draw)
    for _ in range(draw(st.integers(1, 3))):
        name, array = s.name(), s.array()
        s.inputs[name] = s.values[name] = array
    for _ in range(draw(st.integers(0, 2))):
        array = s.array()
        s.values[s.weight(array, array.dtype)] = array
    for maker in draw(st.lists(st.sampled_from(MAKERS), min_size=1, max_size=9)):
        maker(s)
    assume(s.nodes)
    read = {name for node in s.nodes for name in node.input}
    made = [output for node in s.nodes for output in node.output]
    ends = [name for name in made if name not in read] or made[-1:]
    if draw(st.booleans()) and made[0] not in ends:
        ends.append(made[0])

    def info(name: str) -> onnx.ValueInfoProto:
        array = s.values[name]
        dims: list[Any] = [
            f"d{i}" if draw(st.integers(0, 5)) == 0 else n for i, n in enumerate(array.shape)
        ]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, dims)

    graph = helper.make_graph(
        s.nodes,
        draw(st.sampled_from(["g", "a b", "é"])),
        [info(name) for name in s.inputs],
        [info(name) for name in ends],
        s.weights,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), s.inputs


# The bugs.


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def pairs(graph: onnx.GraphProto) -> set[tuple[str, str]]:
    """Which kind of node reads the result of which kind."""
    makers = {output: node.op_type for node in graph.node for output in node.output}
    return {
        (makers[name], node.op_type) for node in graph.node for name in node.input if name in makers
    }


def attributes(graph: onnx.GraphProto) -> set[tuple[str, str, str]]:
    return {
        (node.op_type, attribute.name, str(helper.get_attribute_value(attribute)))
        for node in all_nodes(graph)
        for attribute in node.attribute
        if not attribute.HasField("g")
    }


@st.composite
def bugs(draw: Any, model: onnx.ModelProto) -> tuple[str, Predicate]:
    """A predicate that holds for the model, and its name."""
    graph = model.graph
    kinds = Counter(node.op_type for node in all_nodes(graph))
    kind = draw(st.sampled_from(sorted(kinds)))
    choices: list[tuple[str, Predicate]] = [
        (f"has {kind}", lambda m: any(n.op_type == kind for n in all_nodes(m.graph))),
    ]
    least = min(kinds[kind], draw(st.integers(1, 3)))
    choices.append(
        (
            f"{least} x {kind}",
            lambda m: sum(n.op_type == kind for n in all_nodes(m.graph)) >= least,
        )
    )
    for pair in sorted(pairs(graph)):
        choices.append((f"{pair}", lambda m, pair=pair: pair in pairs(m.graph)))
    for found in sorted(attributes(graph)):
        choices.append((f"{found}", lambda m, found=found: found in attributes(m.graph)))
    inputs = [len(value.type.tensor_type.shape.dim) for value in graph.input]
    if inputs:
        rank = max(inputs)
        choices.append(
            (
                f"{kind} and an input of rank {rank}",
                lambda m: (
                    any(n.op_type == kind for n in all_nodes(m.graph))
                    and any(len(v.type.tensor_type.shape.dim) >= rank for v in m.graph.input)
                ),
            )
        )
    return draw(st.sampled_from(choices))


# Naive edits of single nodes.


def simpler(model: onnx.ModelProto, inputs: dict[str, Array]) -> Iterator[tuple[str, Case]]:
    """Every model with one node less: its results given from outside, or one of its inputs
    in the place of its result, or just not there."""
    values = values_of(model, inputs)
    for index, node in enumerate(model.graph.node):
        outputs = [name for name in node.output if name]
        if all(name in values for name in outputs):
            yield f"cut {node.op_type}", _cut(model, inputs, index, values)
        for source in node.input if len(outputs) == 1 else ():
            if source and _alike(values.get(source), values.get(outputs[0])):
                yield f"bypass {node.op_type}", _bypass(model, inputs, index, source)


def values_of(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    names = [name for node in model.graph.node for name in node.output if name]
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    found = dict(inputs)
    found |= {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    results = ReferenceEvaluator(whole).run(names, dict(inputs))
    found |= {n: np.asarray(r) for n, r in zip(names, results, strict=True)}
    return found


def _alike(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and (a.shape, a.dtype) == (b.shape, b.dtype)


def _without(model: onnx.ModelProto, index: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[index]
    return copy


def _cut(
    model: onnx.ModelProto, inputs: dict[str, Array], index: int, values: dict[str, Array]
) -> Case:
    copy, fed = _without(model, index), dict(inputs)
    read = _reads(copy.graph)
    for name in model.graph.node[index].output:
        kept = [v for v in copy.graph.output if v.name != name]
        if len(kept) < len(copy.graph.output):
            del copy.graph.output[:]
            copy.graph.output.extend(kept)
        if name in read:
            array = values[name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            copy.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
            fed[name] = array
    return _case(copy, fed)


def _bypass(model: onnx.ModelProto, inputs: dict[str, Array], index: int, source: str) -> Case:
    copy = _without(model, index)
    output = model.graph.node[index].output[0]
    for node in all_nodes(copy.graph):
        node.input[:] = [source if name == output else name for name in node.input]
    kept = [v for v in copy.graph.output if v.name != output]
    if len(kept) < len(copy.graph.output):
        made = {name for node in copy.graph.node for name in node.output}
        if source in made and source not in [v.name for v in kept]:
            kept.append(onnx.ValueInfoProto(name=source, type=model.graph.output[0].type))
            old = next(v for v in model.graph.output if v.name == output)
            kept[-1].type.CopyFrom(old.type)
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    return _case(copy, dict(inputs))


def _reads(graph: onnx.GraphProto) -> set[str]:
    return {name for node in all_nodes(graph) for name in node.input}


def _case(model: onnx.ModelProto, fed: dict[str, Array]) -> Case:
    """Without nodes, inputs and weights that nothing reads any more."""
    while True:
        read = _reads(model.graph) | {value.name for value in model.graph.output}
        live = [node for node in model.graph.node if read & set(node.output)]
        if len(live) == len(model.graph.node):
            break
        del model.graph.node[:]
        model.graph.node.extend(live)
    kept = [value for value in model.graph.input if value.name in read]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    weights = [weight for weight in model.graph.initializer if weight.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
    names = {value.name for value in kept}
    return Case(ir.from_proto(model), {n: a for n, a in fed.items() if n in names})


class Strict(Run):
    """A run with real recordings, in which no pass may fail."""

    def recorded(self, case: Case) -> Case:
        return case.with_recording(recording_of(case))

    def broken(self, stage: str, error: Exception) -> None:
        raise AssertionError(f"the pass {stage} failed") from error


def check(model: onnx.ModelProto, inputs: dict[str, Array], shows: Predicate) -> None:
    def interesting(case: Case) -> bool:
        return shows(ir.to_proto(case.model))

    case = Case(ir.from_proto(model), inputs)
    assume(valid(case))
    run = Strict(case, interesting)
    engine = Engine(case, run)
    engine.run(stages(suspects=lambda case: []))
    result = engine.case
    assert valid(result)
    assert interesting(result)
    assert result.size <= case.size
    left = ir.to_proto(result.model)
    note(onnx.printer.to_text(left))
    for edit, smaller in simpler(left, dict(result.inputs)):  # type: ignore[arg-type]
        if smaller.model.graph.outputs and smaller.size < result.size:
            assert not (interesting(smaller) and valid(smaller)), edit


def fuzz(data: st.DataObject) -> None:
    model, inputs = data.draw(models())
    words, shows = data.draw(bugs(model))
    note(f"{words} in\n{onnx.printer.to_text(model)}")
    check(model, inputs, shows)


RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@given(st.data())
@settings(RELAXED, max_examples=20, derandomize=True)
def test_some_graphs(data: st.DataObject) -> None:
    fuzz(data)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@given(st.data())
@settings(RELAXED, max_examples=int(os.environ.get("ONNXREDUCE_FUZZ", "2000")))
def test_many_graphs(data: st.DataObject) -> None:
    fuzz(data)
