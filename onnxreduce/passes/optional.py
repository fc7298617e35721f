"""Drop what an operator does not insist on: optional and variadic inputs, unread outputs.

A ``Conv`` without its bias, a ``Clip`` without its bounds, a ``Concat`` of two instead of twelve,
an ``LSTM`` with only the output that shows the bug. What made a dropped input goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Proposals, key, keyed
from onnxreduce.passes._draft import (
    Draft,
    Spot,
    bodies,
    listing,
    nodes_at,
    opsets_at,
    places,
    schema,
)
from onnxreduce.passes._groups import first, follow, groups
from onnxreduce.passes._recipes import is_float

NAME = "optional"

FEW = 4
"""So many inputs that could not be dropped are tried again with another one in their place."""

Slot = tuple[Spot, int]
"""An input or output of a node, by its index."""

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def edits(case: Case) -> Proposals:
    case = yield from follow(case, groups(_optional_inputs(case.model), DropInputs))
    for slot in _relievable(case.model)[:FEW]:
        case = yield from first(case, TakeOver(slot, 1), TakeOver(slot, -1))
    case = yield from follow(case, groups(_unread_outputs(case.model), DropOutputs))
    several = list(_variadic_inputs(case.model))
    if len(several) > 1:
        spares = [slot for slots in several for slot in slots[1:]]
        if (yield DropInputs(tuple(spares))) is not None:
            return
    for slots in several:
        yield from _variadic(slots)


def _variadic(slots: list[Slot]) -> Proposals:
    """Drop inputs of one node; indices shift with every accepted edit, so they are renumbered."""
    spot = slots[0][0]
    left = [index for _, index in slots]
    size = len(left) - 1
    while size:
        stop = len(left)
        while stop > 0 and len(left) > 1:
            chunk = left[max(0, stop - size) : stop]
            stop -= len(chunk)
            if len(chunk) == len(left):
                continue
            if (yield DropInputs(tuple((spot, index) for index in chunk))) is not None:
                left = left[: len(left) - len(chunk)]
        size //= 2


@dataclass(frozen=True)
class DropInputs:
    """Omit optional inputs of nodes, and take variadic ones away."""

    slots: tuple[Slot, ...]

    def describe(self) -> str:
        names = listing([f"{name}[{index}]" for (_, name), index in self.slots])
        return f"drop optional input{'s' * (len(self.slots) > 1)} {names}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        by_spot: dict[Spot, set[int]] = {}
        for spot, index in self.slots:
            by_spot.setdefault(spot, set()).add(index)
        for spot, node in zip(by_spot, nodes_at(draft.model, by_spot), strict=True):
            _drop_inputs(node, by_spot[spot], opsets_at(draft.model, spot[0]))
            draft.reshaped(node.outputs)
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class TakeOver:
    """Omit an optional input, and let the node's weights do its work.

    A bias may be needed only because the other numbers are zero, or of the wrong sign: so the
    weights become plain ones of a sign, and graph inputs that are zero become ones.
    """

    slot: Slot
    number: int

    def describe(self) -> str:
        (_, name), index = self.slot
        return f"drop optional input {listing([name])}[{index}] for weights of {self.number}"

    def apply(self, case: Case) -> Case:
        dropped = DropInputs((self.slot,)).apply(case)
        model = dropped.copy_model()
        (place, _), _ = self.slot
        (node,) = nodes_at(model, [self.slot[0]])
        held = _weights(node, opsets_at(model, place))
        if not held:
            raise Conflict(f"{key(node)} has no weight")
        for value in held:
            old = value.const_value
            assert old is not None
            array = np.full(old.shape.numpy(), self.number, old.dtype.numpy())
            value.const_value = ir.tensor(array, dtype=old.dtype, name=value.name)
        inputs = {
            name: np.ones_like(fed)
            if isinstance(fed, np.ndarray) and is_float(fed) and not fed.any()
            else fed
            for name, fed in dropped.inputs.items()
        }
        return Case(model, inputs)


@dataclass(frozen=True)
class DropOutputs:
    """Leave out optional outputs that nobody reads."""

    slots: tuple[Slot, ...]

    def describe(self) -> str:
        return f"drop {len(self.slots)} unread output{'s' * (len(self.slots) > 1)}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        nodes = nodes_at(draft.model, [spot for spot, _ in self.slots])
        for node, (_, index) in zip(nodes, self.slots, strict=True):
            if index >= len(node.outputs) or not node.outputs[index].name:
                raise Conflict("the output is gone")
            value = node.outputs[index]
            if value.uses() or value.is_graph_output():
                raise Conflict(f"{value.name} is read")
            value.name = ""
        for node in nodes:
            kept = len(node.outputs)
            while kept > 1 and not node.outputs[kept - 1].name:
                kept -= 1
            node.resize_outputs(kept)
        return draft.finish(same_values=True)


def _drop_inputs(node: ir.Node, indices: set[int], opsets: dict[str, int]) -> None:
    if any(index >= len(node.inputs) or node.inputs[index] is None for index in indices):
        raise Conflict(f"an input of {key(node)} is gone")
    known = schema(node, opsets)
    start = _variadic_start(known)
    kept = [
        None if index in indices else value
        for index, value in enumerate(node.inputs)
        if index < start or index not in indices
    ]
    while kept and kept[-1] is None:
        kept.pop()
    if known is not None and (
        len(kept) < known.min_input or any(v is None for v in kept[: known.min_input])
    ):
        raise Conflict(f"{node.op_type} needs {known.min_input} inputs")
    for index in range(len(node.inputs)):
        node.replace_input_with(index, kept[index] if index < len(kept) else None)
    node.resize_inputs(len(kept))


def _variadic_start(known: onnx.defs.OpSchema | None) -> int:
    """The index of the first input that may be there any number of times."""
    if known is not None and known.inputs and known.inputs[-1].option == _VARIADIC:
        return len(known.inputs) - 1
    return 1 << 30


def _nodes(model: ir.Model) -> Iterator[tuple[Spot, ir.Node, onnx.defs.OpSchema | None]]:
    functions = {function.identifier() for function in model.functions.values()}
    for place, graph in places(model):
        opsets = opsets_at(model, place)
        for node in keyed(graph):
            if node.op_identifier() not in functions:
                yield (place, key(node)), node, schema(node, opsets)


def _optional_inputs(model: ir.Model) -> list[Slot]:
    found: list[Slot] = []
    for spot, node, known in _nodes(model):
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if known is None:
                # Nothing is known about the operator: inputs after the first may be optional.
                optional = index > 0 and index == len(node.inputs) - 1
            else:
                optional = index < len(known.inputs) and known.inputs[index].option == _OPTIONAL
            if optional:
                found.append((spot, index))
    return found


def _weights(node: ir.Node, opsets: dict[str, int]) -> list[ir.Value]:
    """The stored operands of a node that its operator insists on."""
    known = schema(node, opsets)
    if known is None:
        return []
    return [
        value
        for value, formal in zip(node.inputs, known.inputs, strict=False)
        if value is not None
        and formal.option == _SINGLE
        and value.const_value is not None
        and value.is_initializer()
        and not value.is_graph_input()
        and value.dtype is not None
        and value.dtype.is_floating_point()
    ]


def _relievable(model: ir.Model) -> list[Slot]:
    """Stored floats that are optional inputs of a node that has weights beside them."""
    found: list[Slot] = []
    for slot in _optional_inputs(model):
        spot, index = slot
        (node,) = nodes_at(model, [spot])
        value = node.inputs[index]
        stored = value is not None and (value.is_initializer() or value.is_graph_input())
        floats = value is not None and value.dtype is not None and value.dtype.is_floating_point()
        if stored and floats and _weights(node, opsets_at(model, spot[0])):
            found.append(slot)
    return found


def _unread_outputs(model: ir.Model) -> list[Slot]:
    found: list[Slot] = []
    for spot, node, known in _nodes(model):
        unread = [v.name and not v.uses() and not v.is_graph_output() for v in node.outputs]
        if known is None or all(unread):
            continue
        # The key of an edit is the first output with a name; its own name has to go last.
        for index in reversed(range(len(node.outputs))):
            if (
                unread[index]
                and index < len(known.outputs)
                and known.outputs[index].option == _OPTIONAL
            ):
                found.append((spot, index))
    return found


def _variadic_inputs(model: ir.Model) -> Iterator[list[Slot]]:
    """The variadic inputs of each node that has more of them than it needs."""
    for spot, node, known in _nodes(model):
        start = _variadic_start(known)
        if any(True for _ in bodies(node)) or len(node.inputs) <= max(start + 1, 1):
            continue
        slots: list[Slot] = [(spot, index) for index in range(start, len(node.inputs))]
        yield slots
