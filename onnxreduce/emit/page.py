"""``repro.html`` and ``repro.js``: the bug in a browser, for results of two web backends.

Plain files for any static server, without a build step: a table of backends with the range of
each output and its distance from the reference.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.backends.spec import Spec
from onnxreduce.backends.web.options import PROVIDERS, Options, read
from onnxreduce.case import Case, InputValue
from onnxreduce.emit import repro
from onnxreduce.emit._python import INLINE
from onnxreduce.emit.escape import message, script
from onnxreduce.files import write_atomically
from onnxreduce.modelio import save_model
from onnxreduce.result import Result
from onnxreduce.sides import Side
from onnxreduce.tensors import Array

FILES = ("repro.html", "repro.js")
STATIC = "model-static.onnx"
"""The model with known input dims, for the providers that run no others."""
DATA = "repro-input-{}.bin"
HERE = Path(__file__).parent


def emit(result: Result, directory: Path) -> None:
    for stale in (*FILES, STATIC, *(path.name for path in directory.glob(DATA.format("*")))):
        (directory / stale).unlink(missing_ok=True)
    if repro.kind(result) != "page":
        return
    data = [value for item in result.reduced.inputs.items() for value in _input(*item)]
    for index, (described, array) in enumerate(data):
        if array is not None:
            described["file"] = DATA.format(index)
            write_atomically(directory / described["file"], array.tobytes())
    write_atomically(directory / FILES[0], (HERE / "page.html").read_bytes())
    if _is_dynamic(result.reduced):
        save_model(pinned(result.reduced), directory / STATIC)
    source = _constants(result, [described for described, _ in data])
    source += "\n" + (HERE / "page.js").read_text()
    write_atomically(directory / FILES[1], source.encode())


def _constants(result: Result, inputs: list[dict[str, Any]]) -> str:
    given = result.oracle.parameters
    failing = re.match(r"(expected|actual) fails", result.verdict.signature or "")
    constants = {
        "BUG": message(result.verdict.detail or result.oracle.summary, 200),
        "COLUMNS": columns(result.sides, _is_dynamic(result.reduced)),
        "INPUTS": inputs,
        "FAILING": failing[1] if failing else "",
        **{name.upper(): float(given.get(name, 0.0)) for name in ("atol", "rtol", "scale")},
    }
    return "".join(
        f"const {name} = {script(json.dumps(value, ensure_ascii=False, indent=1))};\n"
        for name, value in constants.items()
    )


def pinned(case: Case) -> Case:
    """The case with the unknown dims of its inputs set to those of the tensors given."""
    model = case.copy_model()
    for value in model.graph.inputs:
        fed = case.inputs.get(value.name or "")
        if isinstance(fed, np.ndarray):
            value.shape = ir.Shape(fed.shape)
    return Case(model, case.inputs)


def _is_dynamic(case: Case) -> bool:
    return any(
        not isinstance(dim, int) for value in case.model.graph.inputs for dim in value.shape or ()
    )


def columns(sides: tuple[Side, ...], dynamic: bool) -> list[dict[str, Any]]:
    """The expected side, the actual one, then the other providers of its bundle.

    Args:
        sides: of the result.
        dynamic: the model has inputs of unknown dims.
    """
    by_role = {side.role: side for side in sides}
    shown = [by_role["expected"], by_role["actual"]]
    found = [_column(read(side.spec), _version(side), dynamic) for side in shown]
    actual = shown[1]
    for provider in PROVIDERS:
        options = {k: v for k, v in actual.spec.options.items() if k not in (*PROVIDERS, "layout")}
        other = read(Spec("web", actual.spec.version, {provider: "true", **options}))
        column = _column(other, _version(actual), dynamic)
        if provider != "webnn-npu" and column not in found:
            found.append(column)
    return found


def _version(side: Side) -> str:
    named = re.match(r"onnxruntime-web (\d[\w.-]*)", side.version)
    return named[1] if named else read(side.spec).version


def _column(options: Options, version: str, dynamic: bool) -> dict[str, Any]:
    return {
        "name": options.provider,
        "version": version,
        "bundle": options.bundle,
        "threads": options.threads,
        "options": options.session_options(),
        "model": STATIC if dynamic and options.static else "model.onnx",
    }


def _input(name: str, value: InputValue) -> list[tuple[dict[str, Any], Array | None]]:
    """What the page is told of an input, with the array if that goes into a file."""
    if not isinstance(value, np.ndarray):
        return []  # ONNX Runtime Web knows neither sequences nor empty optionals
    described: dict[str, Any] = {"name": name, "dims": [*value.shape], "type": value.dtype.name}
    if value.dtype.kind in "OSUT":
        texts = [str(item) for item in value.reshape(-1).tolist()]
        return [({**described, "type": "string", "data": texts}, None)]
    if value.size > INLINE:
        return [(described, np.ascontiguousarray(value))]
    bits = value.view(np.uint16) if value.dtype == np.float16 else value
    return [({**described, "data": [_number(item) for item in bits.reshape(-1)]}, None)]


def _number(item: Any) -> int | float | str:
    """A number as JSON can say it; the page makes numbers of text."""
    if item.dtype.kind in "biu":
        return int(item) if abs(int(item)) < 2**53 else str(item)
    if not np.isfinite(item):
        return str(item).replace("inf", "Infinity").replace("nan", "NaN")
    return float(str(item))
