"""Look first where something is suspected: around values or nodes that were named.

Names come from outside: an error message, the place where two backends first disagree, the nodes
that an optimiser rewrote. They may be wrong, so a suspect costs a few questions at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import Index, index
from onnxreduce.passes._narrow import Cut, narrow

NAME = "suspects"
RECORDS = True

BALLS = (2, 4, 8, 16)
"""How many nodes around a suspect are kept, in turn."""

MOST = 4
"""Suspects beyond this many are not looked at one by one."""

Suspects = Callable[[Case], Sequence[str]]
"""Names of values or nodes to look at first, the likeliest first."""


def around(suspects: Suspects) -> Callable[[Case], Proposals]:
    """The pass that looks around what `suspects` names."""

    def edits(case: Case) -> Proposals:
        cut = Cut(index(case.model))
        keys = resolve(cut.known, suspects(case))
        left = yield from search.nearest(_rings(cut, keys), cut.keep)
        if len(left) > BALLS[0]:
            yield from narrow(cut, cut.known.sort(left))

    return edits


def resolve(known: Index, names: Sequence[str]) -> list[str]:
    """The keys of the nodes that make the named values, or that bear the names; others are
    passed over."""
    by_name = {node.name: key for key, node in known.nodes.items() if node.name}
    found: list[str] = []
    for name in names:
        key = known.producer(name) or by_name.get(name)
        found.extend(known.readers(name) if key is None else [key])
    return list(dict.fromkeys(found))


def _rings(cut: Cut, keys: Sequence[str]) -> Iterator[frozenset[str]]:
    """The region between the suspects if there are several, then growing balls around each."""
    items = set(cut.items)
    everything = len(items)
    if len(keys) > 1:
        yield _smaller(_between(cut.known, keys) & items, everything)
    for key in keys[:MOST]:
        near = list(islice((k for k in cut.known.nearest(key) if k in items), BALLS[-1]))
        for count in BALLS:
            yield _smaller(near[:count], everything)


def _between(known: Index, keys: Sequence[str]) -> set[str]:
    """The suspects and what lies on paths from one to another."""
    below = {k for key in keys for k in known.descendants(key)}
    above = {k for key in keys for k in known.ancestors(key)}
    return (below & above) | set(keys)


def _smaller(keys: set[str] | list[str], everything: int) -> frozenset[str]:
    """As a set; empty, so not asked about, when it is all there is."""
    return frozenset(keys) if len(keys) < everything else frozenset()
