"""Cut off what comes last: the shortest part from the inputs on that shows the bug.

No value inside the model becomes an input, so this is also for oracles that feed the model
themselves.
"""

from __future__ import annotations

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.surgery import KeepNodes

NAME = "prefix"


def edits(case: Case) -> Proposals:
    """Bisects the topological order: about ``log2 n`` questions.

    A part that is refused is taken to be too short for all shorter ones as well.
    """
    order = index(case.model).order
    short, long = 0, len(order)
    while long - short > 1:
        middle = (short + long) // 2
        if (yield KeepNodes(order[:middle])):
            long = middle
        else:
            short = middle
