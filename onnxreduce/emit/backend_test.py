"""``backend_test/``: the case as a test of ONNX's own backend suite.

``onnx.backend.test.loader.load_model_tests(data_dir="backend_test", kind="simple")`` finds it,
and the folder ``backend_test/simple/test_...`` can be copied into any suite of that layout.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from onnxreduce.inputs import DATA_SET, save_test_data_set
from onnxreduce.modelio import save_model, weight
from onnxreduce.result import Result

FOLDER = "backend_test"

LARGE = 64 << 20
"""Bytes of weights that are not written twice: `model.onnx` and the data set beside it have the
same layout."""


def name(result: Result) -> str:
    """Of the test: the operators that are left, or how many."""
    operators = [node.op_type.lower() for node in result.reduced.model.graph]
    words = "_".join(operators) if 0 < len(operators) <= 4 else f"{len(operators)}_nodes"
    return f"test_{''.join(c if c.isascii() and c.isalnum() else '_' for c in words)}"[:80]


def emit(result: Result, directory: Path) -> None:
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
    if not result.outputs or weight(result.reduced) > LARGE:
        return
    target = directory / FOLDER / "simple" / name(result)
    target.mkdir(parents=True)
    save_model(result.reduced, target / "model.onnx")
    case = result.reduced
    save_test_data_set(target / DATA_SET, case.model, case.inputs, result.outputs)
    given = result.oracle.parameters
    tolerances = {key: given[key] for key in ("atol", "rtol") if isinstance(given.get(key), float)}
    if tolerances:
        (target / "data.json").write_text(json.dumps(tolerances) + "\n")
