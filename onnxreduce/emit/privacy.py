"""Which data of the user's model a result shows to whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxreduce.case import Case, graphs
from onnxreduce.changes import short
from onnxreduce.result import Result
from onnxreduce.scrub import NEUTRAL, content

FEW = 6


def privacy(result: Result) -> str:
    """A paragraph for a report."""
    if result.scrubbed is not None:
        kept = _listing(result.scrubbed.kept)
        told = (
            f"the bug needs {kept}, which are as in the original"
            if kept
            else "nothing is left in it"
        )
        return (
            "Scrubbed: weights, inputs and names were replaced as far as the bug survives it; "
            f"of the original, besides its operators and shapes, {told}. Not scrubbed, and not for "
            "handing on: journal.jsonl, which tells the whole way, and the oracle itself."
        )
    numbers = [
        short(name)
        for name in content(result.reduced)
        if not (result.inputs_made_up and _is_original_input(result, name))
    ]
    names = _names(result)
    parts = []
    if numbers:
        parts.append(f"the values of {_listing(numbers)}")
    if names:
        parts.append(f"the name{'s' if len(names) > 1 else ''} {_listing(names)}")
    if not parts:
        return (
            "Of the user's model this shows the operators, attributes and shapes; all numbers and "
            "names in it are plain ones."
        )
    return (
        "Of the user's model this shows the operators, attributes and shapes, and "
        f"{' and '.join(parts)}, which are from that model, its inputs, or computed from them "
        "(--scrub replaces what the bug does not need)."
    )


def _is_original_input(result: Result, name: str) -> bool:
    return name in result.original.inputs


def _names(result: Result) -> list[str]:
    """Names that the original has too, and that tell something."""
    before, after = (set(mentioned(case)) for case in (result.original, result.reduced))
    told = (name for name in before & after if len(name) > 1 and not NEUTRAL.fullmatch(name))
    return sorted(map(short, told))


def mentioned(case: Case) -> Iterator[str]:
    """Names of graphs, functions, values, nodes and dims."""
    yield from (function.name for function in case.model.functions.values())
    for graph in graphs(case.model):
        yield graph.name or ""
        made = (value for node in graph for value in node.outputs)
        yield from (node.name for node in graph if node.name)
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            yield value.name or ""
            for dim in value.shape or ():
                if isinstance(dim, ir.SymbolicDim):
                    yield dim.value or ""


def _listing(words: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(words) - FEW} more" if len(words) > FEW else ""
    return ", ".join(words[:FEW]) + more
