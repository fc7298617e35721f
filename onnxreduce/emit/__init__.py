"""Artefacts: what a finished reduction leaves for a maintainer, one file each.

An artefact is a module of this package with ``emit(result, directory)``, which writes its files,
or removes those of an earlier result where this one calls for none. To add one, add a module and
name it in `ARTEFACTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from onnxreduce.emit.secret import public
from onnxreduce.result import Result

FIRST = "model"
"""Without this one there is no result; any other may fail, and the rest are still written."""

ARTEFACTS = (
    "test_data",
    "text",
    "repro",
    "page",
    "backend_test",
    "op_test",
    "near_miss",
    "issue",
    "report",
    "summary",
)


def write_all(result: Result, directory: Path) -> Result:
    """Every artefact, in order.

    Returns:
        The result, with a note for each artefact that could not be made.

    Raises:
        OSError, UsageError: the model itself cannot be written.
    """
    _emitter(FIRST)(result, directory)
    for name in ARTEFACTS:
        try:
            _emitter(name)(public(result), directory)
        except Exception as error:  # what is written already, and what comes, must not be lost
            note = f"the artefact {name} is missing ({type(error).__name__}: {error})"
            result = replace(result, notes=(*result.notes, note))
    return result


def _emitter(name: str) -> Callable[[Result, Path], None]:
    emit: Callable[[Result, Path], None] = import_module(f"{__name__}.{name}").emit
    return emit
