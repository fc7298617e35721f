"""Let the readers of a node read one of its inputs instead, from the last node backwards.

Some properties travel along a path (an unknown rank, a dynamic dim, a quantised type) and die at
any cut: only this shortens such a path. Going backwards, what fed only the bypassed node is dead
and goes with it: bypassing the addition that ends a residual block takes the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.graph import Index, index
from onnxreduce.surgery import Bypass, same_kind, used_output

NAME = "bypass"
RECORDS = True


def edits(case: Case) -> Proposals:
    for key in reversed(index(case.model).order):
        known = index(case.model)
        if key not in known.nodes:
            continue
        for value in _replacements(case, known, key):
            accepted = yield Bypass(key, value)
            if accepted:
                case = accepted
                break


def _replacements(case: Case, known: Index, key: str) -> Iterator[str]:
    """The inputs of a node that fit its output, the most deeply computed first: that keeps a path
    as long as need be. A stored constant replaces constants only: the rest might fold away with it.
    One that a node computes did not fold, so it may be what the bug needs: it comes last."""
    output = used_output(known, key)
    if output is None:
        return
    for value in sorted(known.reads[key], key=lambda value: _rank(known, value)):
        if same_kind(case, output, value) and _fits(known, value, output):
            yield value


def _fits(known: Index, value: str, output: str) -> bool:
    if known.depends_on_input(value) or not known.depends_on_input(output):
        return True
    made_by = known.producer(value)
    return made_by is not None and bool(known.reads[made_by])


def _rank(known: Index, value: str) -> tuple[bool, int]:
    made_by = known.producer(value)
    depth = -1 if made_by is None else known.position[made_by]
    return not known.depends_on_input(value), -depth
