"""Keep one graph output with what it depends on, or as few as show the bug.

The cheapest large step there is: models with several heads lose most of themselves, and cuts leave
outputs behind that nobody needs. Inputs that nothing reads go too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxreduce import search
from onnxreduce.case import Case, graphs
from onnxreduce.edits import Conflict, Proposals
from onnxreduce.graph import index
from onnxreduce.passes._draft import Draft, detach
from onnxreduce.surgery import DropInput, KeepOutputs

NAME = "outputs"

FEW = 4
"""Up to this many outputs are tried one by one."""


def edits(case: Case) -> Proposals:
    count = sum(1 for _ in _nameless(case.model))
    if count and not (yield DropNameless(tuple(range(count)))):
        for number in reversed(range(count)):
            yield DropNameless((number,))
    declared = index(case.model).outputs
    outputs = tuple(dict.fromkeys(declared))
    if len(outputs) < len(declared):
        yield KeepOutputs(outputs)

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


@dataclass(frozen=True)
class DropNameless:
    """Delete nodes none of whose outputs has a name.

    Attributes:
        numbers: their places among all such nodes, bodies and functions included.
    """

    numbers: tuple[int, ...]

    def describe(self) -> str:
        return f"delete {len(self.numbers)} nodes without named outputs"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        found = list(_nameless(draft.model))
        if not self.numbers or max(self.numbers) >= len(found):
            raise Conflict("the nodes are gone")
        for number in self.numbers:
            detach(found[number])
        return case.same_values(draft.model, draft.inputs)


def _nameless(model: ir.Model) -> Iterator[ir.Node]:
    for graph in graphs(model):
        for node in graph:
            if not any(value.name for value in node.outputs):
                yield node
