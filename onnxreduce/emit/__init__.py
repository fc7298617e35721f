"""Artefacts: what a finished reduction leaves for a maintainer, one file each.

An artefact is a module of this package with ``emit(result, directory)``, which writes its files.
To add one, add a module and name it in `ARTEFACTS`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from onnxreduce.result import Result

ARTEFACTS = ("model", "test_data", "text", "summary")


def write_all(result: Result, directory: Path) -> None:
    """Every artefact, in order."""
    for name in ARTEFACTS:
        import_module(f"{__name__}.{name}").emit(result, directory)
