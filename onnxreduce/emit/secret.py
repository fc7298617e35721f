"""What artefacts of a scrubbed result may say: no name of the original, no folder of its owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreduce.emit.privacy import mentioned
from onnxreduce.modelread import SOURCE
from onnxreduce.result import Result
from onnxreduce.scrub import NEUTRAL
from onnxreduce.verdict import Verdict

HIDDEN = "…"

FOLDERS = re.compile(r"(?:file://|(?<![\w/.])(?!//))(?:~|[A-Za-z]:)?[\\/](?:[^\s'\"\\/:,;]+[\\/])+")
"""The folders of an absolute path, without the name of the file."""


def public(result: Result) -> Result:
    """The result as its artefacts may tell it.

    What was said on the way (notes, messages of runtimes, settings) to one that was scrubbed
    loses the names and folders in it. Parameters of the oracle and sides stay, since `repro.py`
    needs them; what only shows them asks `place`.
    """
    if result.scrubbed is None:
        return result
    hide = _hider(result)
    told = result.verdict
    return replace(
        result,
        verdict=Verdict(told.outcome, hide(told.detail), told.signature and hide(told.signature)),
        notes=tuple(map(hide, result.notes)),
        settings=_everywhere(dict(result.settings), hide),
        sides=tuple(replace(side, error=hide(side.error)) for side in result.sides),
        oracle=replace(result.oracle, name=hide(result.oracle.name)),
    )


def place(result: Result, value: object) -> str:
    """A setting as it may be shown: of a scrubbed result, without the folders of paths."""
    return str(value) if result.scrubbed is None else FOLDERS.sub("", str(value))


def _hider(result: Result) -> Callable[[str], str]:
    before, after = (set(mentioned(case)) for case in (result.original, result.reduced))
    operators = {node.op_type for node in result.original.model.graph.all_nodes()}
    names = {n for n in before - after - operators if len(n) > 1 and not NEUTRAL.fullmatch(n)}
    source = Path(str(result.original.model.graph.meta.get(SOURCE) or ""))
    names |= {part for part in (source.name, source.stem) if part}
    longest = [re.escape(name) for name in sorted(names, key=len, reverse=True)]
    told = re.compile(rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)") if longest else None

    def hide(text: str) -> str:
        text = FOLDERS.sub("", text)
        return told.sub(HIDDEN, text) if told else text

    return hide


def _everywhere(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {key: _everywhere(item, hide) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_everywhere(item, hide) for item in value]
    return value
