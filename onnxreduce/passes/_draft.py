"""What passes share: finding things in nested graphs, and sweeping up after a change.

An edit names a node by its first output, which is unique in *one* graph only: sibling branches of
an ``If`` may use the same names. So edits that reach into bodies also carry a `Place`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.edits import Conflict, key, keyed
from onnxreduce.encoding import encode
from onnxreduce.shapes import FAILURES

Place = tuple[str, ...]
"""Where a graph is: ``()`` is the main graph; a body is its parent's place, the key of the node
that holds it and the attribute's name; a local function starts with ``domain::name::overload``."""

Spot = tuple[Place, str]
"""A node: where it is, and its key."""


def identifier(function: ir.Function) -> str:
    return f"{function.domain}::{function.name}::{function.overload}"


def places(model: ir.Model) -> Iterator[tuple[Place, ir.Graph]]:
    """The main graph, its bodies, the local functions and theirs, outermost first."""
    yield from _below((), model.graph)
    for function in model.functions.values():
        yield from _below((identifier(function),), function.graph)


def _below(place: Place, graph: ir.Graph) -> Iterator[tuple[Place, ir.Graph]]:
    yield place, graph
    for node in keyed(graph):
        for name, body in bodies(node):
            yield from _below((*place, key(node), name), body)


def bodies(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """The graphs that a node holds, by the name of the attribute (``name[i]`` in a list)."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            for index, body in enumerate(attribute.as_graphs()):
                yield f"{name}[{index}]", body


def graph_at(model: ir.Model, place: Place) -> ir.Graph:
    """The graph at a place.

    Raises:
        Conflict: there is none.
    """
    graph, rest = model.graph, list(place)
    if len(rest) % 2:
        first = rest.pop(0)
        found = [f.graph for f in model.functions.values() if identifier(f) == first]
        if not found:
            raise Conflict(f"no function {first}")
        graph = found[0]
    while rest:
        name, attribute = rest[:2]
        rest = rest[2:]
        inner = dict(bodies(node_in(graph, name)))
        if attribute not in inner:
            raise Conflict(f"{name} has no body {attribute}")
        graph = inner[attribute]
    return graph


def opsets_at(model: ir.Model, place: Place) -> dict[str, int]:
    """The opset imports that hold at a place: a function has its own."""
    if len(place) % 2:
        for function in model.functions.values():
            if identifier(function) == place[0]:
                return function.opset_imports
    return model.graph.opset_imports


def node_in(graph: ir.Graph, name: str) -> ir.Node:
    """The node of a graph with this key.

    Raises:
        Conflict: there is none.
    """
    for node in graph:
        if any(value.name == name for value in node.outputs):
            return node
    raise Conflict(f"no node makes {name}")


def nodes_at(model: ir.Model, spots: Iterable[Spot]) -> list[ir.Node]:
    """The nodes at some spots, in the order asked for; one walk a graph.

    Raises:
        Conflict: one of them is gone.
    """
    index: dict[Place, dict[str, ir.Node]] = {}
    found = []
    for place, name in spots:
        if place not in index:
            graph = graph_at(model, place)
            index[place] = {value.name: n for n in graph for value in n.outputs if value.name}
        if name not in index[place]:
            raise Conflict(f"no node makes {name}")
        found.append(index[place][name])
    return found


def schema(node: ir.Node, opsets: dict[str, int]) -> onnx.defs.OpSchema | None:
    """The schema of a node's operator; ``None`` for one that the onnx package does not know."""
    version = opsets.get(node.domain)
    if version is None or not onnx.defs.has(node.op_type, node.domain):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None


def replace(value: ir.Value, by: ir.Value) -> None:
    """Let everything that reads `value`, inside bodies too, read `by`; graph outputs stay."""
    for node, index in tuple(value.uses()):
        node.replace_input_with(index, by)


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """What an initializer or the output of a ``Constant`` node holds, if it is a dense tensor."""
    if value.const_value is not None and value.is_initializer():
        return value.const_value
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain != "":
        return None
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value":
            return attribute.as_tensor()
        if name in _CONSTANTS:
            return ir.tensor(np.array(attribute.value, _CONSTANTS[name]))
        if name in ("value_string", "value_strings"):
            return ir.tensor(np.array(attribute.value, object))
    return None


_CONSTANTS = {
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
}


def listing(names: Sequence[str]) -> str:
    """The first three names, the long ones shortened, for descriptions of edits."""
    short = [name if len(name) <= 40 else f"{name[:18]}...{name[-18:]}" for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(short) + more


class Draft:
    """A copy of a case's model to change in place, which ends as a case again.

    `finish` removes what the change left unread (nodes, initializers and graph inputs), but never
    what was unread before: dead code can be part of a bug, and has edits of its own.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = case.copy_model()
        self.inputs: dict[str, InputValue] = dict(case.inputs)
        self._stale: set[ir.Value] = set()
        self._idle = {value.name for value in self.model.graph.inputs if _unread(value)}
        self._idle |= {
            value.name
            for g in self._graphs()
            for value in g.initializers.values()
            if _unread(value)
        }
        self._dead = {key(n) for g in self._graphs() for n in g if _named(n) and _unused(n)}

    def _graphs(self) -> list[ir.Graph]:
        return [graph for _, graph in places(self.model)]

    def finish(self, *, same_values: bool) -> Case:
        """The case; `same_values` when every surviving value is what it was."""
        self.sweep()
        if self._stale:
            self._redeclare()
        if same_values:
            return self.case.same_values(self.model, self.inputs)
        return Case(self.model, self.inputs)

    def reshaped(self, values: Collection[ir.Value]) -> None:
        """Say that shapes of these values may have changed: declarations downstream go.

        Graph outputs get an inferred shape where it is static, else their rank with unknown dims;
        one that declares nothing static is right as it is, unless its rank changed.
        """
        self._stale.update(values)

    def _redeclare(self) -> None:
        declared: dict[ir.Value, ir.Shape] = {}
        for value in downstream(self.model, self._stale):
            if value.is_graph_output():
                if value.shape is not None:
                    declared[value] = value.shape
                    value.shape = None  # or it would be inferred
            elif value.producer() is not None:
                value.shape = None
        if not declared:
            return
        inferred = infer_outputs(self.model)
        for value, shape in declared.items():
            value.shape = _redeclared(shape, inferred.get(str(value.name)))

    def sweep(self) -> None:
        for graph in reversed(self._graphs()):
            for node in reversed(list(graph)):
                if _unused(node) and not (_named(node) and key(node) in self._dead):
                    detach(node)
        for graph in self._graphs():
            for name, value in list(graph.initializers.items()):
                if _unread(value) and name not in self._idle and not value.is_graph_input():
                    del graph.initializers[name]
        for value in [v for v in self.model.graph.inputs if _unread(v)]:
            if value.name not in self._idle and len(self.model.graph.inputs) > 1:
                self.drop_input(value)

    def drop_input(self, value: ir.Value) -> None:
        """Take a graph input away, with what it was fed and its default."""
        name = str(value.name)
        self.model.graph.inputs.remove(value)
        self.model.graph.initializers.pop(name, None)
        self.inputs.pop(name, None)

    def names(self, without: ir.Graph | None = None) -> set[str]:
        """The names of all values, of bodies too, but for those of one graph."""
        graphs = [graph for graph in self._graphs() if graph is not without]
        held = [v for g in graphs for v in (*g.inputs, *g.initializers.values())]
        held += [value for graph in graphs for node in graph for value in node.outputs]
        return {value.name for value in held if value.name}

    def unused_name(self, wish: str) -> str:
        """`wish`, with a number where that name is taken."""
        taken = self.names()
        number, name = 0, wish
        while name in taken:
            number += 1
            name = f"{wish}_{number}"
        return name

    def holds_initializers(self, graph: ir.Graph) -> bool:
        """Functions hold none, and bodies only from IR version 4 on."""
        if any(graph is function.graph for function in self.model.functions.values()):
            return False
        return graph is self.model.graph or self.model.ir_version >= 4

    def add_initializer(self, value: ir.Value, graph: ir.Graph) -> None:
        """Register an initializer with a graph.

        Raises:
            Conflict: the graph cannot hold one.
        """
        if not self.holds_initializers(graph):
            raise Conflict("the graph holds no initializers")
        graph.register_initializer(value)
        if self.model.ir_version < 4:
            # Up to IR version 3 every initializer is a graph input with a default.
            graph.inputs.append(value)

    def to_initializer(
        self, value: ir.Value, tensor: ir.TensorProtocol, graph: ir.Graph
    ) -> ir.Value:
        """Let an initializer of `graph` take the place, and the name, of a node's output.

        Raises:
            Conflict: the graph cannot hold an initializer.
        """
        if not self.holds_initializers(graph):
            raise Conflict("the graph holds no initializers")
        name = str(value.name)
        made = initializer(name, tensor)
        output = value.is_graph_output()
        producer = value.producer()
        if output and graph is not self.model.graph:
            raise Conflict("a body's output cannot be an initializer")
        if output:
            for index, known in enumerate(graph.outputs):
                if known is value:
                    made.shape = value.shape
                    graph.outputs[index] = made
        replace(value, made)
        value.name = None
        if producer is not None and _unused(producer):
            detach(producer)
        self.add_initializer(made, graph)
        return made


def initializer(name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A value that holds a tensor, to be registered with a graph."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)


def infer_outputs(model: ir.Model) -> dict[str, ir.Shape]:
    """The shapes of graph outputs, as far as they can be inferred without large tensors."""
    proto = encode(model).message()
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except FAILURES:
        return {}
    values = [ir.serde.deserialize_value_info_proto(v, None) for v in proto.graph.output]
    return {str(v.name): v.shape for v in values if v.shape is not None}


def _redeclared(old: ir.Shape, inferred: ir.Shape | None) -> ir.Shape:
    """What a graph output declares when its shape may have changed."""
    static = any(isinstance(dim, int) for dim in old)
    rank = len(old) if inferred is None else len(inferred)
    if not static and rank == len(old):
        return old
    if static and inferred is not None and inferred.is_static():
        return inferred
    return ir.Shape([None] * rank)


def _named(node: ir.Node) -> bool:
    return any(value.name for value in node.outputs)


def _unread(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output()


def _unused(node: ir.Node) -> bool:
    return all(_unread(value) for value in node.outputs)


def detach(node: ir.Node) -> None:
    """Remove a node that nobody reads, with the reads of everything inside its bodies."""
    for _, body in bodies(node):
        for inner in body.all_nodes():
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


def reads(node: ir.Node) -> set[ir.Value]:
    """Every value that a node needs from outside: its inputs and what its bodies capture."""
    inner_nodes = [n for _, body in bodies(node) for n in body.all_nodes()]
    made = {value for n in inner_nodes for value in n.outputs}
    for _, body in bodies(node):
        for graph in (body, *body.subgraphs()):
            made |= {*graph.inputs, *graph.initializers.values()}
    everything = [*node.inputs, *(v for n in inner_nodes for v in n.inputs)]
    return {value for value in everything if value is not None and value not in made}


def downstream(model: ir.Model, values: Collection[ir.Value]) -> set[ir.Value]:
    """Every value that depends on one of `values`, itself included."""
    # A read inside a body also reaches the outputs of the node that holds the body.
    owner = {
        id(body): (node, graph)
        for _, graph in places(model)
        for node in graph
        for _, body in bodies(node)
    }
    seen, todo = set(values), list(values)
    while todo:
        for reader, _ in todo.pop().uses():
            node, graph = reader, reader.graph
            while True:
                fresh = [value for value in node.outputs if value not in seen]
                seen.update(fresh)
                todo += fresh
                if id(graph) not in owner:
                    break
                node, graph = owner[id(graph)]
    return seen
