"""Results to make artefacts of, without a reduction where that is not the point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxreduce import emit
from onnxreduce.backends.spec import parse_spec
from onnxreduce.case import Case, InputValue
from onnxreduce.modelio import to_proto
from onnxreduce.result import Result
from onnxreduce.sides import Side
from onnxreduce.used import OracleUsed
from onnxreduce.verdict import Verdict

STRIDED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,1,1,4] x) => (float[?,?,?,?] y) <float[1,1,1,3] w = {0,0.1,1}> {
  y = Conv <auto_pad = "SAME_UPPER", strides = [1, 2]> (x, w)
}"""


def case_of(model: str | onnx.ModelProto, **inputs: object) -> Case:
    proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
    fed = {
        name: value if isinstance(value, np.ndarray) else np.asarray(value, np.float32)
        for name, value in inputs.items()
    }
    return Case(ir.from_proto(proto), fed)


def strided() -> Case:
    return case_of(STRIDED, x=[[[[1, 2, 3, 4.5]]]])


def outputs_of(case: Case) -> dict[str, InputValue]:
    evaluator = ReferenceEvaluator(to_proto(case))
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(case.inputs)), strict=True))


def result_of(case: Case, **changes: Any) -> Result:
    """A finished reduction of `case` to itself."""
    fields: dict[str, Any] = {
        "original": case,
        "reduced": case,
        "verdict": Verdict.interesting("max abs 1 at y[0]", "values"),
        "outputs": None,
        "oracle_calls": 3,
        "cache_hits": 0,
        "invalid": 0,
        "skipped": 0,
        "accepted": 1,
        "seconds": 1.0,
        "oracle_seconds": 0.5,
        "one_minimal": True,
        "confirmed": True,
        "stopped_by": None,
    }
    return Result(**{**fields, **changes})


def side(role: str, spec: str, outputs: Mapping[str, InputValue] | None = None) -> Side:
    """A side with the version that is installed."""
    import onnxruntime

    version = f"onnxruntime {onnxruntime.__version__}" if spec.startswith("ort") else ""
    return Side(role, parse_spec(spec), version, outputs)


def written(result: Result, directory: Path) -> Result:
    """All artefacts of a result; the tests want none to be missing."""
    directory.mkdir(exist_ok=True)
    done = emit.write_all(result, directory)
    assert not [note for note in done.notes if "is missing" in note]
    return done


def run_script(
    directory: Path, python: str | Path = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``repro.py`` as a stranger runs it: without this package on the path."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), "repro.py"],
        cwd=directory,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def differs(expected: str, actual: str, **parameters: object) -> dict[str, Any]:
    """Fields of a result of the oracle `differs`."""
    return {
        "oracle": OracleUsed(
            "differs",
            "Two backends give different results.",
            ready_made=True,
            parameters={
                "expected": expected,
                "actual": actual,
                "atol": 1e-3,
                "rtol": 1e-3,
                "scale": 0.0,
                **parameters,
            },
            identity=f"{expected}; {actual}",
        ),
    }
