"""``op-test.jsonc``: a result of one operator as an operator test of ONNX Runtime Web.

It goes into ``js/web/test/data/ops/`` of that project. Initializers become inputs, as its test
runner builds the model from the operator and its inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.emit.backend_test import name
from onnxreduce.emit.escape import line, message
from onnxreduce.files import write_atomically
from onnxreduce.result import Result

FILE = "op-test.jsonc"

TYPES = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)) | {
    "float32",
    "float64",
    "bool",
    "string",
}

ELEMENTS = 4096
"""A test of more numbers is no unit test."""

_ATTRIBUTES = {
    ir.AttributeType.INT: "int",
    ir.AttributeType.INTS: "ints",
    ir.AttributeType.FLOAT: "float",
    ir.AttributeType.FLOATS: "floats",
    ir.AttributeType.STRING: "string",
    ir.AttributeType.STRINGS: "strings",
}


class Unfit(Exception):
    """The format cannot say this."""


def emit(result: Result, directory: Path) -> None:
    (directory / FILE).unlink(missing_ok=True)
    try:
        test = op_test(result.reduced, result.outputs or {}, name(result))
    except Unfit:
        return
    bug = message(result.verdict.detail or result.oracle.summary, 120)
    write_atomically(directory / FILE, f"// {bug}\n{_text([test])}\n".encode())


def _text(tests: list[dict[str, Any]]) -> str:
    """JSON with lists of numbers on one line. No string of JSON holds a line break."""
    text = json.dumps(tests, indent=2, ensure_ascii=False, allow_nan=False)
    number = r"-?[\d.][\d.eE+-]*"
    numbers = rf"\[\n\s+({number}(?:,\n\s+{number})*)\n\s+\]"
    return re.sub(numbers, lambda found: f"[{' '.join(found[1].split())}]", text)


def op_test(case: Case, outputs: Mapping[str, InputValue], title: str) -> dict[str, Any]:
    """The test object.

    Raises:
        Unfit: not one operator on plain tensors, or too large.
    """
    nodes = list(case.model.graph)
    if len(nodes) != 1 or case.model.functions or not outputs:
        raise Unfit
    node = nodes[0]
    # Only what the bug was found with: unknown dims are part of it.
    inputs = [_input(case, value) for value in node.inputs]
    results = [_output(value, outputs) for value in node.outputs]
    while results and results[-1] is None:
        results.pop()
    domain = node.domain if node.domain not in ("", "ai.onnx") else ""
    test: dict[str, Any] = {
        "name": title,
        "operator": node.op_type,
        "opset": {"domain": domain, "version": case.model.graph.opset_imports[node.domain]},
        "attributes": [_attribute(attribute) for attribute in node.attributes.values()],
        "inputShapeDefinitions": [_shape(case, value) for value in node.inputs],
        "cases": [
            {"name": "onnxreduce", "inputs": inputs, "outputs": [r or _none() for r in results]}
        ],
    }
    return test


def _input(case: Case, value: ir.Value | None) -> dict[str, Any]:
    if value is None:
        return _none()
    if value.const_value is not None:
        return _tensor(np.asarray(value.const_value.numpy()))
    return _tensor(case.inputs.get(value.name or ""))


def _output(value: ir.Value, outputs: Mapping[str, InputValue]) -> dict[str, Any] | None:
    return _tensor(outputs[value.name or ""]) if value.name in outputs else None


def _none() -> dict[str, Any]:
    return {"data": None, "type": "float32"}


def _tensor(value: InputValue) -> dict[str, Any]:
    if not isinstance(value, np.ndarray) or value.size > ELEMENTS:
        raise Unfit
    kind = "string" if value.dtype.kind in "OSUT" else value.dtype.name
    flat = value.reshape(-1)
    if kind not in TYPES or (value.dtype.kind == "f" and not np.isfinite(flat).all()):
        raise Unfit
    data = [float(str(v)) for v in flat] if value.dtype.kind == "f" else flat.tolist()
    if any(isinstance(v, int) and abs(v) >= 2**53 for v in data):
        raise Unfit
    return {"data": data, "dims": [*value.shape], "type": kind}


def _attribute(attribute: ir.Attr) -> dict[str, Any]:
    kind = _ATTRIBUTES.get(attribute.type)
    if kind is None or attribute.is_ref():
        raise Unfit
    value = attribute.value
    if kind in ("float", "floats"):
        numbers = [float(str(np.float32(v))) for v in (value if kind == "floats" else [value])]
        if not np.isfinite(numbers).all():
            raise Unfit
        value = numbers if kind == "floats" else numbers[0]
    elif kind in ("ints", "strings"):
        value = [*value]
    return {"name": attribute.name, "data": value, "type": kind}


def _shape(case: Case, value: ir.Value | None) -> list[int | str] | None:
    """The declared shape: whether dims are known may decide which kernel runs."""
    if value is None or value.shape is None:
        return None
    if value.const_value is not None:
        return [*value.const_value.shape.numpy()]
    return [
        dim if isinstance(dim, int) else line(dim.value or f"_{value.name}_{axis}")
        for axis, dim in enumerate(value.shape)
    ]
