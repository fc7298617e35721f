"""Structural edits: nodes go, values are bypassed or merged, inputs and outputs are dropped.

Two families. A *cut* (`DeleteNodes`, `KeepNodes`, `KeepOutputs`, `DropInput`) takes nodes out and
feeds what is left with recorded values: every value that survives is what it was, so the
recording stays right. A *rewiring* (`Bypass`, `BypassRegion`, `MergeValues`) lets readers read
another value: what follows computes something else, and the recording is dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Conflict
from onnxreduce.graph import Index, index
from onnxreduce.rebuild import Output, forget_shapes, output_type, rebuild, recording_of
from onnxreduce.shapes import ValueType, inferred

NodeKey = str


@dataclass(frozen=True)
class DeleteNodes:
    """Take nodes out; recorded values feed the readers of what they made.

    Attributes:
        nodes: node keys; those that the case does not have (any more) are passed over.
    """

    nodes: tuple[NodeKey, ...]

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        gone = set(self.nodes)
        return _cut(case, [key for key in known.order if key not in gone])

    def describe(self) -> str:
        return _count("delete", self.nodes)


@dataclass(frozen=True)
class KeepNodes:
    """Take all other nodes out; recorded values feed the kept ones."""

    nodes: tuple[NodeKey, ...]

    def apply(self, case: Case) -> Case:
        return _cut(case, index(case.model).sort(self.nodes))

    def describe(self) -> str:
        return _count("keep", self.nodes)


@dataclass(frozen=True)
class KeepOutputs:
    """Keep some graph outputs, each once, with the nodes that they depend on."""

    outputs: tuple[str, ...]

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        wanted = set(self.outputs)
        kept = list(dict.fromkeys(name for name in known.outputs if name in wanted))
        cone = known.cone(kept)
        if len(kept) == len(known.outputs) and len(cone) == len(known.order):
            raise Conflict("all outputs are kept")
        return case.same_values(*rebuild(case, cone, [Output(name) for name in kept]))

    def describe(self) -> str:
        return f"keep output {', '.join(self.outputs)}"


@dataclass(frozen=True)
class DropInput:
    """Drop a graph input with all nodes that depend on it."""

    input: str

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        if self.input not in known.inputs:
            raise Conflict(f"{self.input} is no graph input")
        doomed = known.dependents([self.input])
        if doomed:
            return _cut(case, [key for key in known.order if key not in doomed], {self.input})
        outputs = [Output(name) for name in known.outputs if name != self.input]
        return case.same_values(*rebuild(case, known.order, outputs))

    def describe(self) -> str:
        return f"drop input {self.input}"


@dataclass(frozen=True)
class Bypass:
    """Let the readers of a node read one of its inputs instead; then remove what is dead.

    Attributes:
        node: its key. Its first output that is used is the one replaced.
        replacement: a value that the node reads, of that output's type and shape.
    """

    node: NodeKey
    replacement: str

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        if self.node not in known.nodes:
            raise Conflict(f"there is no node {self.node}")
        if self.replacement not in known.reads[self.node]:
            raise Conflict(f"{self.node} does not read {self.replacement}")
        used = used_output(known, self.node)
        if used is None:
            raise Conflict(f"nothing reads {self.node}")
        return _bypass(case, self.replacement, used)

    def describe(self) -> str:
        return f"bypass {self.node} by {self.replacement}"


@dataclass(frozen=True)
class BypassRegion:
    """Let the readers of one value read an earlier one; then remove what is dead between."""

    entry: str
    exit: str

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        made_by = known.producer(self.exit)
        if made_by is None:
            raise Conflict(f"no node makes {self.exit}")
        if made_by not in known.dependents([self.entry]):
            raise Conflict(f"{self.exit} does not depend on {self.entry}")
        return _bypass(case, self.entry, self.exit)

    def describe(self) -> str:
        return f"bypass from {self.entry} to {self.exit}"


@dataclass(frozen=True)
class MergeValues:
    """Let the readers of one value read another that is made by an equal operator.

    Two graph inputs, or two initializers, can be merged as well.
    """

    keep: str
    drop: str

    def apply(self, case: Case) -> Case:
        known = index(case.model)
        if self.keep == self.drop:
            raise Conflict("a value cannot be merged with itself")
        _check_mergeable(case, known, self.keep, self.drop)
        merged = _replace(case, known, self.drop, self.keep)
        if not _same_content(case, self.keep, self.drop):
            return merged
        return merged.with_recording(case.recording)

    def describe(self) -> str:
        return f"merge {self.drop} into {self.keep}"


def used_output(known: Index, key: NodeKey) -> str | None:
    """The first output of a node that is read or a graph output."""
    for value in known.writes[key]:
        if known.readers(value) or value in known.outputs:
            return value
    return None


def same_kind(case: Case, first: str, second: str) -> bool:
    """Whether two values are tensors of one type and shape, by recording or else by inference.

    Sequences are of one kind when their types are equal.
    """
    sizes = [_recorded_kind(case, name) for name in (first, second)]
    if None not in sizes:
        return sizes[0] == sizes[1]
    types = inferred(case.model)
    known = [types.get(name) for name in (first, second)]
    return _equal_types(known[0], known[1])


def _count(verb: str, nodes: Collection[str]) -> str:
    names = ", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} nodes"
    return f"{verb} {names}"


def _cut(case: Case, kept: list[NodeKey], without: Collection[str] = ()) -> Case:
    """A case of some nodes; what was read by the others becomes an output."""
    known = index(case.model)
    if len(kept) == len(known.order):
        raise Conflict("no node would go")
    outputs = _cut_outputs(case, known, kept, set(without))
    needed = _needed(known, kept, {output.name for output in outputs})
    return case.same_values(*rebuild(case, needed, outputs))


def _cut_outputs(case: Case, known: Index, kept: list[NodeKey], without: set[str]) -> list[Output]:
    here = set(kept)
    stay = [
        name for name in known.outputs
        if name not in without and known.producer(name) in here | {None}
    ]  # fmt: skip
    declared = set(stay)
    flowing: list[str] = []
    constant: list[str] = []
    unread: list[str] = []
    for key in kept:
        for number, value in enumerate(known.writes[key]):
            readers = known.readers(value)
            if value in declared:
                continue
            if any(reader not in here for reader in readers):
                (flowing if known.depends_on_input(value) else constant).append(value)
            elif not readers and not number:
                unread.append(value)
    # A constant is worth looking at only when nothing else is left; so are nodes that were dead.
    exposed = flowing
    if not stay and not flowing:
        plain = [v for v in constant if not _is_constant(known.nodes[known.producer(v) or ""])]
        exposed = plain or unread
    return [Output(name) for name in stay] + [
        Output(name, output_type(case, name)) for name in exposed
    ]


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _needed(known: Index, kept: list[NodeKey], outputs: set[str]) -> list[NodeKey]:
    """Kept nodes without the constant ones that the cut has left without a reader.

    What was dead before the cut stays: it may be what a loader stumbles over.
    """
    needed: set[NodeKey] = set()
    for key in reversed(kept):
        made = known.writes[key]
        if (
            key not in known.live
            or any(known.depends_on_input(value) or value in outputs for value in made)
            or any(reader in needed for value in made for reader in known.readers(value))
        ):
            needed.add(key)
    return [key for key in kept if key in needed]


def _bypass(case: Case, entry: str, end: str) -> Case:
    if not same_kind(case, entry, end):
        raise Conflict(f"{end} and {entry} are not known to be of one type and shape")
    return _replace(case, index(case.model), end, entry)


def _replace(case: Case, known: Index, old: str, new: str) -> Case:
    """Readers of `old` read `new`; what is dead thereby goes; values are no longer what they
    were."""
    outputs = _replaced_outputs(case, known, old, new)
    dead = _newly_dead(known, old, new)
    kept = [key for key in known.order if key not in dead]
    model, inputs = rebuild(case.with_recording(None), kept, outputs, {old: new})
    changed = known.dependents([old])
    forget_shapes([node for node in model.graph if _key(node) in changed])
    readers = known.readers(old)
    made_by = known.producer(new)
    if made_by and any(known.position[r] < known.position[made_by] for r in readers):
        model.graph.sort()
    return Case(model, inputs)


def _replaced_outputs(case: Case, known: Index, old: str, new: str) -> list[Output]:
    if old not in known.outputs:
        return [Output(name) for name in known.outputs]
    if new in known.outputs:
        return [Output(name) for name in known.outputs if name != old]
    if known.producer(new) is None:
        raise Conflict(f"the output {old} would be {new}, which no node makes")
    declared = next(value for value in case.model.graph.outputs if value.name == old)
    kind = ValueType(declared.type, declared.shape) if declared.type else None
    return [Output(new, kind) if name == old else Output(name) for name in known.outputs]


def _newly_dead(known: Index, value: str, heir: str) -> set[NodeKey]:
    """The nodes that nothing needs once `heir` has taken over a value's readers and its place as
    an output."""
    dead: set[NodeKey] = set()
    unread = {value}
    waiting = [value]
    while waiting:
        key = known.producer(waiting.pop())
        if key is None or key in dead:
            continue
        made = known.writes[key]
        if heir not in made and all(v in unread or not _is_used(known, v, dead) for v in made):
            dead.add(key)
            waiting.extend(
                v for v in known.reads[key] if v != heir and not _is_used(known, v, dead)
            )
    return dead


def _is_used(known: Index, value: str, dead: set[NodeKey]) -> bool:
    return value in known.outputs or any(r not in dead for r in known.readers(value))


def _place(node: ir.Node, name: str) -> int:
    return [value.name for value in node.outputs].index(name)


def _key(node: ir.Node) -> str | None:
    return next((value.name for value in node.outputs if value.name), None)


def _recorded_kind(case: Case, name: str) -> tuple[object, tuple[int, ...]] | None:
    array = case.inputs.get(name)
    if array is None and case.recording is not None:
        array = case.recording.get(name)
    if isinstance(array, np.ndarray):
        return array.dtype, array.shape
    initializer = case.model.graph.initializers.get(name)
    if initializer is not None and initializer.const_value is not None:
        tensor = initializer.const_value
        return tensor.dtype.numpy(), tuple(tensor.shape.numpy())
    return None


def _equal_types(first: ValueType | None, second: ValueType | None) -> bool:
    if first is None or second is None or first.type != second.type:
        return False
    if not isinstance(first.type, ir.TensorType):
        return True  # sequences of one type: their lengths do not matter to their readers
    if first.shape is None or second.shape is None:
        return False
    dims = list(first.shape)
    known = all(isinstance(dim, int) or dim.value for dim in dims)
    return known and dims == list(second.shape)


def _check_mergeable(case: Case, known: Index, keep: str, drop: str) -> None:
    makers = known.producer(keep), known.producer(drop)
    graph = case.model.graph
    if makers[0] and makers[1]:
        first, second = known.nodes[makers[0]], known.nodes[makers[1]]
        if not equal_operators(first, second) or _place(first, keep) != _place(second, drop):
            raise Conflict(f"{keep} and {drop} are made by different operators")
        if keep in known.dependents([drop]) or makers[0] in known.dependents([drop]):
            raise Conflict(f"{keep} depends on {drop}")
    elif not (
        (keep in known.inputs and drop in known.inputs)
        or (keep in graph.initializers and drop in graph.initializers)
    ):
        raise Conflict(f"{keep} and {drop} cannot be merged")
    if not same_kind(case, keep, drop):
        raise Conflict(f"{keep} and {drop} are not known to be of one type and shape")


def equal_operators(first: ir.Node, second: ir.Node) -> bool:
    """Whether two nodes are of one operator with the same attributes (none of them graphs)."""
    if first is second or first.op_identifier() != second.op_identifier():
        return False
    if set(first.attributes) != set(second.attributes):
        return False
    return all(
        _equal_attributes(attribute, second.attributes[name])
        for name, attribute in first.attributes.items()
    )


def _equal_attributes(first: ir.Attr, second: ir.Attr) -> bool:
    if first.type != second.type or first.is_ref() or second.is_ref():
        return False
    if first.type == ir.AttributeType.TENSOR:
        return np.array_equal(first.as_tensor().numpy(), second.as_tensor().numpy())
    if first.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return False
    return bool(first.value == second.value)


def _same_content(case: Case, first: str, second: str) -> bool:
    if case.recording is None:
        return False
    arrays = [_content(case, name) for name in (first, second)]
    return (
        isinstance(arrays[0], np.ndarray)
        and isinstance(arrays[1], np.ndarray)
        and arrays[0].tobytes() == arrays[1].tobytes()
    )


def _content(case: Case, name: str) -> object:
    if name in case.inputs:
        return case.inputs[name]
    initializer = case.model.graph.initializers.get(name)
    if initializer is not None and initializer.const_value is not None:
        return initializer.const_value.numpy()
    return recording_of(case).get(name)
