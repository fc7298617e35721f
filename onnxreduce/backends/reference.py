"""onnx's own ReferenceEvaluator: slow, in numpy, and close to the text of the specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxreduce.backends.base import Backend, BackendError, Info, Value


class ReferenceBackend(Backend):
    """``reference``: a third opinion."""

    def version(self) -> str:
        return f"onnx {onnx.__version__}"

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        evaluator = self._load(model_path)
        values = _evaluate(evaluator, inputs, intermediate=False)
        return dict(zip(evaluator.output_names, values, strict=True))

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        evaluator = self._load(model_path)
        values = _evaluate(evaluator, inputs, intermediate=True)
        given = {*inputs, *(tensor.name for tensor in evaluator.proto_.graph.initializer), ""}
        return {name: _value(value) for name, value in values.items() if name not in given}

    def _load(self, model_path: str) -> Any:
        from onnx.reference import ReferenceEvaluator

        try:
            return ReferenceEvaluator(model_path)
        except Exception as error:
            raise BackendError("load", f"{type(error).__name__}: {error}") from error

    @classmethod
    def probe(cls) -> list[Info]:
        return [Info("reference", f"onnx {onnx.__version__}", "numpy")]


def _evaluate(evaluator: Any, inputs: Mapping[str, Value], intermediate: bool) -> Any:
    try:
        with np.errstate(all="ignore"):
            values = evaluator.run(None, dict(inputs), intermediate=intermediate)
    except Exception as error:
        raise BackendError("run", f"{type(error).__name__}: {error}") from error
    return values if intermediate else [_value(value) for value in values]


def _value(value: Any) -> Value:
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return np.asarray(value)
