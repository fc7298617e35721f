"""The names that an expert would write by hand.

They follow from the structure of a model alone, so that a model that has them has nothing left to
rename: inputs are ``x`` (``x1``, ``x2``, ... when there are more), initializers ``w`` or ``b``,
outputs ``y``; what lies between, and the nodes that have names, are called after the operator in
lower case. The main graph is ``g``, a body is called after its attribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxreduce.tensors import named_bodies

_BIASED = frozenset({"Conv", "ConvTranspose", "Gemm", "BatchNormalization", "LayerNormalization"})


@dataclass
class Names:
    """The plain name of everything that has a name. Graphs of functions have none."""

    values: dict[ir.Value, str] = field(default_factory=dict)
    nodes: dict[ir.Node, str] = field(default_factory=dict)
    graphs: dict[ir.Graph, str] = field(default_factory=dict)


def plain_names(model: ir.Model) -> Names:
    """The names that a model should have."""
    names = Names()
    _name_scope(list(_walk(model.graph, "g")), names, main=model.graph)
    for function in model.functions.values():
        _name_scope(list(_walk(function.graph, "")), names, main=None)
    return names


def _walk(graph: ir.Graph, label: str) -> Iterator[tuple[ir.Graph, str]]:
    """A graph and its bodies, outermost first, with what they are called."""
    yield graph, label
    for node in graph:
        for name, body in named_bodies(node):
            yield from _walk(body, name)


def _name_scope(scope: list[tuple[ir.Graph, str]], names: Names, main: ir.Graph | None) -> None:
    """A body may not hide a name of the graph around it: main graph and bodies share names."""
    wishes = [
        (value, wish)
        for graph, _ in scope
        for value, wish in _wishes(graph, main=main is None or graph is main)
        if value.name
    ]
    numbered = _number([wish for _, wish in wishes])
    names.values.update(zip((value for value, _ in wishes), numbered, strict=True))
    nodes = [node for graph, _ in scope for node in graph if node.name]
    numbered = _number([node.op_type.lower() or "n" for node in nodes])
    names.nodes.update(zip(nodes, numbered, strict=True))
    labelled = [(graph, label) for graph, label in scope if label and graph.name]
    numbered = _number([label for _, label in labelled])
    names.graphs.update(zip((graph for graph, _ in labelled), numbered, strict=True))


def _wishes(graph: ir.Graph, *, main: bool) -> Iterator[tuple[ir.Value, str]]:
    outputs = set(graph.outputs)
    for value in graph.inputs:
        if not value.is_initializer():
            yield value, "x" if main else "s"
    for value in graph.initializers.values():
        yield value, "b" if _is_bias(value) else "w"
    for node in graph:
        for value in node.outputs:
            if value in outputs:
                yield value, "y" if main else "z"
            else:
                yield value, node.op_type.lower() or "v"


def _is_bias(value: ir.Value) -> bool:
    uses = value.uses()
    return bool(uses) and all(node.op_type in _BIASED and index == 2 for node, index in uses)


def _number(wishes: Sequence[str]) -> list[str]:
    """A name for each: its wish, numbered from 1 where several wish the same."""
    counts = Counter(wishes)
    # What stands alone is never numbered, so that no numbered name may take it.
    taken = {wish for wish, count in counts.items() if count == 1}
    last: dict[str, int] = {}
    names = []
    for wish in wishes:
        if counts[wish] == 1:
            names.append(wish)
            continue
        number = last.get(wish, 0) + 1
        while f"{wish}{number}" in taken:
            number += 1
        last[wish] = number
        names.append(f"{wish}{number}")
        taken.add(names[-1])
    return names
