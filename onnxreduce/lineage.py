"""Which nodes of the original are left in the result, whatever passes renamed.

Every node of the original carries its key where clones of it keep it and no file shows it.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxreduce.graph import bodies, index
from onnxreduce.tensors import nested

ORIGIN = "onnxreduce.origin"
"""In a node's `meta`: the key of the node of the original's main graph that it comes from."""


def mark(model: ir.Model) -> None:
    """Let every node carry its key; one inside a body that of the node with the body."""
    for name, node in index(model).nodes.items():
        node.meta[ORIGIN] = name
        for body in bodies(node):
            for graph in nested(body):
                for inner in graph:
                    inner.meta[ORIGIN] = name


def mark_again(original: ir.Model, model: ir.Model) -> None:
    """Let the nodes of a model that was read from a file carry the keys that they come from."""
    nodes = index(model).nodes
    for origin, name in survivors(original, model).items():
        nodes[name].meta[ORIGIN] = origin


def survivors(original: ir.Model, reduced: ir.Model) -> dict[str, str]:
    """Keys of nodes of the original that are left, with the key that each has in the result.

    Where nodes carry no mark, those count that have the same operator and name.
    """
    known = index(original).nodes
    found: dict[str, str] = {}
    for name, node in index(reduced).nodes.items():
        origin = node.meta.get(ORIGIN)
        if origin is None and name in known and known[name].op_type == node.op_type:
            origin = name
        if origin in known:
            found.setdefault(origin, name)
    return found
