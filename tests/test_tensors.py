"""What is asked of tensors of every type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxreduce.case import Case
from onnxreduce.passes.types import Convert
from onnxreduce.rebuild import tensor_of
from onnxreduce.result import describe
from onnxreduce.tensors import nbytes

WORDS = np.array([["a", "\u00fc"], ["", "three"]], object)


def with_words(tensor: ir.TensorProtocol) -> Case:
    """A model whose one initializer is `tensor`, of strings."""
    w = ir.Value(name="w", type=ir.TensorType(tensor.dtype), shape=ir.Shape([2, 2]))
    w.const_value = tensor
    node = ir.node("Identity", [w])
    node.outputs[0].name = "y"
    node.outputs[0].type = w.type
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 16})
    return Case(ir.Model(graph, ir_version=8), {})


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_of(WORDS, ir.DataType.STRING, "w"),
        ir.Tensor(WORDS, dtype=ir.DataType.STRING, name="w"),
        ir.tensor(WORDS, dtype=ir.DataType.STRING, name="w"),
    ],
    ids=["made here", "plain", "by onnx_ir"],
)
def test_strings_are_as_long_as_their_utf8(tensor: ir.TensorProtocol) -> None:
    assert nbytes(tensor) == 1 + 2 + 0 + 5
    case = with_words(tensor)
    assert describe(case)["bytes"] == 8
    assert Convert(17).apply(case).model.graph.opset_imports[""] == 17


def test_packed_elements_share_bytes() -> None:
    assert nbytes(ir.tensor([1, 2, 3], dtype=ir.DataType.INT4)) == 2
    assert nbytes(ir.tensor([1, 2, 3], dtype=ir.DataType.FLOAT)) == 12
