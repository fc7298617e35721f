"""Reduce inside the bodies of ``If``, ``Loop`` and ``Scan``, and inside local functions.

Where the bug needs the node that holds a body, the body should still be small. Nothing is recorded
inside bodies, so values are not cut but rewired: a branch becomes one constant of the right type
and shape, a node is bypassed by a value of its own type and shape that is there anyway, a loop
variable that the bug does not need becomes the constant it starts as, and what a body makes for
nobody is no longer made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Proposals, key, keyed
from onnxreduce.encoding import encode
from onnxreduce.passes._draft import (
    Draft,
    Place,
    Spot,
    bodies,
    graph_at,
    listing,
    nodes_at,
    places,
    replace,
)
from onnxreduce.passes._groups import follow, groups
from onnxreduce.shapes import FAILURES, inferred

NAME = "subgraphs"
RECORDS = True

Kind = tuple[int, tuple[int | str | None, ...]]
"""An element type and a shape, of a tensor inside a body."""


def edits(case: Case) -> Proposals:
    case = yield from follow(case, groups(list(_spare_outputs(case.model)), DropBodyOutputs))
    case = yield from follow(case, groups(list(_branches(case)), Hollow))
    yield from groups(_bypasses(case.model), BypassInside)


@dataclass(frozen=True)
class Hollow:
    """Let branches of ``If`` nodes give zeros.

    Attributes:
        branches: place of a branch, and shapes of its outputs.
    """

    branches: tuple[tuple[Place, tuple[tuple[int, ...], ...]], ...]

    def describe(self) -> str:
        return f"zeros for {listing([f'{p[-1]} of {p[-2]}' for p, _ in self.branches])}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        for place, shapes in self.branches:
            _hollow(draft, graph_at(draft.model, place), shapes)
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class DropBodyOutputs:
    """Stop making outputs of ``If``, ``Loop`` and ``Scan`` nodes that nobody reads.

    A loop variable goes with its output: inside, it is the value that it starts as.

    Attributes:
        slots: node and index of the output, the last outputs of a node first.
    """

    slots: tuple[tuple[Spot, int], ...]

    def describe(self) -> str:
        return f"drop {len(self.slots)} outputs of bodies"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        for spot, index in self.slots:
            # Looked up anew each time: dropping an output makes a new node of the same name.
            (node,) = nodes_at(draft.model, [spot])
            if index >= len(node.outputs) or len(node.outputs) == 1:
                raise Conflict("the output is gone, or the only one")
            value = node.outputs[index]
            if value.uses() or value.is_graph_output():
                raise Conflict(f"{value.name} is read")
            _drop_output(node, index)
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class BypassInside:
    """Let the readers of values in bodies read others instead.

    Attributes:
        detours: place, the value to bypass, and the value to read; the last nodes first.
    """

    detours: tuple[tuple[Place, str, str], ...]

    def describe(self) -> str:
        if len(self.detours) == 1:
            place, value, by = self.detours[0]
            return f"bypass {listing([value])} by {listing([by])} in {place[-1]}"
        return f"bypass {len(self.detours)} nodes in bodies"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        for place, name, by in self.detours:
            _bypass(graph_at(draft.model, place), name, by)
        return draft.finish(same_values=False)


# --- branches -----------------------------------------------------------------------------------


def _branches(case: Case) -> Iterator[tuple[Place, tuple[tuple[int, ...], ...]]]:
    """Branches that are more than one constant, with the shapes that they have to give."""
    types = inferred(case.model)
    for place, graph in places(case.model):
        for node in keyed(graph):
            if node.op_type != "If" or node.domain != "":
                continue
            shapes = [_sizes(case, types, value, main=not place) for value in node.outputs]
            known = tuple(shape for shape in shapes if shape is not None)
            if len(known) != len(shapes):
                continue
            for name, body in bodies(node):
                if any(inner.op_type != "Constant" for inner in body):
                    yield (*place, key(node), name), known


def _sizes(
    case: Case, types: Mapping[str, object], value: ir.Value, *, main: bool
) -> tuple[int, ...] | None:
    name = str(value.name)
    recorded = case.recording.get(name) if main and case.recording is not None else None
    if isinstance(recorded, np.ndarray):
        return recorded.shape
    shape = getattr(types.get(name), "shape", None) if main else value.shape
    if isinstance(shape, ir.Shape) and shape.is_static():
        return tuple(shape.numpy())
    return None


def _hollow(draft: Draft, body: ir.Graph, shapes: tuple[tuple[int, ...], ...]) -> None:
    if len(body.outputs) != len(shapes):
        raise Conflict("the branch has other outputs")
    if all(node.op_type == "Constant" for node in body):
        raise Conflict("the branch is hollow")
    made = []
    for old, shape in zip(body.outputs, shapes, strict=True):
        if old.dtype is None or old.dtype == ir.DataType.STRING:
            raise Conflict("no zero is known for an output")
        zeros = ir.tensor(np.zeros(shape, old.dtype.numpy()), dtype=old.dtype)
        node = ir.node("Constant", [], {"value": zeros})
        node.outputs[0].name = draft.unused_name(f"{old.name}_zero")
        node.outputs[0].type, node.outputs[0].shape = old.type, old.shape
        body.append(node)
        made.append(node.outputs[0])
    for index, value in enumerate(made):
        body.outputs[index] = value


# --- outputs that nobody reads ------------------------------------------------------------------


def _spare_outputs(model: ir.Model) -> Iterator[tuple[Spot, int]]:
    for place, graph in places(model):
        for node in graph:
            if node.domain != "" or node.op_type not in ("If", "Loop", "Scan"):
                continue
            # One output has to stay.
            spare = [
                index
                for index, value in enumerate(node.outputs)
                if not value.uses() and not value.is_graph_output()
            ]
            if len(spare) == len(node.outputs):
                spare = spare[1:]
            for index in reversed(spare):
                yield (place, key(node)), index


def _drop_output(node: ir.Node, index: int) -> None:
    # The first outputs of a loop's body are the condition and the variables.
    inner = index + 1 if node.op_type == "Loop" else index
    held = [body for _, body in bodies(node)]
    if any(inner >= len(body.outputs) for body in held):
        raise Conflict("a body has fewer outputs")
    for body in held:
        body.outputs.pop(inner)
    first = {"Loop": 2, "Scan": 0}.get(node.op_type)
    stacked = index - _variables(node) if first is not None else -1
    if first is not None and stacked < 0:
        start = node.inputs[first + index]
        variable = held[0].inputs[inner + 1 if node.op_type == "Loop" else index]
        if start is None:
            raise Conflict("a loop variable has no value")
        replace(variable, start)
        held[0].inputs.remove(variable)
        _remove_input(node, first + index)
    _remove_output(node, index, stacked)


def _variables(node: ir.Node) -> int:
    if node.op_type == "Loop":
        return len(node.inputs) - 2
    return len(node.inputs) - node.attributes["num_scan_inputs"].as_int()


def _remove_input(node: ir.Node, index: int) -> None:
    for later in range(index, len(node.inputs) - 1):
        node.replace_input_with(later, node.inputs[later + 1])
    node.resize_inputs(len(node.inputs) - 1)


def _remove_output(node: ir.Node, index: int, stacked: int) -> None:
    """Make a node of the same kind without one output; the others move over to it.

    `stacked` is the place of the output among those that a Scan stacks; negative for others.
    """
    graph = node.graph
    assert graph is not None
    kept = [value for number, value in enumerate(node.outputs) if number != index]
    attributes = dict(node.attributes)
    for name in ("scan_output_axes", "scan_output_directions"):
        if stacked >= 0 and name in attributes:
            rest = list(attributes[name].as_ints())
            del rest[stacked]
            attributes[name] = ir.AttrInt64s(name, rest)
    made = ir.Node(
        node.domain,
        node.op_type,
        list(node.inputs),
        list(attributes.values()),
        num_outputs=len(kept),
        name=node.name,
    )
    graph.insert_before(node, [made])
    for old, new in zip(kept, made.outputs, strict=True):
        label, new.type, new.shape = old.name, old.type, old.shape
        replace(old, new)
        for number, value in enumerate(graph.outputs):
            if value is old:
                graph.outputs[number] = new
        old.name = None
        new.name = label
    node.attributes.clear()
    graph.remove(node, safe=True)


# --- nodes --------------------------------------------------------------------------------------


def _bypasses(model: ir.Model) -> list[tuple[Place, str, str]]:
    """A detour for each node in a body that has one, the last nodes first."""
    kinds = _kinds(model)
    found: list[tuple[Place, str, str]] = []
    for place, graph in places(model):
        if not place:
            continue
        known = kinds.get(place, {})
        detours = []
        for node in graph:
            used = [v for v in node.outputs if v.uses() or v.is_graph_output()]
            if len(used) == 1 and (by := _detour(graph, node, used[0], known, len(place) % 2 == 1)):
                detours.append((place, str(used[0].name), by))
        found += reversed(detours)
    return found


def _detour(
    graph: ir.Graph, node: ir.Node, value: ir.Value, known: Mapping[str, Kind], function: bool
) -> str | None:
    """An input of a node that can be read in place of what the node makes."""
    reachable = [v for v in node.inputs if v is not None and v.name]
    output = value in graph.outputs
    if output:
        # An output has to be made by a node of the body, and each by its own.
        reachable = [v for v in reachable if v.graph is graph and v.producer() is not None]
        reachable = [v for v in reachable if v not in graph.outputs]
    kind = known.get(str(value.name))
    if kind is None:
        # Nothing is inferred inside functions: there the first input is as good a guess as any.
        return str(reachable[0].name) if function and reachable else None
    for candidate in reachable:
        if known.get(str(candidate.name)) == kind:
            return str(candidate.name)
    return None


def _bypass(graph: ir.Graph, name: str, by: str) -> None:
    node = next((n for n in graph if any(v.name == name for v in n.outputs)), None)
    if node is None:
        raise Conflict(f"no node makes {name}")
    value = next(v for v in node.outputs if v.name == name)
    instead = next((v for v in node.inputs if v is not None and v.name == by), None)
    if instead is None:
        raise Conflict(f"{name} is not made from {by}")
    for index, output in enumerate(graph.outputs):
        if output is value:
            if instead.producer() is None or instead.graph is not graph:
                raise Conflict("an output has to be made in the body")
            if instead in graph.outputs:
                raise Conflict(f"{by} is an output already")
            instead.type, instead.shape = value.type, value.shape
            graph.outputs[index] = instead
    replace(value, instead)


def _kinds(model: ir.Model) -> dict[Place, dict[str, Kind]]:
    """Element types and shapes of tensors inside the bodies of the main graph, as inferred."""
    proto = encode(model).message()
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except FAILURES:
        return {}
    found: dict[Place, dict[str, Kind]] = {}
    _collect((), proto.graph, {}, found)
    return found


def _collect(
    place: Place,
    graph: onnx.GraphProto,
    outer: Mapping[str, Kind],
    found: dict[Place, dict[str, Kind]],
) -> None:
    known = dict(outer)
    for tensor in graph.initializer:
        known[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and kind.HasField("shape"):
            dims = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in kind.shape.dim
            )
            known[info.name] = (kind.elem_type, dims)
    found[place] = known
    for node in graph.node:
        name = next((output for output in node.output if output), "")
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _collect((*place, name, attribute.name), attribute.g, known, found)
