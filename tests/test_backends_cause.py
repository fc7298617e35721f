from __future__ import annotations

import pytest
from onnx import parser

from onnxreduce.backends.cause import cause, mentioned, model_names

RESHAPE = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
    "Reshape node. Name:'{name}' Status Message: /onnxruntime_src/onnxruntime/core/providers/cpu/"
    "tensor/reshape_helper.h:{line} onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::"
    "TensorShape&, onnxruntime::TensorShapeVector&, bool) input_shape_size == size was false. The "
    "input tensor cannot be reshaped to the requested shape. Input shape:{{{shape}}}, requested "
    "shape:{{{wanted}}}"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            RESHAPE.format(name="/model/Reshape_3", line=45, shape="2,3", wanted="4"),
            RESHAPE.format(name="", line=47, shape="1", wanted="2,2,2"),
        ),
        (
            "Load model from /tmp/a b/model.onnx failed:Node (conv_1) Op (Conv) "
            "[ShapeInferenceError] Input tensor must have at least 3 dimensions",
            "Load model from m.onnx failed:Node () Op (Conv) "
            "[ShapeInferenceError] Input tensor must have at least 3 dimensions",
        ),
        (
            "Type Error: Type parameter (T) of Optype (Add) bound to different types "
            "(tensor(float) and tensor(int64) in node (add_1).",
            "Type Error: Type parameter (T) of Optype (Add) bound to different types "
            "(tensor(double) and tensor(int32) in node (/x/y).",
        ),
        (
            "Got invalid dimensions for input: image for the following indices index: 0 Got: 1",
            "Got invalid dimensions for input: x for the following indices index: 2 Got: 7",
        ),
        ("Could not find an implementation for Foo(13) node with name 'a'",
         "Could not find an implementation for Foo(18) node with name ''"),
    ],
)  # fmt: skip
def test_names_sizes_and_places_do_not_count(one: str, other: str) -> None:
    assert cause(one) == cause(other)
    assert cause(one)


def test_another_cause_with_the_same_beginning_counts() -> None:
    head = "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:"
    causes = {
        cause(head + "Node (a) Op (Conv) [ShapeInferenceError] Input tensor must have rank 3"),
        cause(head + "Node (a) Op (Gemm) [ShapeInferenceError] First input does not have rank 2"),
        cause(head + "Type Error: Type 'tensor(bool)' of input parameter (x) is invalid."),
        cause(head + "Fatal error: foo:Bar(-1) is not a registered function/op"),
    }
    assert len(causes) == 4


def test_names_of_the_model_are_left_out() -> None:
    message = "bad thing in encoder.layer and scores"
    assert cause(message, ["encoder.layer", "scores"]) == "bad thing"
    assert cause(message) == "bad thing encoder.layer scores"


def test_names_that_a_message_mentions() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] out_1) {
          h = Relu(x)
          out_1 = If(c) <then_branch = t () => (float[2] deep) { deep = Neg(h) },
                         else_branch = e () => (float[2] other) { other = Abs(h) }>
        }"""
    )
    assert {"deep", "h", "out_1", "c"} <= model_names(model)
    assert "Relu" not in model_names(model)
    assert mentioned("node 'out_1' reads deep, not out_12 or /h", model) == ["out_1", "deep"]
