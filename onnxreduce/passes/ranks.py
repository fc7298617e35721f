"""Drop axes of size one: a bug in a 2-D convolution often shows in a 1-D one, and ``[1, 2, 3]``
reads better than ``[[[[1, 2, 3]]]]``."""

from __future__ import annotations

from onnxreduce.case import Case
from onnxreduce.dims.analysis import analyse
from onnxreduce.dims.ranks import DropAxis
from onnxreduce.edits import Proposals

NAME = "ranks"
RECORDS = True


def edits(case: Case) -> Proposals:
    """Each axis of size one of each stored tensor, inputs first and last axes first."""
    again = True
    while again:
        again = False
        for edit in _axes(case):
            answer = yield edit
            if answer is not None:
                case, again = answer, True
                break


def _axes(case: Case) -> list[DropAxis]:
    analysis = analyse(case)
    roots = sorted(analysis.roots.values(), key=lambda root: root.kind != "input")
    return [
        DropAxis(root.name, at)
        for root in roots
        if root.shape is not None and len(root.shape) > 1
        for at in range(len(root.shape) - 1, -1, -1)
        if root.shape[at] == 1
    ]
