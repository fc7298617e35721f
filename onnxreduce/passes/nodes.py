"""Delete each node, recorded values taking its place: 1-minimality, node by node."""

from __future__ import annotations

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import Cut

NAME = "nodes"
RECORDS = True


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    if cut.constant:
        yield from search.halving(cut.constant, cut.drop)
    yield from search.to_fixpoint(cut.items, cut.drop, all_at_once=False)
