"""Taking a whole axis of size one out of a graph: a 2-D convolution becomes a 1-D one.

Axes of size one have no symbol (broadcasting is free that way), so their identity is followed
here: from one stored tensor to all values that share the axis, through operators that do not mix
it with others. Any other operator on the way is a `Conflict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.dims.analysis import analyse
from onnxreduce.dims.emit import tensor_like
from onnxreduce.dims.roots import constant_tensor
from onnxreduce.dims.rules import elementwise
from onnxreduce.edits import Conflict

Rule = Callable[["_Walk", ir.Node], None]


@dataclass(frozen=True)
class DropAxis:
    """Take an axis of size one out of a stored tensor, and out of all that share it."""

    value: str
    axis: int

    def apply(self, case: Case) -> Case:
        """Raises:
        Conflict: the axis is not of size one, or an operator needs it.
        """
        walk = _Walk(case)
        walk.run(self.value, self.axis)
        return walk.result()

    def describe(self) -> str:
        return f"drop axis {self.axis} of {self.value}"


class _Walk:
    """What is dropped so far, and which nodes still have to agree."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.analysis = analyse(case)
        self.model = case.copy_model()
        self.graph = self.model.graph
        self.inputs = dict(case.inputs)
        self.values = {v.name: v for v in self.graph.inputs if v.name}
        self.values.update(self.graph.initializers)
        for node in self.graph:
            self.values.update({v.name: v for v in node.outputs if v.name})
        self.opset = self.analysis.opset("")
        self.dropped: dict[str, int] = {}
        self.seen: set[str] = set()
        self.waiting: list[ir.Node] = []
        self.mends: dict[tuple[int, str], tuple[ir.Node, Any]] = {}

    def run(self, name: str, axis: int) -> None:
        value = self.values.get(name)
        if value is None or name not in self.analysis.roots:
            raise Conflict(f"no stored tensor {name}")
        self.want(value, axis)
        while self.waiting:
            node = self.waiting.pop()
            found = RULES.get(node.op_type) if node.domain == "" else None
            if found is None or node.graph is not self.graph:
                raise Conflict(f"{node.op_type} needs the axis")
            found(self, node)

    # --- what rules use ----------------------------------------------------------------------

    def rank(self, value: ir.Value) -> int:
        axes = self.analysis.axes.get(value.name or "")
        if axes is None:
            raise Conflict(f"{value.name} has no known rank")
        return len(axes)

    def size(self, value: ir.Value, axis: int) -> int:
        axes = self.analysis.axes.get(value.name or "")
        if axes is None or not 0 <= axis < len(axes):
            raise Conflict(f"{value.name} has no axis {axis}")
        return axes[axis].size

    def want(self, value: ir.Value | None, axis: int) -> None:
        """The axis goes from this value too."""
        if value is None or value.name is None or self.size(value, axis) != 1:
            raise Conflict("an axis of another size is in the way")
        if self.dropped.setdefault(value.name, axis) != axis:
            raise Conflict(f"two axes of {value.name} at once")
        producer = value.producer()
        nodes = [node for node, _ in value.uses()]
        if producer is not None and constant_tensor(producer) is None:
            nodes.append(producer)
        if value.name not in self.seen:
            self.seen.add(value.name)
            self.waiting.extend(nodes)

    def at(self, value: ir.Value | None) -> int | None:
        return None if value is None else self.dropped.get(value.name or "")

    def only(self, node: ir.Node, *, first: int = 0) -> int:
        """The one axis that input `first` and the first output lose."""
        x, y = node.inputs[first], node.outputs[0]
        places = {axis for axis in (self.at(x), self.at(y)) if axis is not None}
        if len(places) != 1:
            raise Conflict(f"{node.op_type} needs the axis")
        (axis,) = places
        self.want(x, axis)
        self.want(y, axis)
        return axis

    def rest(self, node: ir.Node, *inputs: int) -> None:
        """These inputs, where present, may lose nothing."""
        for i in inputs:
            if i < len(node.inputs) and self.at(node.inputs[i]) is not None:
                raise Conflict(f"input {i} of {node.op_type} loses an axis")

    def set(self, node: ir.Node, name: str, value: Any) -> None:
        self.mends[id(node), name] = (node, value)

    def number(self, node: ir.Node, name: str, default: int) -> int:
        attribute = node.attributes.get(name)
        return attribute.as_int() if isinstance(attribute, ir.Attr) else default

    def numbers(self, node: ir.Node, name: str) -> list[int] | None:
        attribute = node.attributes.get(name)
        return [int(i) for i in attribute.as_ints()] if isinstance(attribute, ir.Attr) else None

    # --- the result --------------------------------------------------------------------------

    def result(self) -> Case:
        for node, name, value in ((n, k[1], v) for k, (n, v) in self.mends.items()):
            old = node.attributes.get(name)
            kind = ir.AttributeType.INTS if isinstance(value, list) else ir.AttributeType.INT
            if isinstance(old, ir.Attr) or name == "axis":
                node.attributes[name] = ir.Attr(name, kind, value)
        for name, axis in self.dropped.items():
            self._squeeze(self.values[name], axis)
        return Case(self.model, self.inputs)

    def _squeeze(self, value: ir.Value, axis: int) -> None:
        name = value.name or ""
        array = self.inputs.get(name)
        if isinstance(array, np.ndarray):
            self.inputs[name] = np.squeeze(array, axis)
        if value.const_value is not None and value.producer() is None:
            old = value.const_value
            value.const_value = tensor_like(np.squeeze(old.numpy(), axis), old, name)
        producer = value.producer()
        tensor = None if producer is None else constant_tensor(producer)
        if producer is not None and tensor is not None:
            squeezed = tensor_like(np.squeeze(tensor.numpy(), axis), tensor, tensor.name)
            producer.attributes.clear()
            producer.attributes["value"] = ir.AttrTensor("value", squeezed)
        if value.shape is not None and len(value.shape) > axis:
            value.shape = ir.Shape([dim for at, dim in enumerate(value.shape) if at != axis])


RULES: dict[str, Rule] = {}


def _rule(*op_types: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(op_types, function))
        return function

    return register


AXIS = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")


@_rule(
    *(op for op in elementwise.UNARY if op not in (*AXIS, "CumSum", "CumProd", "Trilu", "EyeLike")),
    *(*elementwise.BINARY, "PRelu", "Dropout", "MatMul"),
)
def _broadcast(walk: _Walk, node: ir.Node) -> None:
    """The same distance from the last axis, in every value that reaches so far."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and v.name]
    back = {walk.rank(v) - 1 - at for v in values if (at := walk.at(v)) is not None}
    if len(back) != 1 or walk.number(node, "broadcast", 0):
        raise Conflict(f"{node.op_type} needs the axis")
    (distance,) = back
    if node.op_type == "MatMul" and (distance < 2 or any(walk.rank(v) < 2 for v in values)):
        raise Conflict("an axis of the matrices")
    for value in values:
        if walk.rank(value) > distance:
            walk.want(value, walk.rank(value) - 1 - distance)


@_rule("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")
def _windowed(walk: _Walk, node: ir.Node) -> None:
    """A spatial axis over which a kernel of one slides without pads; one such axis must stay."""
    weighted = node.op_type.startswith("Conv")
    if weighted and walk.at(node.inputs[1]) is not None:
        walk.want(node.inputs[0], walk.at(node.inputs[1]) or 0)
    axis = walk.only(node)
    x = node.inputs[0]
    assert x is not None
    if axis < 2 or walk.rank(x) < 4:
        raise Conflict("no spatial axis to spare")
    if weighted:
        walk.want(node.inputs[1], axis)
        walk.rest(node, 2)
    at, count = axis - 2, walk.rank(x) - 2
    kernel = walk.numbers(node, "kernel_shape")
    pads = walk.numbers(node, "pads")
    if (kernel and kernel[at] != 1) or (pads and (pads[at] or pads[at + count])):
        raise Conflict("the window is larger than the axis")
    for name in ("kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"):
        old = walk.numbers(node, name)
        if old is not None:
            walk.set(node, name, [v for i, v in enumerate(old) if i % count != at])


@_rule(
    *("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
    *("BatchNormalization", "InstanceNormalization", "LRN"),
)
def _channelled(walk: _Walk, node: ir.Node) -> None:
    axis = walk.only(node)
    x = node.inputs[0]
    if axis < 2 or (node.op_type.startswith("Global") and x is not None and walk.rank(x) < 4):
        raise Conflict("no spatial axis to spare")
    walk.rest(node, 1, 2, 3, 4)


@_rule("Transpose")
def _transpose(walk: _Walk, node: ir.Node) -> None:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    perm = walk.numbers(node, "perm") or list(range(walk.rank(x)))[::-1]
    gone = walk.at(x)
    if gone is None:
        gone = perm[walk.at(y) or 0]
    walk.want(x, gone)
    walk.want(y, perm.index(gone))
    walk.set(node, "perm", [i - (i > gone) for i in perm if i != gone])


@_rule("Concat", "Split", *AXIS)
def _along(walk: _Walk, node: ir.Node) -> None:
    """Every axis but the one that is worked on."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and v.name]
    if node.op_type == "Split":
        walk.rest(node, 1)
        values = [v for v in (node.inputs[0], *node.outputs) if v is not None]
    places = {at for v in values if (at := walk.at(v)) is not None}
    rank = walk.rank(values[0])
    old = node.op_type in AXIS and walk.opset < 13 and node.op_type != "LpNormalization"
    default = 1 if old else 0 if node.op_type == "Split" else -1
    worked = walk.number(node, "axis", default)
    if len(places) != 1 or worked % rank in places:
        raise Conflict(f"{node.op_type} needs the axis")
    (axis,) = places
    for value in values:
        walk.want(value, axis)
    if worked >= 0 and axis < worked:
        walk.set(node, "axis", worked - 1)


@_rule("Flatten")
def _flatten(walk: _Walk, node: ir.Node) -> None:
    x = node.inputs[0]
    gone = walk.at(x)
    if gone is None or x is None or walk.at(node.outputs[0]) is not None or walk.rank(x) < 2:
        raise Conflict("Flatten makes the axis")
    at = walk.number(node, "axis", 1) % (walk.rank(x) + 1)
    if gone < at:
        walk.set(node, "axis", at - 1)


@_rule("Reshape")
def _reshape(walk: _Walk, node: ir.Node) -> None:
    """What goes in may lose an axis, unless the shape refers to axes by place."""
    shape = walk.analysis.array_of(node.inputs[1]) if node.inputs[1] is not None else None
    gone = walk.at(node.inputs[0])
    if gone is None or shape is None or walk.at(node.outputs[0]) is not None:
        raise Conflict("Reshape makes the axis")
    walk.rest(node, 1)
    if any(size == 0 and at >= gone for at, size in enumerate(shape.tolist())):
        raise Conflict("the shape refers to the axis")


@_rule("QuantizeLinear", "DequantizeLinear")
def _quantised(walk: _Walk, node: ir.Node) -> None:
    axis = walk.only(node)
    walk.rest(node, 1, 2)
    scale = node.inputs[1]
    assert scale is not None
    worked = walk.number(node, "axis", 1)
    if walk.rank(scale) and walk.size(scale, 0) != 1:
        if worked == axis:
            raise Conflict("scales along the axis")
        if axis < worked:
            walk.set(node, "axis", worked - 1)
    elif walk.rank(scale) > 1:
        raise Conflict("blocks of scales")
