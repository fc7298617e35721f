"""One operand where there were several alike: inputs of one shape, initializers of one content.

Merging inputs is tried before dims too (pass `inputs`), but most values get the same shape only
when axes have shrunk, and the same numbers only when values have become plain. It comes before
inputs are made constant: then it is the input that is fed which takes the place of the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.passes._draft import listing
from onnxreduce.passes._groups import follow, groups
from onnxreduce.surgery import MergeValues

NAME = "operands"

Pair = tuple[str, str]
"""What stays, and what its readers read before."""

LARGE = 1 << 20
"""Initializers of more elements are not compared: shrinking them comes first."""


def edits(case: Case) -> Proposals:
    case = yield from follow(case, groups(_pairs(_inputs(case)), Merge))
    yield from groups(_pairs(_initializers(case)), Merge)


@dataclass(frozen=True)
class Merge:
    """Let readers of some inputs or initializers read others, of the same type and shape."""

    pairs: tuple[Pair, ...]

    def describe(self) -> str:
        kept = list(dict.fromkeys(keep for keep, _ in self.pairs))
        return f"merge {listing([drop for _, drop in self.pairs])} into {listing(kept)}"

    def apply(self, case: Case) -> Case:
        for keep, drop in self.pairs:
            case = MergeValues(keep, drop).apply(case)
        return case


def _pairs(kinds: Iterable[tuple[str, Hashable]]) -> list[Pair]:
    """Each name with the first of its kind."""
    first: dict[Hashable, str] = {}
    return [(first[kind], name) for name, kind in kinds if first.setdefault(kind, name) != name]


def _inputs(case: Case) -> list[tuple[str, Hashable]]:
    return [
        (name, (str(fed.dtype), fed.shape))
        for value in case.model.graph.inputs
        if isinstance(fed := case.inputs.get(name := str(value.name)), np.ndarray)
    ]


def _initializers(case: Case) -> list[tuple[str, Hashable]]:
    found: list[tuple[str, Hashable]] = []
    for name, value in case.model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.size > LARGE or name in case.inputs:
            continue
        if value.is_graph_input() or value.is_graph_output():
            continue
        found.append((name, (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())))
    return found
