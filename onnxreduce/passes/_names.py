"""Names as an expert writes them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxreduce.passes._draft import Place, places

_BIASED = frozenset({"Conv", "ConvTranspose", "Gemm", "BatchNormalization", "LayerNormalization"})


@dataclass(frozen=True)
class Renaming:
    """A new name for a ``value``, a ``node`` (known by its first output) or a ``graph``."""

    place: Place
    what: str
    old: str
    new: str


def renamings(model: ir.Model) -> list[Renaming]:
    """Shorter names for everything that has a longer one than it needs.

    Inputs are ``x`` (``x1``, ``x2``, ... when there are more), initializers ``w`` or ``b``,
    outputs ``y``; what lies between, and the nodes, are called after the operator in lower case.
    A name that is short enough stays, so a renamed model has nothing left to rename.
    """
    found: list[Renaming] = []
    scopes: dict[str, list[tuple[Place, ir.Graph]]] = {}
    for place, graph in places(model):
        # A body may not hide a name of the graph around it: main graph and bodies share names.
        scopes.setdefault(place[0] if len(place) % 2 else "", []).append((place, graph))
    for scope in scopes.values():
        wishes = [
            (place, value, wish)
            for place, graph in scope
            for value, wish in _wishes(graph, main=not place)
            if value.name
        ]
        names = _allocate([str(v.name) for _, v, _ in wishes], [wish for _, _, wish in wishes])
        for (place, value, _), new in zip(wishes, names, strict=True):
            if new != value.name:
                found.append(Renaming(place, "value", str(value.name), new))
        nodes = [(place, node) for place, graph in scope for node in graph if node.name]
        labels = _allocate(
            [str(n.name) for _, n in nodes], [n.op_type.lower() or "n" for _, n in nodes]
        )
        for (place, node), new in zip(nodes, labels, strict=True):
            if new != node.name:
                first = next((v.name for v in node.outputs if v.name), None)
                if first:
                    found.append(Renaming(place, "node", first, new))
    for place, graph in places(model):
        if graph.name and len(graph.name) > 1 and not len(place) % 2:
            found.append(Renaming(place, "graph", graph.name, "g"))
    return found


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
    uses = list(value.uses())
    return bool(uses) and all(node.op_type in _BIASED and index == 2 for node, index in uses)


def _allocate(old: list[str], wishes: list[str]) -> list[str]:
    """A name for each: its wish, numbered where several wish the same; the old one if shorter."""
    kept: set[str] = set()
    while True:
        names = _number(wishes, kept)
        stay = {o for o, n in zip(old, names, strict=True) if len(o) <= len(n)}
        if stay <= kept:
            return [
                o if o in kept and len(o) <= len(n) else n for o, n in zip(old, names, strict=True)
            ]
        kept |= stay


def _number(wishes: Iterable[str], taken: set[str]) -> list[str]:
    wishes = list(wishes)
    counters: dict[str, int] = {}
    names = []
    for wish in wishes:
        name = wish
        several = wishes.count(wish) > 1
        while several or name in taken or name in names:
            counters[wish] = counters.get(wish, 0) + 1
            name, several = f"{wish}{counters[wish]}", False
        names.append(name)
    return names
