"""``model.onnx`` and ``inputs.npz``: the reduced case itself."""

from __future__ import annotations

from pathlib import Path

from onnxreduce.case import Case
from onnxreduce.inputs import save_npz
from onnxreduce.modelio import save_model
from onnxreduce.result import Result

MODEL, INPUTS = "model.onnx", "inputs.npz"


def save_case(case: Case, directory: Path) -> None:
    """Each file is replaced atomically; external data, if any, goes beside the model."""
    save_npz(case.inputs, directory / INPUTS)
    save_model(case, directory / MODEL)


def emit(result: Result, directory: Path) -> None:
    save_case(result.reduced, directory)
