"""An index over a model's main graph: who makes and reads what, and where it falls apart.

The index holds names, never changes the model, and costs one pass over it; whatever needs a
graph algorithm is worked out when it is first asked for. It is kept per model (`index`), because
a case is asked about many times between two accepted edits.

A node that contains subgraphs reads everything that its bodies capture from the main graph.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import onnx_ir as ir

from onnxreduce.tensors import named_bodies

Vertex = tuple[str, str]
"""``("node", key)`` or ``("value", name)``."""

SOURCE: Vertex = ("end", "inputs")
SINK: Vertex = ("end", "outputs")

RANDOM = frozenset({"Bernoulli", "Multinomial", "Dropout"})
"""Operators that draw numbers, besides those called Random...; Dropout does so in training."""


@dataclass(frozen=True)
class Region:
    """A part with a single entry and a single exit.

    Attributes:
        entry: the value through which all data flows in.
        exit: the value through which all of it flows out.
        size: how many nodes lie between in topological order.
    """

    entry: str
    exit: str
    size: int


def index(model: ir.Model) -> Index:
    """The index of a model; made once."""
    known = _indexes.get(model)
    if known is None:
        known = _indexes[model] = Index(model)
    return known


class Index:
    """Names of nodes (by key, see `edits.key`) and values of a main graph, and how they hang
    together.

    Attributes:
        order: node keys, topologically sorted; the model's own order where that is sorted.
        nodes: the node of a key.
        reads, writes: names of the values that a node reads (captures too) and makes.
        inputs: graph inputs that need a value: not those with an initializer.
        outputs: graph outputs.
        initializers: values with a constant in the graph, and their places.
        undeclared: values that are read but defined nowhere (the model is invalid).
    """

    def __init__(self, model: ir.Model) -> None:
        graph = model.graph
        self.initializers = {name: place for place, name in enumerate(graph.initializers)}
        self.inputs = tuple(
            value.name for value in graph.inputs if value.name and not value.is_initializer()
        )
        self.outputs = tuple(value.name or "" for value in graph.outputs)
        self.nodes: dict[str, ir.Node] = {}
        self.reads: dict[str, tuple[str, ...]] = {}
        self.writes: dict[str, tuple[str, ...]] = {}
        self.undeclared: dict[str, ir.Value] = {}
        self._producer: dict[str, str] = {}
        self._readers: dict[str, list[str]] = {}
        random_functions = _random_functions(model)
        self._random = set()
        for node in graph:
            made = tuple(value.name for value in node.outputs if value.name)
            if not made:
                continue  # nothing can depend on it, and no edit can name it
            name = made[0]
            self.nodes[name] = node
            self.writes[name] = made
            read = used_values(node, graph)
            self.reads[name] = tuple(dict.fromkeys(value.name for value in read if value.name))
            self._producer.update(dict.fromkeys(made, name))
            self.undeclared |= {v.name: v for v in read if v.graph is None and v.name}
            if draws(node, random_functions):
                self._random.add(name)
        for name, read_names in self.reads.items():
            for value in read_names:
                self._readers.setdefault(value, []).append(name)
        self.order = tuple(self._sorted())
        self.position = {name: number for number, name in enumerate(self.order)}

    # -- who makes and reads what

    def producer(self, value: str) -> str | None:
        """The key of the node that makes a value; None for inputs and initializers."""
        return self._producer.get(value)

    def readers(self, value: str) -> tuple[str, ...]:
        """The keys of the nodes that read a value, themselves or inside their bodies."""
        return tuple(self._readers.get(value, ()))

    def predecessors(self, key: str) -> tuple[str, ...]:
        made_by = (self._producer.get(value) for value in self.reads[key])
        return tuple(dict.fromkeys(name for name in made_by if name))

    def successors(self, key: str) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                reader for value in self.writes[key] for reader in self._readers.get(value, ())
            )
        )

    def neighbours(self, key: str) -> tuple[str, ...]:
        """The nodes one value away, those before first."""
        return tuple(dict.fromkeys(self.predecessors(key) + self.successors(key)))

    def nearest(self, key: str) -> Iterator[str]:
        """All nodes connected with one, itself first, nearest first, ancestors first."""
        seen = {key}
        waiting = deque([key])
        while waiting:
            current = waiting.popleft()
            yield current
            for name in self.neighbours(current):
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)

    def ancestors(self, key: str) -> set[str]:
        """The nodes that a node depends on, without itself."""
        return self.cone(self.reads[key])

    def descendants(self, key: str) -> set[str]:
        """The nodes that depend on a node, without itself."""
        return self.dependents(self.writes[key])

    def cone(self, values: Iterable[str]) -> set[str]:
        """The nodes that values depend on, their producers included."""
        found: set[str] = set()
        waiting = list(values)
        while waiting:
            name = self._producer.get(waiting.pop())
            if name and name not in found:
                found.add(name)
                waiting.extend(self.reads[name])
        return found

    def dependents(self, values: Iterable[str]) -> set[str]:
        """The nodes that depend on values, their readers included."""
        found: set[str] = set()
        waiting = list(values)
        while waiting:
            for name in self._readers.get(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.extend(self.writes[name])
        return found

    def sort(self, keys: Iterable[str]) -> list[str]:
        """Keys in topological order, without those that this graph does not have."""
        return sorted({key for key in keys if key in self.nodes}, key=self.position.__getitem__)

    def depends_on_input(self, value: str) -> bool:
        """Whether a value changes with the graph inputs, or is drawn at random."""
        made_by = self._producer.get(value)
        if made_by is None:
            return value not in self.initializers
        return made_by in self._driven

    @cached_property
    def live(self) -> frozenset[str]:
        """The nodes that a graph output depends on."""
        return frozenset(self.cone(self.outputs))

    @cached_property
    def _driven(self) -> set[str]:
        """Nodes that depend on graph inputs or draw numbers."""
        return (
            self.dependents([*self.inputs, *self.undeclared])
            | self.dependents(value for name in self._random for value in self.writes[name])
            | self._random
        )

    # -- where the graph falls apart

    def cuts(self) -> list[str]:
        """Values through which all data flows from the graph inputs to the outputs, in order.

        These are the dominators of the outputs: found in one sweep, because in any topological
        order a cut is the only value alive right after it was made.
        """
        return [value for _, value in self._cut_points]

    def segments(self) -> list[list[str]]:
        """All nodes, split at the one-value cuts, in order.

        Nodes that depend on no input go with their first reader; nodes that no output depends on
        stay where the order has them.
        """
        ends = [position for position, _ in self._cut_points]
        segment: dict[str, int] = {}
        number = len(ends)
        for position in range(len(self.order) - 1, -1, -1):
            name = self.order[position]
            while number and ends[number - 1] >= position:
                number -= 1
            segment[name] = number
            if name in self.live and name not in self._driven:
                segment[name] = min(
                    (segment[reader] for reader in self.successors(name)), default=number
                )
        groups: list[list[str]] = [[] for _ in range(len(ends) + 1)]
        for name in self.order:
            groups[segment[name]].append(name)
        return [group for group in groups if group]

    @cached_property
    def _cut_points(self) -> list[tuple[int, str]]:
        outputs = set(self.outputs)
        flowing = self._driven & self.live
        left = {
            value: sum(reader in flowing for reader in self._readers.get(value, ()))
            for value in self._data_values(flowing)
        }
        alive = {
            value for value in left
            if value not in self._producer and (left[value] or value in outputs)
        }  # fmt: skip
        found = []
        for position, name in enumerate(self.order):
            if name not in flowing:
                continue
            for value in self.reads[name]:
                if value in left:
                    left[value] -= 1
                    if not left[value] and value not in outputs:
                        alive.discard(value)
            made = [value for value in self.writes[name] if left[value] or value in outputs]
            alive.update(made)
            if len(alive) == 1 and len(made) == 1 and made[0] in alive:
                found.append((position, made[0]))
        return found

    def chains(self) -> list[list[str]]:
        """Maximal chains of values in which every two enclose a single-entry single-exit region.

        Two values belong to one chain when one dominates the other and is post-dominated by it
        (Johnson, Pearson & Pingali, "The program structure tree", PLDI 1994, for vertices of a
        DAG). Neighbours in a chain are each other's immediate (post-)dominators among values.
        Longest first.
        """
        before = self._nearest_value(nx.immediate_dominators(self._flow, SOURCE))
        after = self._nearest_value(nx.immediate_dominators(self._flow.reverse(copy=False), SINK))
        following = {
            first: second for first, second in after.items() if before.get(second) == first
        }
        starts = set(following) - set(following.values())
        chains = []
        for start in sorted(starts, key=self._made_at):
            chain = [start]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            chains.append(chain)
        return sorted(chains, key=lambda chain: self._made_at(chain[0]) - self._made_at(chain[-1]))

    def regions(self) -> list[Region]:
        """Single-entry single-exit regions, largest first.

        Of each chain: the whole, its halves, their halves, down to single links, so that their
        number stays linear.
        """
        found: dict[tuple[str, str], Region] = {}
        for chain in self.chains():
            step = len(chain) - 1
            while step:
                for first in range(0, len(chain) - 1, step):
                    entry, end = chain[first], chain[min(first + step, len(chain) - 1)]
                    size = self._made_at(end) - self._made_at(entry)
                    found[entry, end] = Region(entry, end, size)
                step //= 2
        return sorted(found.values(), key=lambda region: -region.size)

    @cached_property
    def digraph(self) -> nx.DiGraph[Vertex]:
        """All nodes and values; an edge goes the way the data goes."""
        return self._build(self.order)

    @cached_property
    def _flow(self) -> nx.DiGraph[Vertex]:
        """The part between inputs and outputs that carries data, with one source and one sink."""
        flowing = self._driven & self.live
        graph = self._build(name for name in self.order if name in flowing)
        data = self._data_values(flowing)
        graph.remove_nodes_from([v for v in graph if v[0] == "value" and v[1] not in data])
        for name in flowing:
            if not graph.in_degree(("node", name)):
                graph.add_edge(SOURCE, ("node", name))
        for value in data:
            vertex = ("value", value)
            if value not in self._producer and vertex in graph:
                graph.add_edge(SOURCE, vertex)
        graph.add_nodes_from((SOURCE, SINK))
        graph.add_edges_from((("value", v), SINK) for v in self.outputs if ("value", v) in graph)
        unused = [v for v in graph if v[0] == "value" and not graph.out_degree(v)]
        graph.remove_nodes_from(unused)
        return graph

    def _build(self, keys: Iterable[str]) -> nx.DiGraph[Vertex]:
        graph: nx.DiGraph[Vertex] = nx.DiGraph()
        for name in keys:
            node = ("node", name)
            graph.add_node(node)
            graph.add_edges_from((("value", value), node) for value in self.reads[name])
            graph.add_edges_from((node, ("value", value)) for value in self.writes[name])
        return graph

    def _data_values(self, flowing: Collection[str]) -> set[str]:
        values = {value for name in flowing for value in self.writes[name]}
        read = (value for name in flowing for value in self.reads[name])
        return values.union(value for value in read if self.depends_on_input(value))

    def _made_at(self, value: str) -> int:
        made_by = self._producer.get(value)
        return -1 if made_by is None else self.position[made_by]

    def _nearest_value(self, immediate: dict[Vertex, Vertex]) -> dict[str, str]:
        """For each value the next (post-)dominator that is a value."""
        nearest: dict[str, str] = {}
        for vertex in immediate:
            if vertex[0] != "value":
                continue
            current = immediate[vertex]
            while current[0] == "node":
                current = immediate[current]
            if current[0] == "value":
                nearest[vertex[1]] = current[1]
        return nearest

    def _sorted(self) -> list[str]:
        """The model's own order if it is sorted, else the nearest sorted one; cycles last."""
        place = {name: number for number, name in enumerate(self.nodes)}
        missing = {name: len(self.predecessors(name)) for name in place}
        ready = [(place[name], name) for name, count in missing.items() if not count]
        heapq.heapify(ready)
        found: list[str] = []
        while ready:
            _, name = heapq.heappop(ready)
            found.append(name)
            for reader in self.successors(name):
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(ready, (place[reader], reader))
        if len(found) < len(place):
            known = set(found)
            found.extend(name for name in place if name not in known)
        return found


def used_values(node: ir.Node, graph: ir.Graph) -> list[ir.Value]:
    """What a node of `graph` reads: its inputs, then what its bodies capture from `graph`.

    Values that are defined nowhere are among them.
    """
    values = [value for value in node.inputs if value is not None]
    for body in bodies(node):
        for inner in ir.traversal.RecursiveGraphIterator(body):
            for value in inner.inputs:
                if value is not None and (value.graph is graph or value.graph is None):
                    values.append(value)
    return values


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs in a node's attributes, the outermost only."""
    return [body for _, body in named_bodies(node)]


def draws(node: ir.Node, functions: Collection[Any] = ()) -> bool:
    """Whether a node's result is drawn at random, in a body or a function too."""
    if node.op_type.startswith("Random") or node.op_type in RANDOM:
        return True
    if node.op_identifier() in functions:
        return True
    return any(
        draws(inner, functions)
        for body in bodies(node)
        for inner in ir.traversal.RecursiveGraphIterator(body)
    )


def _random_functions(model: ir.Model) -> set[Any]:
    """The local functions in which numbers are drawn; functions may call each other."""
    found: set[Any] = set()
    while True:
        more = {
            identifier
            for identifier, function in model.functions.items()
            if identifier not in found and any(draws(node, found) for node in function)
        }
        if not more:
            return found
        found |= more


_indexes: weakref.WeakKeyDictionary[ir.Model, Index] = weakref.WeakKeyDictionary()
