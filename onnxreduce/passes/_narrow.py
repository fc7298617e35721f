"""From many nodes to few: what the passes that cut share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnxreduce import search
from onnxreduce.graph import Index
from onnxreduce.passes._clusters import clusters, unusual
from onnxreduce.surgery import DeleteNodes, KeepNodes

GUESS = 32
"""Among so many nodes the clusters that a bug may need are enumerated."""


class Cut:
    """Makes edits that keep or delete nodes of a model, constants with their readers.

    Nodes that depend on no graph input (`Constant`, shape computations that were not folded) ride
    along: an operator keeps the constant nodes that it reads, so they are no items of the search.

    Attributes:
        items: the keys of the nodes to search among, in topological order.
        constant: the keys of the others.
    """

    def __init__(self, known: Index) -> None:
        self.known = known
        driven = [key for key in known.order if known.depends_on_input(known.writes[key][0])]
        self.items = driven or list(known.order)
        here = set(self.items)
        self.constant = [key for key in known.order if key not in here]

    def keep(self, keys: Collection[str]) -> KeepNodes:
        riders = set(self.constant).intersection(
            self.known.cone(value for key in keys for value in self.known.reads[key])
            if self.constant
            else ()
        )
        return KeepNodes(tuple(self.known.sort({*keys, *riders})))

    def drop(self, keys: Collection[str]) -> DeleteNodes:
        return DeleteNodes(tuple(self.known.sort(keys)))


def narrow(cut: Cut, items: Sequence[str]) -> search.Strategy[KeepNodes, str]:
    """Finds what is needed among many nodes, guessing first that it is unusual and close
    together."""
    suspicion = unusual(cut.known, items)
    left = yield from search.islands(items, cut.keep, until=GUESS, weights=suspicion)
    if 1 < len(left) <= GUESS and _is_run(items, left):
        left = yield from search.guess(left, cut.keep, clusters(cut.known, left, suspicion))
    return left


def _is_run(items: Sequence[str], some: Sequence[str]) -> bool:
    start = items.index(some[0])
    return list(items[start : start + len(some)]) == list(some)
