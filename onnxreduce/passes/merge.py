"""Let the readers of one value read another that an equal operator makes.

A bug that needs two operands rarely needs two different ones: a Concat of two Relus becomes a
Concat of one Relu with itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import Index, index
from onnxreduce.surgery import MergeValues, equal_operators, same_kind

NAME = "merge"
RECORDS = True


def edits(case: Case) -> Proposals:
    known = index(case.model)
    gone: set[str] = set()
    for keep, drop in _made(known):
        if keep not in gone and drop not in gone and same_kind(case, keep, drop):
            accepted = yield MergeValues(keep, drop)
            if accepted:
                case = accepted
                gone.add(drop)


def _made(known: Index) -> Iterator[tuple[str, str]]:
    """Outputs of equal operators, in pairs, the later one to be dropped; last ones first."""
    groups: dict[Hashable, list[str]] = {}
    for key in known.order:
        groups.setdefault(known.nodes[key].op_identifier(), []).append(key)
    for group in reversed(groups.values()):
        yield from _equal_pairs(known, group)


def _equal_pairs(known: Index, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    for early, late in combinations(keys, 2):
        if equal_operators(known.nodes[early], known.nodes[late]):
            yield from zip(known.writes[early], known.writes[late], strict=False)
