"""Cut the few nodes that the bug needs out of the model, and feed them recorded values.

With recorded inputs every kept node computes exactly what it computed before, so any set of nodes
that holds what the bug needs shows it, wherever it is cut out. The search guesses that the needed
nodes are close together (a run in topological order first, then a connected cluster in it), which
takes about as many questions as it takes bits to say which nodes they are; then, that there are a
few such places with nothing between them; and sweeps with halves, quarters and eighths at last.
"""

from __future__ import annotations

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.passes._narrow import GUESS, Cut, narrow

NAME = "cuts"
RECORDS = True

COARSE = 8
"""Sweeps end at this part of what is left: many refusals mean a bug that dies at any cut."""


def edits(case: Case) -> Proposals:
    cut = Cut(index(case.model))
    left = yield from narrow(cut, cut.items)
    if len(left) > GUESS:
        smallest = max(4, len(left) // COARSE)
        yield from search.halving(left, cut.drop, smallest=smallest, all_at_once=False)
    if cut.constant:
        yield cut.drop(cut.constant)
