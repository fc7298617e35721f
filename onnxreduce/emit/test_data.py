"""``test_data_set_0/``: inputs, and the trusted side's outputs, in ONNX backend-test layout."""

from __future__ import annotations

import shutil
from pathlib import Path

from onnxreduce.inputs import save_test_data_set
from onnxreduce.result import Result


def emit(result: Result, directory: Path) -> None:
    target = directory / "test_data_set_0"
    if target.is_dir():
        shutil.rmtree(target)
    save_test_data_set(target, result.reduced.model, result.reduced.inputs, result.outputs)
