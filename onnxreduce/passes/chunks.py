"""Delete chunks of consecutive nodes: what is left when the needed nodes are many or scattered."""

from __future__ import annotations

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import Cut

NAME = "chunks"
RECORDS = True


MANY = 24
"""Beyond this many nodes, halves and quarters come before the small chunks."""


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    left = cut.items
    if len(left) > MANY:
        left = yield from search.halving(left, cut.drop, smallest=8, all_at_once=False)
    sizes = [size for size in (4, 2) if 2 * size < len(left)]
    if sizes:
        yield from search.chunks(left, cut.drop, sizes, all_at_once=False)
