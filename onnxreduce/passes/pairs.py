"""Delete two neighbouring nodes at once, where no node can go alone.

An oracle may have no answer, or a model no meaning, with one of two nodes left (an odd number of
transposes, say). Asked at the end of a round only, and about nodes next to each other in order:
for few nodes that is about one question each.
"""

from __future__ import annotations

from itertools import pairwise

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import Cut

NAME = "pairs"
RECORDS = True


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    left = list(cut.items)
    for pair in reversed(list(pairwise(cut.items))):
        if len(left) > 2 and set(pair) <= set(left) and (yield cut.drop(pair)):
            left = [key for key in left if key not in pair]
