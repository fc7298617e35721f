"""``near-miss.onnx`` and its inputs: the closest candidate that does not show the bug."""

from __future__ import annotations

from pathlib import Path

from onnxreduce.inputs import save_npz
from onnxreduce.modelio import save_model
from onnxreduce.result import Result

MODEL, INPUTS = "near-miss.onnx", "near-miss-inputs.npz"


def emit(result: Result, directory: Path) -> None:
    for name in (MODEL, INPUTS):
        (directory / name).unlink(missing_ok=True)
    # Of a scrubbed result the near misses are not scrubbed.
    if result.near_miss is not None and result.scrubbed is None:
        save_model(result.near_miss.case, directory / MODEL)
        save_npz(result.near_miss.case.inputs, directory / INPUTS)


def words(result: Result) -> str:
    """What the step from the result to the near miss is; empty when there is none."""
    if result.near_miss is None or result.scrubbed is not None:
        return ""
    return "; ".join(result.near_miss.changes)
