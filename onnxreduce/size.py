"""How big a case is: the total order in which every accepted edit must go down.

The order is lexicographic, from what makes a bug report hard to read (nodes) to what is cosmetic
(names, declared shapes). A declared dim without a number counts least of all: it stays where the
bug needs it, and stands in nobody's way.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir

from onnxreduce.cloning import meta_of, props_of
from onnxreduce.complexity import array_complexity, number_complexity, tensor_complexity
from onnxreduce.encoding import QUANTIZATION, REMEMBERED
from onnxreduce.naming import Names, plain_names
from onnxreduce.tensors import Array, attribute_tensors, graphs

PLAIN_OPSET = 17
"""The version of the default operator set that counts as simplest (distance from it counts)."""

PLAIN_IR = 8
"""The IR version that counts as simplest: the one that goes with `PLAIN_OPSET`."""

MENTION = 8
"""What a doc string, metadata entry, value_info entry or opset import costs beside its text."""

UNKNOWN_RANK = 64
"""What a tensor counts that is declared without a shape, as dims without a number."""


class Size(NamedTuple):
    """The measure of a case. Compared from left to right; every field is a count.

    Attributes:
        nodes: nodes, those of subgraphs and functions included.
        ports: graph inputs and outputs (an initializer that is also an input is no input).
        elements: elements of inputs, initializers and tensor attributes.
        attributes: attributes that differ from the default of the operator's schema.
        values: how long the numbers are when written down: zero is free, one is cheap.
        types: distance from plain float32, `PLAIN_OPSET` and `PLAIN_IR`.
        text: length of all names that are not plain (`naming`), wherever they are mentioned, of
            what only decorates, and the brackets that tensors are written in (their ranks).
        open: dims of graph inputs and outputs that are declared without a number.
    """

    nodes: int
    ports: int
    elements: int
    attributes: int
    values: int
    types: int
    text: int
    open: int


def measure(model: ir.Model, inputs: Mapping[str, Any]) -> Size:
    """The size of a model with its inputs.

    The first call on a model reads each tensor once; later ones only what is new.
    """
    tally = _Tally(plain_names(model))
    opsets = model.graph.opset_imports
    tally.types += abs(opsets.get("", PLAIN_OPSET) - PLAIN_OPSET) + abs(model.ir_version - PLAIN_IR)
    tally.opset_imports(opsets)
    tally.notes(model.producer_name, model.producer_version, model.domain, model.doc_string)
    tally.notes(model.model_version or None)
    tally.strings(model.metadata_props)
    tally.text += MENTION * len(model.device_configurations)
    main = model.graph
    tally.ports += sum(value.name not in main.initializers for value in main.inputs)
    tally.ports += len(main.outputs)
    for value in main.inputs:
        tally.types += type_rank(value.type)
    for value in main.outputs:
        tally.types += type_rank(value.type)
    for function in model.functions.values():
        tally.text += len(function.domain) + len(function.name) + len(function.overload)
        tally.text += sum(map(len, function.attributes))
        tally.opset_imports(function.opset_imports)
    for graph in graphs(model):
        tally.graph(graph, opsets)
    for content in inputs.values():
        for array in content if isinstance(content, list) else [content]:
            if array is not None:
                tally.array(array)
    return Size(
        tally.nodes,
        tally.ports,
        tally.elements,
        tally.attributes,
        tally.values,
        tally.types,
        tally.text,
        sum(map(_open_dims, (*main.inputs, *main.outputs))),
    )


def bulk(model: ir.Model, inputs: Mapping[str, Any]) -> tuple[int, int, int]:
    """The first three counts of `Size`: they mostly decide, and take no look at any number."""
    main = model.graph
    opsets = main.opset_imports
    nodes = elements = 0
    ports = len(main.outputs) + sum(value.name not in main.initializers for value in main.inputs)
    for graph in graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                elements += _elements_of(value.const_value)
        for node in graph:
            nodes += 1
            if node.attributes.data:
                known = _attributes_of(node, opsets.get(node.domain))
                elements += sum(map(_elements_of, known.tensors))
    for content in inputs.values():
        arrays = content if isinstance(content, list) else [content]
        elements += sum(array.size for array in arrays if array is not None)
    return nodes, ports, elements


def _elements_of(tensor: ir.TensorProtocol) -> int:
    known = _elements.get(tensor)
    if known is None:
        known = _elements[tensor] = tensor.size
    return known


class _Tally:
    """Running sums over a model."""

    def __init__(self, plain: Names) -> None:
        self.plain = plain
        self.nodes = self.ports = self.elements = self.attributes = 0
        self.values = self.types = self.text = 0

    def graph(self, graph: ir.Graph, opsets: Mapping[str, int]) -> None:
        self.text += _length(graph.name, self.plain.graphs.get(graph))
        self.notes(graph.doc_string)
        self.strings(graph.metadata_props)
        for value in (*graph.inputs, *graph.outputs):
            self.mention(value)
            self.described(value)
        for value in graph.initializers.values():
            self.mention(value)
            if value.const_value is not None:
                self.tensor(value.const_value)
        for node in graph:
            self.node(node, opsets)

    def node(self, node: ir.Node, opsets: Mapping[str, int]) -> None:
        self.nodes += 1
        self.text += _length(node.name, self.plain.nodes.get(node)) + len(node.overload)
        self.described(node)
        plain = self.plain.values
        for value in node.inputs:
            # An omitted input still takes a place: trailing ones can go.
            self.text += 1
            if value is not None:
                self.text += _length(value.name, plain.get(value))
        for value in node.outputs:
            self.mention(value)
            if value.type is not None and not value.is_graph_output():
                self.text += MENTION
            self.described(value)
        if node.attributes.data:
            self.attributes_of(node, opsets.get(node.domain))

    def attributes_of(self, node: ir.Node, version: int | None) -> None:
        known = _attributes_of(node, version)
        self.attributes += known.number
        self.values += known.values
        self.text += known.text
        for tensor in known.tensors:
            self.text += len(tensor.name or "")
            self.tensor(tensor)

    def tensor(self, tensor: ir.TensorProtocol) -> None:
        known = _tensors.get(tensor)
        if known is None:
            described = _Tally(self.plain)
            described.notes(tensor.doc_string)
            described.strings(tensor.metadata_props)
            text = len(tensor.shape) + described.text
            known = (*tensor_complexity(tensor), dtype_rank(tensor.dtype), text)
            _tensors[tensor] = known
        elements, values, types, text = known
        self.elements += elements
        self.values += values
        self.types += types
        self.text += text

    def array(self, array: Array) -> None:
        self.elements += array.size
        self.values += array_complexity(array)
        self.text += array.ndim

    def mention(self, value: ir.Value) -> None:
        self.text += _length(value.name, self.plain.values.get(value))
        if meta_of(value).get(QUANTIZATION):
            self.text += MENTION

    def described(self, holder: ir.Value | ir.Node) -> None:
        if holder.doc_string:
            self.notes(holder.doc_string)
        if props := props_of(holder):
            self.strings(props)

    def notes(self, *notes: object) -> None:
        for note in notes:
            if note:
                self.text += MENTION + len(str(note))

    def strings(self, strings: Mapping[str, str] | None) -> None:
        if strings:
            self.text += sum(MENTION + len(key) + len(strings[key]) for key in strings)

    def opset_imports(self, opsets: Mapping[str, int]) -> None:
        self.text += sum(MENTION + len(domain) for domain in opsets)


class _Attributes(NamedTuple):
    """What the attributes of a node count, but for their tensors.

    Nobody changes an attribute in place, so this is remembered by their identity.

    Attributes:
        attributes: held on to, so that their identity stays theirs.
        number, values, text: see `Size`.
        tensors: to be measured by themselves.
    """

    attributes: tuple[ir.Attr, ...]
    number: int
    values: int
    text: int
    tensors: tuple[ir.TensorProtocol, ...]

    @classmethod
    def of(cls, node: ir.Node, attributes: tuple[ir.Attr, ...], version: int | None) -> _Attributes:
        defaults = attribute_defaults(node.op_type, node.domain, version) if version else {}
        number = values = text = 0
        tensors: list[ir.TensorProtocol] = []
        for attribute in attributes:
            text += MENTION + len(attribute.name)
            if attribute.doc_string:
                text += MENTION + len(attribute.doc_string)
            if attribute.is_ref():
                number += 1
                continue
            default = defaults.get(attribute.name, _NO_DEFAULT)
            if default is _NO_DEFAULT or not same_attribute(attribute.value, default):
                number += 1
                values += attribute_complexity(attribute)
            tensors += attribute_tensors(attribute)
        return cls(attributes, number, values, text, tuple(tensors))


def _attributes_of(node: ir.Node, version: int | None) -> _Attributes:
    attributes = tuple(node.attributes.data.values())
    key = (node.op_type, node.domain, version, *map(id, attributes))
    known = _attributes.get(key)
    if known is None:
        known = _Attributes.of(node, attributes, version)
        if not known.tensors:  # which would be held on to
            if len(_attributes) >= REMEMBERED:
                _attributes.clear()
            _attributes[key] = known
    return known


_elements: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_tensors: weakref.WeakKeyDictionary[Any, tuple[int, int, int, int]] = weakref.WeakKeyDictionary()
_attributes: dict[tuple[object, ...], _Attributes] = {}


def _length(name: str | None, plain: str | None) -> int:
    """Of a name; a plain one is free."""
    return 0 if not name or name == plain else len(name)


def _open_dims(value: ir.Value) -> int:
    """An unknown rank counts like more dims than anybody has."""
    if not isinstance(value.type, ir.TensorType):
        return 0
    if value.shape is None:
        return UNKNOWN_RANK
    return sum(not isinstance(dim, int) for dim in value.shape)


_NO_DEFAULT = object()


@functools.lru_cache(maxsize=4096)
def attribute_defaults(op_type: str, domain: str, version: int) -> Mapping[str, Any]:
    """Default values by attribute name, from the operator's schema; empty when it has none.

    Strings are given as `str`, lists as tuples. Attributes without a default are absent.
    """
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}
    defaults: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        proto = attribute.default_value
        if proto.type == onnx.AttributeProto.UNDEFINED:
            continue
        content = onnx.helper.get_attribute_value(proto)
        if isinstance(content, bytes):
            content = content.decode()
        elif isinstance(content, list):
            content = tuple(item.decode() if isinstance(item, bytes) else item for item in content)
        defaults[name] = content
    return defaults


def same_attribute(content: Any, default: Any) -> bool:
    """Whether an attribute's value equals the schema's default."""
    if isinstance(default, tuple):
        return isinstance(content, list | tuple) and tuple(content) == default
    return bool(type(content) in (int, float, str) and content == default)


def attribute_complexity(attribute: ir.Attr) -> int:
    """How long a number, string or list of them is when written down."""
    kind, content = attribute.type, attribute.value
    if kind in (ir.AttributeType.INT, ir.AttributeType.FLOAT):
        return number_complexity(content)
    if kind in (ir.AttributeType.INTS, ir.AttributeType.FLOATS):
        return sum(1 + number_complexity(item) for item in content)
    if kind == ir.AttributeType.STRING:
        return len(content)
    if kind == ir.AttributeType.STRINGS:
        return sum(1 + len(item) for item in content)
    return 0


_RANKS = {
    ir.DataType.FLOAT: 0,
    ir.DataType.INT64: 1,
    ir.DataType.INT32: 2,
    ir.DataType.BOOL: 2,
    ir.DataType.DOUBLE: 3,
    ir.DataType.FLOAT16: 4,
    ir.DataType.UINT8: 4,
    ir.DataType.INT8: 4,
    ir.DataType.BFLOAT16: 5,
}


def dtype_rank(dtype: ir.DataType | None) -> int:
    """How far an element type is from plain float32: 0 for it, more for what is rarer."""
    return 6 if dtype is None else _RANKS.get(dtype, 6)


def type_rank(declared: ir.TypeProtocol | None) -> int:
    """As `dtype_rank`, for a declared type; sequences and optionals cost more than tensors."""
    if declared is None:
        return 0
    if isinstance(declared, ir.TensorType):
        return dtype_rank(declared.dtype)
    inner = getattr(declared, "elem_type", None)
    nested = inner if not isinstance(inner, ir.DataType) else None
    return 4 + (type_rank(nested) if nested is not None else 0)
