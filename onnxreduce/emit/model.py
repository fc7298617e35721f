"""``model.onnx`` and ``inputs.npz``: the reduced case itself."""

from __future__ import annotations

from pathlib import Path

from onnxreduce.case import Case
from onnxreduce.inputs import save_npz
from onnxreduce.modelio import save_model
from onnxreduce.result import Result


def save_case(case: Case, directory: Path) -> None:
    """Each file is replaced whole; external data, if any, goes beside the model."""
    save_npz(case.inputs, directory / "inputs.npz")
    save_model(case, directory / "model.onnx")


def emit(result: Result, directory: Path) -> None:
    save_case(result.reduced, directory)
