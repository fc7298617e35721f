"""Open what hides nodes from the other passes: branches, loop bodies and local functions.

The branch that an ``If`` takes replaces it; the body of a ``Loop`` or ``Scan`` is run once, or not
at all; a function's nodes replace its call. The node that held the body goes, so the result is
smaller, and what was inside can then be cut and bypassed like everything else. A function that is
called often may grow the model: then the edit is refused, and its body is reduced where it stands
(`subgraphs.py`) until inlining pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as ir_passes

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Edit, Proposals, key, keyed
from onnxreduce.passes._draft import (
    Draft,
    Spot,
    bodies,
    constant_of,
    detach,
    identifier,
    initializer,
    listing,
    nodes_at,
    places,
    replace,
)
from onnxreduce.passes._groups import first, follow, groups
from onnxreduce.tensors import Array

NAME = "inline"
RECORDS = True


def edits(case: Case) -> Proposals:
    functions = [identifier(function) for function in case.model.functions.values()]
    case = yield from follow(case, groups(functions, InlineFunctions))
    for spot in list(_holders(case.model)):
        case = yield from first(case, *_openings(case, spot))


@dataclass(frozen=True)
class InlineFunctions:
    """Replace the calls of some local functions (``domain::name::overload``) by their nodes."""

    names: tuple[str, ...]

    def describe(self) -> str:
        return f"inline {listing([name.strip(':') for name in self.names])}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        chosen = [f for f in draft.model.functions.values() if identifier(f) in self.names]
        if len(chosen) != len(self.names):
            raise Conflict("a function is gone")
        inliner = ir_passes.InlinePass(lambda function: identifier(function) in self.names)
        try:
            modified = inliner(draft.model).modified
        except (ir.passes.PassError, ir.passes.PreconditionError, ValueError) as error:
            raise Conflict(f"cannot be inlined: {error}") from error
        if not modified:
            raise Conflict("the functions are not called")
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class InlineBranch:
    """Replace an ``If`` by one of its branches."""

    spot: Spot
    branch: str

    def describe(self) -> str:
        return f"inline {self.branch} of {self.spot[1]}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        node, body = _holder(draft.model, self.spot, "If", self.branch)
        results = _splice(draft, node, body, [])
        for old, new in zip(node.outputs, results, strict=True):
            _take_over(draft, node, old, new)
        detach(node)
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class InlineLoop:
    """Replace a ``Loop`` by its body, or by what it is given when it runs no times."""

    spot: Spot
    times: int

    def describe(self) -> str:
        return f"run {self.spot[1]} {'once' if self.times else 'no times'}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        node, body = _holder(draft.model, self.spot, "Loop", "body")
        states = list(node.inputs[2:])
        if any(value is None for value in states):
            raise Conflict("a loop variable has no value")
        carried = [value for value in states if value is not None]
        if not self.times:
            if any(_read(value) for value in node.outputs[len(carried) :]):
                raise Conflict("scan outputs are read")
            results = carried
        else:
            given = [
                _constant(draft, node, "i", np.array(0, np.int64), body.inputs[0]),
                _constant(draft, node, "cond", np.array(True), body.inputs[1]),
                *carried,
            ]
            results = _splice(draft, node, body, given)[1:]
        _finish_loop(draft, node, results, len(carried), [0] * len(results))
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class InlineScan:
    """Replace a ``Scan`` by its body on the first slices, which are fed."""

    spot: Spot

    def describe(self) -> str:
        return f"run the first step of {self.spot[1]}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        node, body = _holder(draft.model, self.spot, "Scan", "body")
        if self.spot[0]:
            raise Conflict("slices can be fed in the main graph only")
        count = node.attributes["num_scan_inputs"].as_int()
        states = [value for value in node.inputs[:-count] if value is not None]
        slices = [
            _first_slice(draft, value, axis, direction)
            for value, axis, direction in zip(
                node.inputs[-count:],
                _ints(node, "scan_input_axes", count),
                _ints(node, "scan_input_directions", count),
                strict=True,
            )
        ]
        results = _splice(draft, node, body, [*states, *slices])
        axes = _ints(node, "scan_output_axes", len(results) - len(states))
        _finish_loop(draft, node, results, len(states), [0] * len(states) + axes)
        return draft.finish(same_values=False)


# --- what there is to open ----------------------------------------------------------------------


def _holders(model: ir.Model) -> Iterator[Spot]:
    for place, graph in places(model):
        for node in keyed(graph):
            if node.domain == "" and node.op_type in ("If", "Loop", "Scan"):
                yield place, key(node)


def _openings(case: Case, spot: Spot) -> list[Edit]:
    try:
        (node,) = nodes_at(case.model, [spot])
    except Conflict:
        return []
    if node.op_type == "If":
        taken = _condition(case, node)
        branches = (
            ("then_branch", "else_branch")
            if taken is None
            else ("then_branch" if taken else "else_branch",)
        )
        return [InlineBranch(spot, branch) for branch in branches]
    if node.op_type == "Loop":
        return [InlineLoop(spot, 0), InlineLoop(spot, 1)]
    return [InlineScan(spot)]


def _condition(case: Case, node: ir.Node) -> bool | None:
    """Which branch an If takes; None when that is not known."""
    value = node.inputs[0]
    if value is None:
        return None
    array = _known(case, value)
    return None if array is None or array.size != 1 else bool(array.reshape(-1)[0])


def _known(case: Case, value: ir.Value) -> Array | None:
    """What a value of the main graph holds, fed, constant or recorded."""
    name = str(value.name)
    if name in case.inputs:
        fed = case.inputs[name]
        return fed if isinstance(fed, np.ndarray) else None
    tensor = constant_of(value)
    if tensor is not None:
        return tensor.numpy()
    recorded = case.recording.get(name) if case.recording is not None else None
    return recorded if isinstance(recorded, np.ndarray) else None


# --- moving a body ------------------------------------------------------------------------------


def _holder(model: ir.Model, spot: Spot, op_type: str, attribute: str) -> tuple[ir.Node, ir.Graph]:
    (node,) = nodes_at(model, [spot])
    body = dict(bodies(node)).get(attribute)
    if node.op_type != op_type or body is None:
        raise Conflict(f"{spot[1]} is no {op_type} with {attribute}")
    return node, body


def _splice(
    draft: Draft, node: ir.Node, body: ir.Graph, given: Sequence[ir.Value]
) -> list[ir.Value]:
    """Move the nodes of a body before the node that holds it; gives the body's results."""
    graph = node.graph
    if not isinstance(graph, ir.Graph) or len(given) != len(body.inputs):
        raise Conflict("the body has other inputs than the node gives it")
    if body.initializers and not draft.holds_initializers(graph):
        raise Conflict("the graph around holds no initializers")
    outputs = list(body.outputs)
    body.outputs.clear()
    standing: dict[ir.Value, ir.Value] = {}
    taken = draft.names(without=body)
    for inner, value in zip(body.inputs, given, strict=True):
        replace(inner, value)
        standing[inner] = value
    for inner in list(body.initializers.values()):
        if inner.const_value is None or inner in standing:
            continue
        made = initializer(_fresh(str(inner.name), taken), inner.const_value)
        replace(inner, made)
        standing[inner] = made
        draft.add_initializer(made, graph)
    moved = list(body)
    for inner_node in moved:
        for value in inner_node.outputs:
            if value.name:
                value.name = _fresh(value.name, taken)
    body.remove(moved)
    graph.insert_before(node, moved)
    return [standing.get(value, value) for value in outputs]


def _fresh(wish: str, taken: set[str]) -> str:
    number, name = 0, wish
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name


def _take_over(draft: Draft, node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    """Let everything that reads an output of `node`, and the graph outputs, have `new`."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    places_as_output = [i for i, value in enumerate(graph.outputs) if value is old]
    replace(old, new)
    if not places_as_output:
        return
    name, kind, shape = old.name, old.type, old.shape
    old.name = None
    inside = new.producer() is not None and new.graph is graph and not new.is_graph_output()
    if not inside:
        copy = ir.node("Identity", [new])
        graph.insert_before(node, [copy])
        new = copy.outputs[0]
    new.name, new.type, new.shape = name, kind, shape
    for index in places_as_output:
        graph.outputs[index] = new


def _finish_loop(
    draft: Draft, node: ir.Node, results: list[ir.Value], carried: int, axes: list[int]
) -> None:
    """Hand the results of one run over; what was stacked gets its axis back where it is read."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    for index, old in enumerate(node.outputs):
        if not _read(old):
            continue
        new = results[index]
        if index >= carried:
            if old.uses():
                new = _unsqueeze(draft, node, new, axes[index])
            elif old.shape is not None and len(old.shape):
                dims = list(old.shape)
                del dims[axes[index]]
                old.shape = ir.Shape(dims)
        draft.reshaped([new])
        _take_over(draft, node, old, new)
    detach(node)


def _unsqueeze(draft: Draft, node: ir.Node, value: ir.Value, axis: int) -> ir.Value:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    if draft.model.graph.opset_imports.get("", 0) < 13:
        made = ir.node("Unsqueeze", [value], {"axes": [axis]})
    else:
        axes = initializer(draft.unused_name("axes"), ir.tensor(np.array([axis], np.int64)))
        draft.add_initializer(axes, graph)
        made = ir.node("Unsqueeze", [value, axes])
    made.outputs[0].name = draft.unused_name("unsqueeze")
    graph.insert_before(node, [made])
    return made.outputs[0]


def _constant(
    draft: Draft, node: ir.Node, name: str, array: Array, stands_for: ir.Value
) -> ir.Value:
    """An initializer for what a body reads; nothing is added when the body does not read it."""
    made = initializer(draft.unused_name(name), ir.tensor(array))
    graph = node.graph
    if _read(stands_for) and isinstance(graph, ir.Graph):
        draft.add_initializer(made, graph)
    return made


def _first_slice(draft: Draft, value: ir.Value | None, axis: int, direction: int) -> ir.Value:
    array = None if value is None else _known(draft.case, value)
    if value is None or array is None or not array.shape[axis]:
        raise Conflict("what is scanned is not known")
    part = np.ascontiguousarray(array.take(-1 if direction else 0, axis=axis))
    name = draft.unused_name(f"{value.name}_0")
    if value.is_initializer() and str(value.name) not in draft.case.inputs:
        made = initializer(name, ir.tensor(part))
        draft.add_initializer(made, draft.model.graph)
        return made
    made = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.from_numpy(part.dtype)),
        shape=ir.Shape(part.shape),
    )
    draft.model.graph.inputs.append(made)
    draft.inputs[name] = part
    return made


def _ints(node: ir.Node, name: str, count: int) -> list[int]:
    attribute = node.attributes.get(name)
    return list(attribute.as_ints()) if attribute is not None else [0] * count


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
