"""Let the readers of a region's exit read its entry instead, large regions first.

A single-entry single-exit region whose exit has the type and shape of its entry (a residual block,
a chain of activations) can be taken out with nothing to feed. This is the coarse step where values
inside the model must not become inputs, and where a bug dies at any cut.
"""

from __future__ import annotations

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.surgery import BypassRegion, same_kind

NAME = "regions"
RECORDS = True


def edits(case: Case) -> Proposals:
    for region in index(case.model).regions():
        known = index(case.model)
        if known.producer(region.exit) is None or not same_kind(case, region.entry, region.exit):
            continue
        case = (yield BypassRegion(region.entry, region.exit)) or case
