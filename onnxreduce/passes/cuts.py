"""Cut the few nodes that the bug needs out of the model, and feed them recorded values.

With recorded inputs every kept node computes exactly what it computed before, so any set of nodes
that holds what the bug needs shows it, wherever it is cut out. The search guesses that the needed
nodes are close together (a run in topological order first, then a connected cluster in it), which
takes about as many questions as it takes bits to say which nodes they are; then, that there are a
few such places with nothing between them.
"""

from __future__ import annotations

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import Cut, narrow

NAME = "cuts"
RECORDS = True


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    yield from narrow(cut, cut.items)
    if cut.constant:
        yield cut.drop(cut.constant)
