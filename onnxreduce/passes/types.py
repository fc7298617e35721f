"""Plainer element types, and the plainest operator set.

A bug found in a double, half or quantised network mostly shows in float32 as well, where anyone
can run it and nobody suspects the type. Quantise-dequantise pairs go first (they are nodes), then
every rare type at once, each rare type, each group of values that must be of one type, and last
the operator set version: by saying another number, which is right for most operators, else by
onnx's version converter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.edits import Conflict, Edit, Proposals, key
from onnxreduce.modelio import to_proto
from onnxreduce.passes._draft import (
    Draft,
    bodies,
    listing,
    nodes_at,
    opsets_at,
    places,
    replace,
    schema,
)
from onnxreduce.passes._groups import Following, first, follow, groups, least
from onnxreduce.shapes import inferred
from onnxreduce.size import PLAIN_OPSET, dtype_rank
from onnxreduce.tensors import Array, nbytes, tensors

NAME = "types"

TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that hold the number of an element type."""

CONVERTIBLE = 1 << 24
"""Models with more bytes of weights than this are not given to the version converter."""


def edits(case: Case) -> Proposals:
    case = yield from follow(case, groups(_pairs(case.model), DropPairs))
    case = yield from follow(case, groups(_rare(case), Retype))
    case = yield from follow(case, groups(_components(case.model), _retyping))
    yield from _opset(case)


@dataclass(frozen=True)
class DropPairs:
    """Let the readers of dequantised values read what was quantised.

    Attributes:
        names: outputs of ``DequantizeLinear`` nodes that read a ``QuantizeLinear``.
    """

    names: tuple[str, ...]

    def describe(self) -> str:
        return f"drop {len(self.names)} quantise-dequantise pair{'s' * (len(self.names) > 1)}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        for node in nodes_at(draft.model, [((), name) for name in self.names]):
            source = _quantised(node)
            if source is None:
                raise Conflict(f"{key(node)} dequantises nothing that was quantised")
            replace(node.outputs[0], source)
        return draft.finish(same_values=False)


@dataclass(frozen=True)
class Retype:
    """Give every value of some element types the plain type of their kind, everywhere.

    Attributes:
        dtypes: names of `onnx_ir.DataType` members.
    """

    dtypes: tuple[str, ...]

    def describe(self) -> str:
        return f"make {', '.join(name.lower() for name in self.dtypes)} plain"

    def apply(self, case: Case) -> Case:
        chosen = {ir.DataType[name] for name in self.dtypes}
        return _retype(case, lambda _, dtype: plain(dtype) if dtype in chosen else dtype)


@dataclass(frozen=True)
class RetypeValues:
    """Give some values of the main graph the plain type of their kind."""

    names: tuple[str, ...]

    def describe(self) -> str:
        return f"make the type of {listing(self.names)} plain"

    def apply(self, case: Case) -> Case:
        chosen = set(self.names)
        return _retype(case, lambda name, dtype: plain(dtype) if name in chosen else dtype)


@dataclass(frozen=True)
class Relabel:
    """Import another version of the default operator set, and change nothing else."""

    version: int

    def describe(self) -> str:
        return f"say opset {self.version}"

    def apply(self, case: Case) -> Case:
        model = case.copy_model()
        if model.graph.opset_imports.get("") in (None, self.version):
            raise Conflict("the version is that already")
        for opsets in (
            model.graph.opset_imports,
            *(f.opset_imports for f in model.functions.values()),
        ):
            if "" in opsets:
                opsets[""] = self.version
        return Case(model, case.inputs)


@dataclass(frozen=True)
class Convert:
    """Go to another version of the default operator set with onnx's version converter."""

    version: int

    def describe(self) -> str:
        return f"convert to opset {self.version}"

    def apply(self, case: Case) -> Case:
        if case.model.graph.opset_imports.get("") in (None, self.version):
            raise Conflict("the version is that already")
        if sum(map(nbytes, tensors(case.model))) > CONVERTIBLE:
            raise Conflict("the weights are too large to be copied")
        proto = to_proto(case)
        try:
            proto = onnx.version_converter.convert_version(proto, self.version)
        except Exception as error:
            # The converter is C++ and raises RuntimeError, ConvertError and others alike.
            raise Conflict(f"cannot be converted: {error}") from error
        return Case(ir.from_proto(proto), case.inputs)


def plain(dtype: ir.DataType) -> ir.DataType:
    """The plain type of a kind: float32, or int64; strings, bools and complex numbers stay."""
    if dtype in (ir.DataType.BOOL, ir.DataType.STRING, ir.DataType.UNDEFINED):
        return dtype
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return dtype
    return ir.DataType.FLOAT if dtype.is_floating_point() else ir.DataType.INT64


# --- what there is to do ------------------------------------------------------------------------


def _quantised(node: ir.Node) -> ir.Value | None:
    """What a DequantizeLinear node gives back, if a QuantizeLinear stands before it."""
    before = node.inputs[0].producer() if node.inputs and node.inputs[0] else None
    kinds = (node.op_type, before.op_type if before else "")
    return before.inputs[0] if before and kinds == ("DequantizeLinear", "QuantizeLinear") else None


def _pairs(model: ir.Model) -> list[str]:
    return [
        key(node)
        for node in model.graph
        if _quantised(node) is not None and not node.outputs[0].is_graph_output()
    ]


def _rare(case: Case) -> list[str]:
    """Element types of the model that have a plainer one, the rarest last."""
    found = {tensor.dtype for tensor in tensors(case.model)}
    for _, graph in places(case.model):
        found |= {value.dtype for value in (*graph.inputs, *graph.outputs) if value.dtype}
    found |= {
        ir.DataType(attribute.as_int())
        for _, graph in places(case.model)
        for node in graph
        for attribute in _type_attributes(node)
    }
    rare = sorted((d for d in found if plain(d) != d), key=lambda d: (dtype_rank(d), int(d)))
    return [dtype.name for dtype in rare]


def _type_attributes(node: ir.Node) -> Iterator[ir.Attr]:
    for name in TYPE_ATTRIBUTES:
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            yield attribute


def _retyping(components: tuple[tuple[str, ...], ...]) -> Edit:
    return RetypeValues(tuple(name for names in components for name in names))


def _components(model: ir.Model) -> list[tuple[str, ...]]:
    """Groups of values that must be of one type, by the type variables of the schemas.

    Only groups of a rare type, and of those that are not the whole of what has it: the whole was
    tried before.
    """
    types = inferred(model)
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    def tie(values: Iterable[ir.Value]) -> None:
        names = [str(value.name) for value in values if value.name]
        for name in names:
            parent[root(name)] = root(names[0])

    for node in model.graph:
        for group in _tied(node, opsets_at(model, ())):
            tie(group)
    members: dict[str, list[str]] = {}
    for name in list(parent):
        members.setdefault(root(name), []).append(name)
    rare = []
    for names in members.values():
        dtypes = {types[n].type.dtype for n in names if n in types and types[n].type}
        if len(dtypes) == 1 and plain(next(iter(dtypes))) not in dtypes:
            rare.append(tuple(names))
    return rare if len(rare) > 1 else []


def _tied(node: ir.Node, opsets: dict[str, int]) -> Iterator[list[ir.Value]]:
    """Inputs and outputs of a node that share a type variable."""
    known = schema(node, opsets)
    values = [
        (node.inputs, known.inputs if known else ()),
        (node.outputs, known.outputs if known else ()),
    ]
    if known is None or any(True for _ in bodies(node)):
        everything = [v for held, _ in values for v in held if v is not None]
        for dtype in {v.dtype for v in everything}:
            yield [v for v in everything if v.dtype == dtype]
        return
    variables: dict[str, list[ir.Value]] = {}
    for held, formals in values:
        for index, value in enumerate(held):
            if value is not None and formals:
                formal = formals[min(index, len(formals) - 1)]
                variables.setdefault(formal.type_str, []).append(value)
    yield from variables.values()


def _opset(case: Case) -> Following:
    """The plainest version, else the nearest to it that shows the bug."""
    if case.model.graph.opset_imports.get("", PLAIN_OPSET) != PLAIN_OPSET:
        case = yield from first(case, Relabel(PLAIN_OPSET), Convert(PLAIN_OPSET))
    for change in (Relabel, Convert):
        version = case.model.graph.opset_imports.get("", PLAIN_OPSET)
        away = version - PLAIN_OPSET
        toward = partial(_at_distance, change, 1 if away > 0 else -1)
        case = yield from least(case, abs(away), toward)
    return case


def _at_distance(change: type[Relabel] | type[Convert], sign: int, distance: int) -> Edit:
    return change(PLAIN_OPSET + sign * distance)


# --- changing types -----------------------------------------------------------------------------

Choice = Callable[[str, ir.DataType], ir.DataType]
"""The type for a value of the main graph (by name; empty elsewhere) that has a type."""


def _retype(case: Case, choose: Choice) -> Case:
    model = case.copy_model()
    inputs: dict[str, InputValue] = dict(case.inputs)
    changed = False
    for value in model.graph.inputs:
        name = str(value.name)
        old = value.dtype
        if old is not None and choose(name, old) != old and name in inputs:
            inputs[name] = _cast_fed(inputs[name], choose(name, old))
    for place, graph in places(model):

        def pick(name: str | None, dtype: ir.DataType, main: bool = not place) -> ir.DataType:
            return choose(str(name) if main else "", dtype)

        for value in {*graph.inputs, *graph.initializers.values(), *graph.outputs}:
            changed |= _retype_value(value, pick)
        for node in graph:
            for value in node.outputs:
                changed |= _retype_value(value, pick)
            changed |= _retype_node(node, pick)
    if not changed:
        raise Conflict("every type is plain")
    return Case(model, inputs)


def _retype_value(value: ir.Value, pick: Choice) -> bool:
    changed = False
    if value.type is not None:
        made = _retype_type(value.type, lambda dtype: pick(value.name or "", dtype))
        changed = made != value.type
        value.type = made
    if value.const_value is not None:
        old = value.const_value
        new = pick(value.name or "", old.dtype)
        if new != old.dtype:
            value.const_value = ir.tensor(_cast(old.numpy(), new), name=old.name)
            changed = True
    return changed


def _retype_type(
    kind: ir.TypeProtocol, pick: Callable[[ir.DataType], ir.DataType]
) -> ir.TypeProtocol:
    """The same type around another element type; types are shared, so never changed in place."""
    if isinstance(kind, ir.TensorType | ir.SparseTensorType):
        return type(kind)(pick(kind.dtype), denotation=kind.denotation)
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        return type(kind)(_retype_type(kind.elem_type, pick), denotation=kind.denotation)
    return kind


def _retype_node(node: ir.Node, pick: Choice) -> bool:
    changed = False
    name = next((value.name for value in node.outputs if value.name), "") or ""
    for attribute in list(_type_attributes(node)):
        old = ir.DataType(attribute.as_int())
        if pick(name, old) != old:
            node.attributes[attribute.name] = ir.AttrInt64(attribute.name, int(pick(name, old)))
            changed = True
    held = node.attributes.get("value")
    if held is not None and held.type == ir.AttributeType.TENSOR:
        tensor = held.as_tensor()
        new = pick(name, tensor.dtype)
        if new != tensor.dtype:
            made = ir.tensor(_cast(tensor.numpy(), new), name=tensor.name)
            node.attributes["value"] = ir.AttrTensor("value", made)
            changed = True
    return changed


def _cast(array: Array, dtype: ir.DataType) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy())


def _cast_fed(fed: InputValue, dtype: ir.DataType) -> InputValue:
    if isinstance(fed, list):
        return [_cast(array, dtype) for array in fed]
    return None if fed is None else _cast(fed, dtype)
