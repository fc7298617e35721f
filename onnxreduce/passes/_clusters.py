"""Which nodes a bug is likely to need together: the prior for `search.guess`.

Most bugs that optimisers, converters and kernels have are about one operator, a chain of a few, or
an operator with all that feeds it; the longer, the rarer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


def clusters(known: Index, keys: Sequence[str]) -> dict[frozenset[str], float]:
    """Connected groups among some nodes, with weights: single nodes 1, others less."""
    here = set(keys)
    before = {key: [k for k in known.predecessors(key) if k in here] for key in keys}
    found: dict[frozenset[str], float] = {}

    def add(group: Collection[str], weight: float) -> None:
        cluster = frozenset(group)
        found[cluster] = max(found.get(cluster, 0.0), weight)

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
