"""Delete chunks of consecutive nodes: what is left when the needed nodes are many or scattered."""

from __future__ import annotations

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import Cut

NAME = "chunks"
RECORDS = True


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    sizes = [size for size in (8, 4, 2) if 2 * size < len(cut.items)]
    if sizes:
        yield from search.chunks(cut.items, cut.drop, sizes, all_at_once=False)
