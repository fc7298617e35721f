"""``model.txt``: the reduced model in ONNX's own text form, as far as it is worth reading."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxreduce.case import Case
from onnxreduce.files import write_atomically
from onnxreduce.modelio import to_proto
from onnxreduce.result import Result

LONG = 4_000
"""Bytes of text that a terminal reader still reads."""


def model_text(case: Case) -> str:
    """The text form; large tensors are left as names, since nobody reads a million numbers."""
    proto = case.skeleton if case.size.elements > LONG else to_proto(case)
    return onnx.printer.to_text(proto)


def emit(result: Result, directory: Path) -> None:
    write_atomically(directory / "model.txt", (model_text(result.reduced) + "\n").encode())
