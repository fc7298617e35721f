"""``test_data_set_0/``: inputs, and the trusted side's outputs, in ONNX backend-test layout."""

from __future__ import annotations

from pathlib import Path

from onnxreduce.inputs import save_test_data_set
from onnxreduce.result import Result


def emit(result: Result, directory: Path) -> None:
    save_test_data_set(
        directory / "test_data_set_0",
        result.reduced.model,
        result.reduced.inputs,
        result.outputs,
    )
