"""The few lines that the command line ends with."""

from __future__ import annotations

from pathlib import Path

from onnxreduce.emit import near_miss
from onnxreduce.emit.text import model_text
from onnxreduce.result import Result, describe

SHORT = 30
"""Lines of model text that still fit a screen."""

SCREEN = 128
"""Numbers in it that do."""


def closing_words(result: Result) -> str:
    """Before and after, what it took, and what is left when that is short."""
    lines = [_headline(result), "", *_table(result), "", _effort(result)]
    if result.verdict.detail:
        lines.append(f"the bug: {result.verdict.detail}")
    if miss := near_miss.words(result):
        lines.append(f"one step away it is gone: {miss}")
    if result.directory is not None:
        lines.append(f"written to {_from_here(result.directory)}/")
    text = model_text(result.reduced, SCREEN)
    if text.count("\n") < SHORT:
        lines += ["", text.strip()]
    return "\n".join(lines)


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _headline(result: Result) -> str:
    if result.stopped_by:
        return f"stopped by {result.stopped_by}: this is the best so far, not yet minimal"
    if not result.accepted:
        return "nothing could be removed: the model is 1-minimal as it is"
    confirmed = "confirmed in a fresh process" if result.confirmed else "NOT confirmed"
    return f"reduced, 1-minimal, {confirmed}"


def _table(result: Result) -> list[str]:
    before, after = describe(result.original), describe(result.reduced)
    rows = [
        (name, before[key], after[key])
        for name, key in (
            ("nodes", "nodes"),
            ("inputs", "inputs"),
            ("elements", "elements"),
            ("weight bytes", "bytes"),
        )
    ]
    return [f"  {name:<13}{old:>14,}  ->  {new:,}" for name, old, new in rows]


def _effort(result: Result) -> str:
    return (
        f"{result.oracle_calls} oracle calls, {result.accepted} accepted, {result.invalid} invalid "
        f"candidates; {result.seconds:.1f} s, {result.oracle_seconds:.1f} s of oracle time"
    )
