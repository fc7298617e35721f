"""Feed one graph input where there were two of the same type and shape.

Cuts leave an input for every value that was cut; few bugs need them all to differ.
"""

from __future__ import annotations

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.surgery import MergeValues, same_kind

NAME = "inputs"


def edits(case: Case) -> Proposals:
    """Each input is tried in the place of the nearest earlier one that is left."""
    left: list[str] = []
    for name in index(case.model).inputs:
        earlier = next((other for other in reversed(left) if same_kind(case, other, name)), None)
        accepted = (yield MergeValues(earlier, name)) if earlier else None
        if accepted:
            case = accepted
        else:
            left.append(name)
