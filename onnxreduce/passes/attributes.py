"""Attributes towards their defaults, then towards the smallest value that still shows the bug.

An attribute that is not there is one that a reader need not think about. All at once first: most
attributes of most bugs do not matter. What has to stay is made small: kernels, strides and
dilations of 1, pads of 0, round numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Proposals, key, keyed
from onnxreduce.passes._draft import Draft, Spot, listing, nodes_at, opsets_at, places, schema
from onnxreduce.passes._groups import Following, first, follow, groups, least
from onnxreduce.passes._windows import check_window, least_of, tied

NAME = "attributes"

Setting = tuple[Spot, str]
"""An attribute of a node, by its name."""

Plain = int | float | tuple[int, ...] | tuple[float, ...]

_NUMBERS = {
    ir.AttributeType.INT,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOAT,
    ir.AttributeType.FLOATS,
}
_NO_NUMBERS = frozenset(
    {"to", "dtype", "output_dtype", "stash_type", "perm", "num_outputs", "num_scan_inputs"}
)
"""Codes, orders and counts of what a node has, where a smaller number is not a simpler one.

A ``num_outputs`` that is not the number of outputs aborts the process in onnx's shape inference.
"""


def edits(case: Case) -> Proposals:
    case = yield from follow(case, groups(_droppable(case.model), DropAttributes))
    for setting in list(_settings(case.model)):
        case = yield from _smallest(case, setting)


@dataclass(frozen=True)
class DropAttributes:
    """Leave attributes out: the operator's default holds."""

    settings: tuple[Setting, ...]

    def describe(self) -> str:
        names = listing([f"{spot[1]}.{name}" for spot, name in self.settings])
        return f"drop attribute{'s' * (len(self.settings) > 1)} {names}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        nodes = nodes_at(draft.model, [spot for spot, _ in self.settings])
        for node, (_, name) in zip(nodes, self.settings, strict=True):
            if node.attributes.pop(name, None) is None:
                raise Conflict(f"{key(node)} has no {name}")
            draft.reshaped(node.outputs)
        for node in nodes:
            check_window(case, node)
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class SetAttribute:
    """Give an attribute another number, or other numbers."""

    setting: Setting
    value: Plain

    def describe(self) -> str:
        (_, node), name = self.setting
        return f"set {listing([node])}.{name} to {self.value}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        spot, name = self.setting
        (node,) = nodes_at(draft.model, [spot])
        old = node.attributes.get(name)
        if old is None or old.is_ref() or old.value == self.value:
            raise Conflict(f"{key(node)} has no other {name}")
        node.attributes[name] = ir.Attr(name, old.type, self.value)
        check_window(case, node)
        draft.reshaped(node.outputs)
        return draft.finish(same_values=False)


def _smallest(case: Case, setting: Setting) -> Following:
    """The least numbers for one attribute: everything at once, then one element after the other."""
    value = _value(case, setting)
    if value is None:
        return case
    if not isinstance(value, tuple):
        return (yield from _number(case, setting, value, None))
    uniform = [SetAttribute(setting, c) for c in _uniform(setting[1], value) if c != value]
    before = case
    case = yield from first(case, *uniform)
    if case is not before:
        return case
    for index in range(len(value)):
        now = _value(case, setting)
        if isinstance(now, tuple) and index < len(now):
            case = yield from _number(case, setting, now[index], index)
    return case


def _number(case: Case, setting: Setting, value: float, index: int | None) -> Following:
    """A simpler number for an attribute, or for one element of it."""
    old = _value(case, setting)

    def make(number: float) -> SetAttribute:
        if not isinstance(old, tuple) or index is None:
            return SetAttribute(setting, number)
        return SetAttribute(setting, (*old[:index], number, *old[index + 1 :]))

    if not math.isfinite(value):
        return case
    if isinstance(value, int):
        floor = least_of(setting[1])
        return (yield from least(case, value - floor, lambda number: make(number + floor)))
    # Attributes are float32, so 0.01 and 0.00999999978 are the same number.
    rounded = (float(np.float32(f"{value:.{digits}g}")) for digits in (1, 2, 3))
    simpler = dict.fromkeys((0.0, 1.0, float(round(value)), 2.0, *rounded))
    return (yield from first(case, *(make(number) for number in simpler if number != value)))


def _uniform(name: str, value: Sequence[float]) -> Iterator[Plain]:
    """Values for a whole list: all 0, all 1 (all their least, where 0 has no meaning)."""
    if name == "axes":
        yield from ((0,), (-1,), *((axis,) for axis in value if isinstance(axis, int)))
        return
    if all(isinstance(item, int) for item in value):
        if least_of(name) == 0:
            yield tuple(0 for _ in value)
        yield tuple(1 for _ in value)
    else:
        yield tuple(0.0 for _ in value)
        yield tuple(1.0 for _ in value)


def _value(case: Case, setting: Setting) -> Plain | None:
    spot, name = setting
    try:
        (node,) = nodes_at(case.model, [spot])
    except Conflict:
        return None
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type not in _NUMBERS:
        return None
    value: Plain = attribute.value
    return tuple(value) if isinstance(value, list | tuple) else value


def _all(model: ir.Model) -> Iterator[tuple[Setting, ir.Attr, onnx.defs.OpSchema | None, bool]]:
    """Every attribute, its operator's schema, and whether it says what an operand says too."""
    functions = {function.identifier() for function in model.functions.values()}
    for place, graph in places(model):
        opsets = opsets_at(model, place)
        for node in keyed(graph):
            if node.op_type == "Constant" and node.domain == "":
                continue
            known = None if node.op_identifier() in functions else schema(node, opsets)
            for name, attribute in node.attributes.items():
                if not attribute.is_ref():
                    yield ((place, key(node)), name), attribute, known, tied(node, name)


def _droppable(model: ir.Model) -> list[Setting]:
    return [
        setting
        for setting, attribute, known, fast in _all(model)
        if not (fast and _matters(setting[1], attribute))
        and attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        and not (known and setting[1] in known.attributes and known.attributes[setting[1]].required)
    ]


def _matters(name: str, attribute: ir.Attr) -> bool:
    """Whether leaving out an attribute that describes an operand would say something else of it:
    a kernel is read from the weight, and groups of one are the default."""
    return name != "kernel_shape" and not (name == "group" and attribute.value == 1)


def _settings(model: ir.Model) -> Iterator[Setting]:
    for setting, attribute, _, fast in _all(model):
        if attribute.type in _NUMBERS and setting[1] not in _NO_NUMBERS and not fast:
            yield setting
