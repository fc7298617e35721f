"""Builds the model that is left when nodes go and values are rewired, cloning only what is kept.

What a kept node reads from a node that is gone is *fed*: a value that depends on a graph input
becomes a graph input (as an initializer it would be folded at load, and the bug folded away with
it); one that depends on no graph input becomes an initializer (as an input, an ``axes`` or
``shape`` operand would turn dynamic, and the reduction would slip to another error).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxreduce.activations import MadeUp
from onnxreduce.case import Case, InputValue, Recording
from onnxreduce.cloning import clone_graph
from onnxreduce.edits import Conflict
from onnxreduce.graph import Index, bodies, index
from onnxreduce.shapes import ValueType, agrees, bind
from onnxreduce.tensors import Array

SMALL = 1 << 20
"""Recorded arrays up to this many bytes are copied out of the recording's file."""


class Output(NamedTuple):
    """A graph output of the model to be built.

    Attributes:
        name: the value.
        declared: type and shape it is declared with; None: as the value has it.
    """

    name: str
    declared: ValueType | None = None


def rebuild(
    case: Case,
    keep: Iterable[str],
    outputs: Sequence[Output],
    replace: Mapping[str, str] | None = None,
) -> tuple[ir.Model, dict[str, InputValue]]:
    """The model of some nodes of a case, and its inputs.

    Args:
        case: stays as it is.
        keep: keys of the nodes that stay.
        outputs: the graph outputs, in order.
        replace: readers of the first value read the second one instead.

    Raises:
        Conflict: a value that is cut was not recorded, or the result has no outputs.
    """
    replace = replace or {}
    if not outputs:
        raise Conflict("no graph output would remain")
    parts = _Parts(case, keep, outputs, replace)
    graph = parts.clone()
    inputs = {name: case.inputs[name] for name in parts.inputs if name in case.inputs}
    values = {value.name: value for value in graph.inputs}
    _rewire(graph, values, replace)
    for name in [*parts.undeclared, *parts.replaced]:
        graph.inputs.remove(values[name])
    feeder = _Feeder(case, parts.index)
    for name in parts.cut:
        feeder.feed(graph, values[name], inputs)
    _declare(graph, outputs)
    return _model(case.model, graph), inputs


class _Parts:
    """Sorts out what the kept nodes need from outside."""

    def __init__(
        self,
        case: Case,
        keep: Iterable[str],
        outputs: Sequence[Output],
        replace: Mapping[str, str],
    ) -> None:
        self.case = case
        self.index = known = index(case.model)
        self.outputs = outputs
        self.kept = known.sort(keep)
        made = {value for key in self.kept for value in known.writes[key]}
        read = dict.fromkeys(value for key in self.kept for value in known.reads[key])
        read.update(dict.fromkeys(output.name for output in outputs))
        self.replaced = [old for old in replace if old in read and old not in made]
        needed = dict.fromkeys(replace.get(value, value) for value in read)
        outside = [value for value in needed if value not in made]
        declared = {value.name: number for number, value in enumerate(case.model.graph.inputs)}
        self.inputs = sorted((v for v in outside if v in declared), key=declared.__getitem__)
        place = known.initializers
        self.initializers = sorted((v for v in outside if v in place), key=place.__getitem__)
        self.undeclared = [value for value in outside if value in known.undeclared]
        self.cut = [value for value in outside if known.producer(value) is not None]

    def clone(self) -> ir.Graph:
        """The kept nodes, with all that they need from outside as inputs."""
        graph = self.case.model.graph
        nodes = [self.index.nodes[key] for key in self.kept]
        by_name = {**self.index.undeclared, **graph.initializers}
        by_name |= {value.name: value for value in graph.inputs if value.name}
        view = ir.GraphView(
            [self._value(n, by_name) for n in self._entries()],
            [self._value(output.name, by_name) for output in self.outputs],
            nodes=nodes,
            initializers=[graph.initializers[name] for name in self.initializers],
            doc_string=graph.doc_string,
            opset_imports=graph.opset_imports,
            name=graph.name,
            metadata_props=dict(graph.metadata_props),
        )
        copy = clone_graph(view)
        copy.meta.update(graph.meta)
        return copy

    def _entries(self) -> list[str]:
        return [*self.inputs, *self.cut, *self.undeclared, *self.replaced]

    def _value(self, name: str, by_name: Mapping[str, ir.Value]) -> ir.Value:
        if name in by_name:
            return by_name[name]
        key = self.index.producer(name)
        if key is None:
            raise Conflict(f"there is no value {name}")
        return next(value for value in self.index.nodes[key].outputs if value.name == name)


class _Feeder:
    """Gives cut values what was recorded for them."""

    def __init__(self, case: Case, known: Index) -> None:
        self._recording = recording_of(case)
        self._index = known
        self._old_initializers = case.model.ir_version < 4
        self._bindings: dict[str, int] = {}
        for value in case.model.graph.inputs:
            array = case.inputs.get(value.name or "")
            if isinstance(array, np.ndarray):
                bind(value.shape, array.shape, self._bindings)

    def feed(self, graph: ir.Graph, value: ir.Value, inputs: dict[str, InputValue]) -> None:
        """Make a value, now among the graph inputs, an input or initializer with its recording."""
        name = value.name or ""
        recorded = self._recording.get(name)
        if recorded is None:
            raise Conflict(f"{name} has no recorded value")
        value.const_value = None
        known = self._recording.type_of(name)
        if isinstance(recorded, list):
            if known is None:
                raise Conflict(f"the type of {name} is not known")
            value.type, value.shape = known
            inputs[name] = recorded
            return
        array = _own(recorded)
        value.type = _type(known, array)
        value.shape = self._shape(known, array)
        if self._index.depends_on_input(name) or not isinstance(value.type, ir.TensorType):
            inputs[name] = array
            return
        value.shape = ir.Shape(array.shape)
        value.const_value = tensor_of(array, value.type.dtype, name)
        if not self._old_initializers:  # before IR version 4, initializers are inputs as well
            graph.inputs.remove(value)
        graph.register_initializer(value)

    def _shape(self, known: ValueType | None, array: Array) -> ir.Shape:
        shape = known.shape if known else None
        if shape is None or not agrees(shape, array.shape, self._bindings):
            return ir.Shape(array.shape)
        bind(shape, array.shape, self._bindings)
        return ir.Shape(shape)


def tensor_of(array: Array, dtype: ir.DataType, name: str) -> ir.TensorProtocol:
    """An initializer's tensor."""
    if dtype == ir.DataType.STRING:
        items = [item if isinstance(item, bytes) else str(item).encode() for item in array.flat]
        return ir.StringTensor(np.array(items, dtype=object).reshape(array.shape), name=name)
    return ir.Tensor(array, dtype=dtype, name=name)


def output_type(case: Case, name: str) -> ValueType | None:
    """How a value that becomes a graph output is declared: its rank, with unknown dims."""
    recording = recording_of(case)
    known, recorded = recording.type_of(name), recording.get(name)
    if isinstance(recorded, np.ndarray) and not recording.made_up:
        return ValueType(_type(known, recorded), ir.Shape([None] * recorded.ndim))
    if known is None or known.shape is None:
        return known
    return ValueType(known.type, ir.Shape([None] * len(known.shape)))


def recording_of(case: Case) -> Recording:
    """The case's recording; made-up values where there is none."""
    return case.recording or MadeUp.of(case)


def _own(array: Array) -> Array:
    return np.array(array) if array.nbytes <= SMALL else np.asarray(array)


def _type(known: ValueType | None, array: Array) -> ir.TypeProtocol:
    """The known type where it agrees with the recording."""
    if array.dtype.kind in "OUST":
        dtype = ir.DataType.STRING
    else:
        dtype = ir.DataType.from_numpy(array.dtype)
    if known is not None and (
        not isinstance(known.type, ir.TensorType) or known.type.dtype == dtype
    ):
        return known.type
    return ir.TensorType(dtype)


def _rewire(
    graph: ir.Graph, values: Mapping[str | None, ir.Value], replace: Mapping[str, str]
) -> None:
    if not replace:
        return
    found = dict(values) | {v.name: v for v in graph.initializers.values()}
    found |= {value.name: value for node in graph for value in node.outputs}
    for old, new in replace.items():
        if old in found:
            found[old].replace_all_uses_with(found[new], replace_graph_outputs=True)


def _declare(graph: ir.Graph, outputs: Sequence[Output]) -> None:
    for value, output in zip(graph.outputs, outputs, strict=True):
        if output.declared is not None:
            shape = output.declared.shape
            value.type = output.declared.type
            value.shape = None if shape is None else shape.copy()


def _model(original: ir.Model, graph: ir.Graph) -> ir.Model:
    """A model around a graph. Local functions are shared: nobody changes one in place."""
    functions: dict[Any, ir.Function] = {}
    if original.functions:
        _collect_functions(original, graph, functions)
    return ir.Model(
        graph,
        ir_version=original.ir_version,
        producer_name=original.producer_name,
        producer_version=original.producer_version,
        domain=original.domain,
        model_version=original.model_version,
        doc_string=original.doc_string,
        functions=[f for name, f in original.functions.items() if name in functions],
        metadata_props=dict(original.metadata_props),
        device_configurations=original.device_configurations,
    )


def _collect_functions(
    model: ir.Model, where: ir.Graph | ir.Function, found: dict[Any, ir.Function]
) -> None:
    for node in ir.traversal.RecursiveGraphIterator(where):
        name = node.op_identifier()
        if name in model.functions and name not in found:
            found[name] = model.functions[name]
            _collect_functions(model, found[name], found)


def forget_shapes(nodes: Collection[ir.Node]) -> None:
    """Drop the declared shapes of what nodes make, inside their bodies too; not of outputs."""
    for node in nodes:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None
        for body in bodies(node):
            forget_shapes(tuple(body))
