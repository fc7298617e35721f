"""Which nodes a bug is likely to need together: the prior for `search.guess`.

Most bugs that optimisers, converters and kernels have are about one operator, a chain of a few, or
an operator with all that feeds it; the longer, the rarer. And most are about something unusual: a
bug in what a model does everywhere shows at the first place that is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

import onnx_ir as ir

from onnxreduce.graph import Index

LONGEST = 10
"""Chains longer than this are not guessed."""

BRANCHES = 6
"""At most so many chains of one length are guessed for one last node."""

RARER = 0.8
"""How much less likely each further node makes a cluster."""

JOINED = 0.3
"""The weight of taking everything that feeds a node, against taking one path."""

DEPTH = 3
"""How far from a node everything that feeds it is taken."""

UNUSUAL = 8
"""How many times as suspicious a node is that has no like in the model."""


def unusual(known: Index, keys: Sequence[str]) -> dict[str, int]:
    """How suspicious each node is: `UNUSUAL` for one of its kind, 1 for a common one.

    Nodes are alike when operator, attributes and what kind of operator or constant feeds each
    input are the same.
    """
    kinds = {key: _kind(known, key) for key in keys}
    count = Counter(kinds.values())
    return {key: max(1, round(UNUSUAL / count[kinds[key]])) for key in keys}


def _kind(known: Index, key: str) -> Hashable:
    node = known.nodes[key]
    attributes = sorted(
        (name, str(attribute.value))
        for name, attribute in node.attributes.items()
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)
    )
    return node.op_identifier(), tuple(attributes), tuple(_feeder(value) for value in node.inputs)


def _feeder(value: ir.Value | None) -> Hashable:
    if value is None:
        return None
    producer = value.producer()
    if producer is not None:
        return producer.op_identifier()
    return value.is_initializer(), len(value.shape) if value.shape is not None else None


def clusters(
    known: Index, keys: Sequence[str], suspicion: Mapping[str, int]
) -> dict[frozenset[str], float]:
    """Connected groups among some nodes, with weights: as suspicious as their worst node, less
    the larger they are."""
    here = set(keys)
    before = {key: [k for k in known.predecessors(key) if k in here] for key in keys}
    found: dict[frozenset[str], float] = {}

    def add(group: Collection[str], weight: float) -> None:
        cluster = frozenset(group)
        found[cluster] = max(
            found.get(cluster, 0.0), weight * max(suspicion[key] for key in cluster)
        )

    for key in keys:
        for chains in _chains(key, before):
            for chain in chains:
                add(chain, RARER ** (len(chain) - 1) / len(chains))
        ball = {key}
        for _ in range(DEPTH):
            ball |= {k for member in ball for k in before[member]}
            add(ball, JOINED * RARER ** (len(ball) - 1))
    return found


def _chains(key: str, before: dict[str, list[str]]) -> list[list[tuple[str, ...]]]:
    """The chains that end at a node, by their length."""
    level: list[tuple[str, ...]] = [(key,)]
    levels: list[list[tuple[str, ...]]] = []
    while level and len(levels) < LONGEST:
        levels.append(level)
        level = [(*chain, k) for chain in level for k in before[chain[-1]]][:BRANCHES]
    return levels
