"""Operators whose sizes depend on values, or that describe what they read beyond shapes: their
inputs keep their axes. Each has its reason here."""

from __future__ import annotations

from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Frozen, Site

REASONS = {
    "SequenceMap": "its body declares the axes it reads",
    "SplitToSequence": "a sequence has no axes here",
    "StringSplit": "the length of the longest list depends on values",
    "TfIdfVectorizer": "its attributes describe the input",
}


@rule(*REASONS)
def frozen(n: Site) -> None:
    raise Frozen(REASONS[n.op_type])
