"""Models of one node, for operators that are not in the ONNX standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from networks import declare
from onnx import helper, numpy_helper

from onnxreduce.case import Case
from onnxreduce.tensors import Array

MICROSOFT = "com.microsoft"


def single(op_type: str, outputs: int = 1, *, _domain: str = MICROSOFT, **given: Any) -> Case:
    """A model of one node. Arrays are its inputs, in order: graph inputs where the name starts
    with ``x``, else initializers; ``None`` is one left out. All else are attributes."""
    operands = {k: v for k, v in given.items() if v is None or isinstance(v, np.ndarray)}
    attributes = {k: v for k, v in given.items() if k not in operands}
    fed = {k: v for k, v in operands.items() if v is not None and k.startswith("x")}
    names = [k if v is not None else "" for k, v in operands.items()]
    results = [f"y{j}" for j in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, domain=_domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in fed.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [
            numpy_helper.from_array(v, k)
            for k, v in operands.items()
            if v is not None and k not in fed
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    if _domain not in ("", "com.microsoft"):
        imports.append(helper.make_opsetid(_domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    declare(model, fed)
    return Case(ir.from_proto(model), fed)


def f(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(0, 255, shape).astype(np.uint8)


def s8(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-99, 99, shape).astype(np.int8)


def ids(below: int, *shape: int, dtype: type = np.int32) -> Array:
    return np.random.default_rng(below).integers(0, below, shape).astype(dtype)


def number(value: float, dtype: type = np.float32) -> Array:
    return np.array(value, dtype)


S, Z = number(0.03), number(128, np.uint8)


def count(value: int) -> Array:
    return number(value, np.int32)
