"""Keep one graph output with what it depends on, or as few as show the bug.

The cheapest large step there is: models with several heads lose most of themselves, and cuts leave
outputs behind that nobody needs. Inputs that nothing reads go too.
"""

from __future__ import annotations

from onnxreduce import search
from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import index
from onnxreduce.surgery import DropInput, KeepOutputs

NAME = "outputs"

FEW = 4
"""Up to this many outputs are tried one by one."""


def edits(case: Case) -> Proposals:
    outputs = index(case.model).outputs

    def keep(some: frozenset[str]) -> KeepOutputs:
        return KeepOutputs(tuple(name for name in outputs if name in some))

    if len(outputs) > FEW:
        left = yield from search.islands(outputs, keep)
    else:
        alone = [frozenset([name]) for name in reversed(outputs)]
        left = yield from search.nearest(alone if len(outputs) > 1 else [], keep)
    yield from _without_each(left or list(outputs))
    known = index(case.model)
    for name in known.inputs:
        if not known.readers(name):
            yield DropInput(name)


def _without_each(outputs: list[str]) -> Proposals:
    left = list(outputs)
    for name in reversed(outputs):
        rest = tuple(other for other in left if other != name)
        if rest and (yield KeepOutputs(rest)):
            left.remove(name)
