"""What is different between two cases that are nearly the same, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case, InputValue, graphs
from onnxreduce.tensors import Array, array_digest, tensor_digest

Kind = Literal["attribute", "model", "type", "node", "name", "values", "zeros"]

TELLING: tuple[Kind, ...] = ("attribute", "model", "type", "node", "name", "values", "zeros")
"""What a reader learns most from comes first: that values matter is no surprise, and least of all
where a whole tensor becomes zero."""

FEW = 3
"""So many elements of a tensor are spelt out."""

LENGTH = 60
"""Letters of a name that are shown."""


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        kind: of what.
        words: for a person.
        step: how large it is among those of its kind: list items, elements.
    """

    kind: Kind
    words: str
    step: int = 1


def changes(before: Case, after: Case) -> list[Change]:
    """From `before` to `after`; a difference that follows from another one is left out."""
    return list(Comparison(before).with_(after))


class Comparison:
    """Compares cases with one and the same case, which is read only once."""

    def __init__(self, before: Case) -> None:
        self._before = before

    def with_(self, after: Case) -> Iterator[Change]:
        """See `changes`; one after the other, for who need not know them all."""
        before = self._before
        found = False
        for change in chain(_model(before.model, after.model), self._changed_nodes(after)):
            found = True
            yield change
        # Other operators have other outputs.
        hidden = {value.name for value in before.model.graph.outputs} if found else set()
        yield from _values((before, self._declared), after, hidden)

    def _changed_nodes(self, after: Case) -> Iterator[Change]:
        return _nodes(self._nodes, _by_output(after.model))

    @cached_property
    def _nodes(self) -> dict[str, ir.Node]:
        return _by_output(self._before.model)

    @cached_property
    def _declared(self) -> dict[str, tuple[str, str]]:
        return _declared(self._before)


def _model(before: ir.Model, after: ir.Model) -> Iterator[Change]:
    if before.ir_version != after.ir_version:
        yield Change("model", f"IR version {before.ir_version} -> {after.ir_version}")
    old, new = before.graph.opset_imports, after.graph.opset_imports
    for domain in sorted(old.keys() | new.keys()):
        if old.get(domain) != new.get(domain):
            name = f"opset {domain or 'ai.onnx'}"
            yield Change("model", f"{name} {old.get(domain, 'none')} -> {new.get(domain, 'none')}")


def _nodes(old: dict[str, ir.Node], new: dict[str, ir.Node]) -> Iterator[Change]:
    for name, node in old.items():
        if name not in new:
            yield Change("node", f"{node.op_type} {short(name)} is gone")
            continue
        other = new[name]
        if node.op_type != other.op_type:
            yield Change("node", f"{node.op_type} {short(name)} became {other.op_type}")
            continue
        label = node.op_type if len(old) == 1 else f"{node.op_type} {short(name)}"
        yield from _attributes(label, node, other)
        fed, feeds = ([v.name if v else None for v in each.inputs] for each in (node, other))
        if fed != feeds:
            yield Change("node", f"{label}: inputs {_names(fed)} -> {_names(feeds)}")
    for name, node in new.items():
        if name not in old:
            yield Change("node", f"{node.op_type} {short(name)} is new")


def _by_output(model: ir.Model) -> dict[str, ir.Node]:
    return {
        next((str(v.name) for v in node.outputs if v.name), ""): node
        for graph in graphs(model)
        for node in graph
    }


def short(text: str) -> str:
    """A name or a string that does not bury what is said about it."""
    line = " ".join(text.split())
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 1]}…"


def _names(names: list[str | None]) -> str:
    return f"({', '.join(short(name or '-') for name in names)})"


def _attributes(label: str, before: ir.Node, after: ir.Node) -> Iterator[Change]:
    for name in sorted(before.attributes.keys() | after.attributes.keys()):
        old, new = (_plain(each.attributes.get(name)) for each in (before, after))
        if old != new:
            words = f"{label}: {name} {_show(old)} -> {_show(new)}"
            yield Change("attribute", words, _step(old, new))


def _plain(attribute: ir.Attr | None) -> Any:
    """An attribute's value in a form that compares and prints; ``None``: not there."""
    if attribute is None or attribute.is_ref():
        return None if attribute is None else f"@{attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        return f"tensor {tensor_digest(attribute.as_tensor())[:8]}"
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "a body"  # its nodes are compared one by one
    if isinstance(attribute.value, (tuple, list)):
        return [*attribute.value]
    return attribute.value


def _show(value: Any) -> str:
    return "(default)" if value is None else short(str(value))


def _step(old: Any, new: Any) -> int:
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return sum(a != b for a, b in zip(old, new, strict=True))
    return FEW if old is None or new is None else 1


def _values(
    known: tuple[Case, dict[str, tuple[str, str]]], after: Case, hidden: set[str | None]
) -> Iterator[Change]:
    """Of inputs, weights and outputs; types of the `hidden` ones are left out."""
    before, old = known
    new = _declared(after)
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            gone = name in old
            what, kind = old[name] if gone else new[name]
            yield Change("name", f"{what} {short(name)} ({kind}) is {'gone' if gone else 'new'}")
        elif old[name] != new[name]:
            if name in hidden:
                continue
            left, right = (" ".join(each) for each in (old[name], new[name]))
            if old[name][0] == new[name][0]:
                left, right = old[name][1], new[name][1]
            yield Change("type", f"{short(name)}: {left} -> {right}")
        elif not _same_content(before, after, name):
            yield from _content(short(name), _array(before, name), _array(after, name))


def _declared(case: Case) -> dict[str, tuple[str, str]]:
    graph = case.model.graph
    found = {str(v.name): ("output", _type(v)) for v in graph.outputs}
    found |= {str(v.name): ("input", _type(v, case.inputs.get(str(v.name)))) for v in graph.inputs}
    found |= {str(v.name): ("initializer", _type(v)) for v in graph.initializers.values() if v.name}
    return found


def _type(value: ir.Value, fed: InputValue = None) -> str:
    kind = type_text(value)
    if isinstance(fed, np.ndarray):
        return f"{kind} fed {list(fed.shape)}" if value.shape != ir.Shape(fed.shape) else kind
    return kind


def type_text(value: ir.Value) -> str:
    """Type and shape as ONNX writes them, such as ``float32[1,N]``."""
    dtype = "?" if value.dtype is None else value.dtype.name.lower()
    if isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        dtype = f"{type(value.type).__name__.removesuffix('Type').lower()}({dtype})"
    names = {"float": "float32", "double": "float64"}
    dims = "" if value.shape is None else f"[{','.join(_dim(dim) for dim in value.shape)}]"
    return names.get(dtype, dtype) + dims


def _dim(dim: int | ir.SymbolicDim) -> str:
    return str(dim) if isinstance(dim, int) else short(dim.value or "?")


def _same_content(before: Case, after: Case, name: str) -> bool:
    """Without looking at numbers where that can be avoided: cases share tensors and arrays."""
    old, new = _tensor(before, name), _tensor(after, name)
    if old is not None and new is not None:
        return old is new or tensor_digest(old) == tensor_digest(new)
    return old is new and before.inputs.get(name) is after.inputs.get(name)


def _tensor(case: Case, name: str) -> ir.TensorProtocol | None:
    initializers = case.model.graph.initializers
    return initializers[name].const_value if name in initializers else None


def _array(case: Case, name: str) -> InputValue:
    tensor = _tensor(case, name)
    return case.inputs.get(name) if tensor is None else np.asarray(tensor.numpy())


def _content(name: str, before: InputValue, after: InputValue) -> Iterator[Change]:
    if not isinstance(before, np.ndarray) or not isinstance(after, np.ndarray):
        if _digests(before) != _digests(after):
            yield Change("values", f"{name}: other values", FEW + 1)
        return
    if array_digest(before) == array_digest(after):
        return
    if before.shape != after.shape or before.dtype != after.dtype:
        left, right = (f"{array.dtype}{list(array.shape)}" for array in (before, after))
        yield Change("type", f"{name}: {left} -> {right}")
        return
    where = np.argwhere(np.asarray(before != after).reshape(before.shape))
    kind: Kind = "zeros" if after.dtype.kind == "f" and not after.any() else "values"
    if not 0 < len(where) <= FEW:
        words = f"{name}: {len(where)} of {before.size} values"
        words += f" -> {_item(after, where[0])}" if _all_equal(after, where) else " differ"
        yield Change(kind, words, len(where))
        return
    spelt = [
        f"{name}{[*map(int, at)] or ''} {_item(before, at)} -> {_item(after, at)}" for at in where
    ]
    yield Change(kind, ", ".join(spelt), len(where))


def _digests(value: InputValue) -> list[str]:
    parts = value if isinstance(value, list) else [] if value is None else [value]
    return [array_digest(part) for part in parts]


def _all_equal(array: Array, where: Array) -> bool:
    chosen = array[tuple(where.T)]
    return chosen.size > 0 and bool((chosen == chosen.flat[0]).all())


def _item(array: Array, at: Array) -> str:
    return short(str(array[tuple(at)]))
