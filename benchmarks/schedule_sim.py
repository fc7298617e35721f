"""How many questions the search needs, on real graph shapes with planted needs.

A candidate is a set of nodes; it is interesting when it holds the planted ones. Printed for every
strategy: mean questions until only the planted nodes are left / until that is proven 1-minimal.

    python benchmarks/schedule_sim.py [samples]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import helper as h

from onnxreduce import search
from onnxreduce.graph import Index, index
from onnxreduce.passes._narrow import GUESS, Cut, narrow

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = ("inception_v1", "resnet50", "squeezenet", "shufflenet")

Nodes = frozenset[str]


class Oracle:
    """Answers questions about sets of nodes; repeats and larger sets are free, as in the engine."""

    def __init__(self, known: Index, needed: Nodes) -> None:
        self.known, self.needed = known, needed
        self.current = frozenset(Cut(known).items)
        self.calls = 0
        self.calls_to_minimum = 0
        self._asked: set[Nodes] = set()

    def ask(self, nodes: Nodes) -> bool:
        if not nodes or nodes >= self.current or nodes in self._asked:
            return False
        self._asked.add(nodes)
        self.calls += 1
        if not self.needed <= nodes:
            return False
        self.current = nodes
        if nodes == self.needed:
            self.calls_to_minimum = self.calls
        return True

    def sorted(self) -> list[str]:
        return self.known.sort(self.current)

    def drop(self, nodes: Nodes) -> Nodes:
        return self.current - nodes

    def run(self, strategy: search.Strategy[Nodes, str]) -> list[str]:
        answer = None
        while True:
            try:
                question = strategy.send(answer)
            except StopIteration as stop:
                return list(stop.value)
            answer = True if self.ask(frozenset(question)) else None

    def prove(self) -> None:
        self.run(search.to_fixpoint(self.sorted(), self.drop))


class _Keep(Cut):
    """Questions as plain sets."""

    def keep(self, keys: frozenset[str]) -> Nodes:  # type: ignore[override]
        return keys


def ours(oracle: Oracle) -> None:
    cut = _Keep(oracle.known)
    left = oracle.run(narrow(cut, cut.items))  # type: ignore[arg-type]
    if len(left) > GUESS:
        smallest = max(4, len(left) // 8)
        left = oracle.run(search.halving(left, oracle.drop, smallest=smallest))
    if len(left) > 12:
        oracle.run(search.chunks(left, oracle.drop, (8, 4, 2)))


def halving(oracle: Oracle) -> None:
    oracle.run(search.halving(oracle.sorted(), oracle.drop))


def ddmin(oracle: Oracle) -> None:
    """Zeller & Hildebrandt, TSE 2002: subsets, then complements, then twice as many parts."""
    parts = 2
    while len(nodes := oracle.sorted()) > 1:
        size = max(1, len(nodes) // parts)
        subsets = [frozenset(nodes[k : k + size]) for k in range(0, len(nodes), size)]
        if any(oracle.ask(subset) for subset in subsets):
            parts = 2
        elif any(oracle.ask(oracle.current - subset) for subset in subsets):
            parts = max(parts - 1, 2)
        elif size == 1:
            return
        else:
            parts = min(len(nodes), 2 * parts)


def probdd(oracle: Oracle) -> None:
    """Wang et al., ESEC/FSE 2021: independent chances, the subset of the largest expected gain."""
    needed = dict.fromkeys(oracle.sorted(), 0.1)
    while live := sorted((n for n in oracle.sorted() if needed[n] < 1), key=needed.__getitem__):
        gains = []
        chance = 1.0
        for count, node in enumerate(live, 1):
            chance *= 1 - needed[node]
            gains.append((chance * count, count))
        chosen = live[: max(gains)[1]]
        if oracle.ask(oracle.current - frozenset(chosen)):
            continue
        some = 1 - math.prod(1 - needed[node] for node in chosen)
        for node in chosen:
            needed[node] = 1.0 if len(chosen) == 1 else min(1.0, needed[node] / some)


def bisection(oracle: Oracle) -> None:
    """As Polygraphy's `debug reduce --mode=bisect`: the end, then the beginning."""
    for from_start in (True, False):
        nodes = oracle.sorted()
        short, long = 0, len(nodes)
        while long - short > 1:
            middle = (short + long) // 2
            part = nodes[:middle] if from_start else nodes[len(nodes) - middle :]
            if oracle.ask(frozenset(part)):
                long = middle
            else:
                short = middle


STRATEGIES: dict[str, Callable[[Oracle], None]] = {
    "onnxreduce": ours,
    "halving": halving,
    "ddmin": ddmin,
    "probdd": probdd,
    "bisection": bisection,
}


def transformer(layers: int = 6) -> onnx.ModelProto:
    """The shape of an encoder with decomposed attention and GELU."""
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, *inputs: str) -> str:
        nodes.append(h.make_node(kind, inputs, [f"v{len(nodes)}"]))
        return nodes[-1].output[0]

    def linear(value: str) -> str:
        return op("Add", op("MatMul", value, "w"), "w")

    top = op("Add", op("Gather", "w", "x"), "w")
    for _ in range(layers):
        normed = op("LayerNormalization", top, "w")
        query, key, value = (op("Transpose", op("Reshape", linear(normed), "w")) for _ in range(3))
        weights = op("Softmax", op("Mul", op("MatMul", query, key), "w"))
        joined = op("Reshape", op("Transpose", op("MatMul", weights, value)), "w")
        top = op("Add", top, linear(joined))
        wide = linear(op("LayerNormalization", top, "w"))
        gate = op("Add", op("Erf", op("Div", wide, "w")), "w")
        top = op("Add", top, linear(op("Mul", op("Mul", wide, gate), "w")))
    top = op("Identity", op("MatMul", op("LayerNormalization", top, "w"), "w"))
    return _model(nodes, top)


def residual(blocks: int = 14) -> onnx.ModelProto:
    """The shape of a residual network."""
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, *inputs: str) -> str:
        nodes.append(h.make_node(kind, inputs, [f"v{len(nodes)}"]))
        return nodes[-1].output[0]

    def conv(value: str) -> str:
        return op("BatchNormalization", op("Conv", value, "w"), "w")

    top = op("Relu", conv("x"))
    for number in range(blocks):
        inner = conv(op("Relu", conv(top)))
        skip = conv(top) if number in (4, 9) else top
        top = op("Mul", op("Relu", op("Add", inner, skip)), "w")
    return _model(nodes, op("Gemm", op("Flatten", op("GlobalAveragePool", top)), "w", "w"))


def _model(nodes: list[onnx.NodeProto], output: str) -> onnx.ModelProto:
    def plain(name: str) -> onnx.ValueInfoProto:
        return h.make_tensor_value_info(name, 1, None)

    weight = h.make_tensor("w", 1, [1], [1.0])
    return h.make_model(h.make_graph(nodes, "g", [plain("x")], [plain(output)], [weight]))


def shapes() -> dict[str, Index]:
    models = {name: onnx.load(LIGHT / f"light_{name}.onnx") for name in NAMES}
    models |= {"transformer": transformer(), "residual": residual()}
    return {name: index(ir.from_proto(model)) for name, model in models.items()}


def _before(known: Index, key: str) -> list[str]:
    return [k for k in known.predecessors(key) if known.depends_on_input(known.writes[k][0])]


def _line(known: Index, items: list[str], length: int, rng: random.Random) -> Nodes:
    while True:
        chain = [rng.choice(items)]
        while len(chain) < length and _before(known, chain[-1]):
            chain.append(rng.choice(_before(known, chain[-1])))
        if len(chain) == length:
            return frozenset(chain)


def _join(known: Index, items: list[str], rng: random.Random) -> Nodes:
    """A node that joins branches, with one of them: Concat, Relu, Conv, MaxPool."""
    joins = [key for key in items if len(_before(known, key)) > 1]
    last = rng.choice(joins)
    group = [last]
    while len(group) < 4 and _before(known, group[-1]):
        group.append(rng.choice(_before(known, group[-1])))
    return frozenset(group)


def _unusual(known: Index, items: list[str], rng: random.Random) -> Nodes:
    """An operator chosen by its kind and not by how often it is there."""
    kinds = sorted({known.nodes[key].op_type for key in items})
    kind = rng.choice(kinds)
    return frozenset([rng.choice([k for k in items if known.nodes[k].op_type == kind])])


PLANTS: dict[str, Callable[[Index, list[str], random.Random], Nodes]] = {
    "one node": lambda known, items, rng: _line(known, items, 1, rng),
    "by kind": _unusual,
    "chain of 2": lambda known, items, rng: _line(known, items, 2, rng),
    "chain of 4": lambda known, items, rng: _line(known, items, 4, rng),
    "chain of 9": lambda known, items, rng: _line(known, items, 9, rng),
    "join": _join,
    "two apart": lambda known, items, rng: frozenset(rng.sample(items, 2)),
    "three apart": lambda known, items, rng: frozenset(rng.sample(items, 3)),
    "path": lambda known, items, rng: known_path(known, rng.choice(items)),
}


def known_path(known: Index, key: str) -> Nodes:
    """From the inputs to a node: a property that dies at any cut (no bypass here)."""
    path = [key]
    while before := _before(known, path[-1]):
        path.append(min(before, key=known.position.__getitem__))
    return frozenset(path)


def measure(samples: int) -> Iterator[tuple[str, str, float, float]]:
    indexes = shapes()
    for plant, make in PLANTS.items():
        for strategy, search_with in STRATEGIES.items():
            found, proven, count = 0, 0, 0
            for shape, known in indexes.items():
                rng = random.Random(f"{plant}/{shape}")
                items = Cut(known).items
                for _ in range(samples):
                    oracle = Oracle(known, make(known, items, rng))
                    search_with(oracle)
                    oracle.prove()
                    assert oracle.current == oracle.needed
                    found += oracle.calls_to_minimum
                    proven += oracle.calls
                    count += 1
            yield plant, strategy, found / count, proven / count


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'needed':12}" + "".join(f"{name:>16}" for name in STRATEGIES))
    row: list[str] = []
    for plant, _, found, proven in measure(samples):
        row.append(f"{found:6.1f} / {proven:5.1f}")
        if len(row) == len(STRATEGIES):
            print(f"{plant:12}" + "".join(f"{cell:>16}" for cell in row), flush=True)
            row = []


if __name__ == "__main__":
    main()
