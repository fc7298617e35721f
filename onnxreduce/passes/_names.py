"""What stands between a model and the names that an expert would write."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxreduce.naming import plain_names
from onnxreduce.passes._draft import Place, places


@dataclass(frozen=True)
class Renaming:
    """A new name for a ``value``, a ``node`` (known by its first output) or a ``graph``."""

    place: Place
    what: str
    old: str
    new: str


def renamings(model: ir.Model) -> list[Renaming]:
    """A plain name for everything that has another; none for a model that has plain names."""
    plain = plain_names(model)
    found: list[Renaming] = []
    for place, graph in places(model):
        stored = [
            *graph.inputs,
            *(v for v in graph.initializers.values() if not v.is_graph_input()),
        ]
        for value in (*stored, *(v for node in graph for v in node.outputs)):
            new = plain.values.get(value)
            if new is not None and new != value.name:
                found.append(Renaming(place, "value", str(value.name), new))
        for node in graph:
            new = plain.nodes.get(node)
            first = next((v.name for v in node.outputs if v.name), None)
            if new is not None and new != node.name and first:
                found.append(Renaming(place, "node", first, new))
        label = plain.graphs.get(graph)
        if label is not None and label != graph.name:
            found.append(Renaming(place, "graph", str(graph.name), label))
    return found
