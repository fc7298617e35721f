"""``model.txt``: the reduced model in ONNX's own text form, as far as it is worth reading."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.files import write_atomically
from onnxreduce.modelio import to_proto
from onnxreduce.proto import nested_tensors
from onnxreduce.result import Result

LONG = 4_000
"""Numbers in a text that a reader still reads; beyond, large tensors are left as names."""

LARGE = 64
"""Elements of a tensor that is large in a long text."""


def model_text(case: Case, most: int = LONG) -> str:
    """The text form of the model.

    Args:
        case: the case.
        most: up to so many elements in all tensors together every number is shown, and
            `parsed_back` gives the same model; beyond, a tensor of more than `LARGE` is left as
            its name and type, since nobody reads a million numbers.
    """
    proto = to_proto(case) if case.size.elements <= most else named_only(case.encoded.message())
    return onnx.printer.to_text(proto)


def named_only(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers are declared and not given."""
    proto = onnx.ModelProto()
    proto.CopyFrom(skeleton)
    for tensor in nested_tensors(proto.graph):
        if math.prod(tensor.dims) > LARGE:
            tensor.ClearField("raw_data")
    declared = {value.name for value in (*proto.graph.value_info, *proto.graph.input)}
    for tensor in skeleton.graph.initializer:
        if math.prod(tensor.dims) > LARGE:
            proto.graph.initializer.remove(
                next(each for each in proto.graph.initializer if each.name == tensor.name)
            )
            if tensor.name not in declared:
                declaration = onnx.helper.make_tensor_value_info(
                    tensor.name, tensor.data_type, tensor.dims
                )
                proto.graph.value_info.append(declaration)
    return proto


def parsed_back(text: str, case: Case) -> bool:
    """Does the text stand for the very model of `case`?"""
    try:
        model = ir.from_proto(onnx.parser.parse_model(text))
        return Case(model, case.inputs).digest == case.digest
    except (onnx.parser.ParseError, ValueError, TypeError):
        return False


def emit(result: Result, directory: Path) -> None:
    text = model_text(result.reduced)
    if not parsed_back(text, result.reduced):
        text = f"# For reading; the model itself is model.onnx.\n{text}"
    write_atomically(directory / "model.txt", (text + "\n").encode())
