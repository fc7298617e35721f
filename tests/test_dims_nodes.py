"""The node cases of the onnx package: every plan is valid, and every operator that computes
floats from floats shrinks, or has its reason here."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from node_cases import node_cases as collected
from onnx import numpy_helper
from test_dims import assert_valid, recorded

from onnxreduce.case import Case
from onnxreduce.dims import analyse, rules
from onnxreduce.dims.rules.frozen import REASONS
from onnxreduce.tensors import Array

STUCK = {
    **REASONS,
    "AffineGrid (expanded)": "ranges are joined with literals inside arithmetic",
    "ArrayFeatureExtractor": "indices pick from one axis by value",
    "BlackmanWindow": "a window's length is a scalar input, not a size",
    "Col2Im": "the image's size is folded into the columns by both inputs' values",
    "HammingWindow": "a window's length is a scalar input, not a size",
    "HannWindow": "a window's length is a scalar input, not a size",
    "LinearAttention (expanded)": "the recurrence is a Scan",
    "MaxUnpool": "indices count elements of a larger tensor",
    "MelWeightMatrix": "its sizes are scalar inputs",
    "NonZero": "how many elements are not zero depends on values",
    "Resize": "the aspect ratio is kept, so one size follows from the other by rounding",
    "STFT": "frames are cut by scalar inputs",
    "Split": "the last piece is smaller than the others",
    "TreeEnsemble": "its attributes name features",
}
"""Operators some of whose cases do not shrink, and why."""


@cache
def node_cases() -> list[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    found = []
    for test in collected():
        names = [value.name for value in test.model.graph.input]
        fed = {
            name: numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
            for name, value in zip(names, test.data_sets[0][0], strict=False)
        }
        if all(isinstance(array, np.ndarray | np.generic) for array in fed.values()):
            arrays = {name: np.asarray(array) for name, array in fed.items()}
            found.append((test.name, test.model, arrays))
    return found


def runnable(part: int = 0, of: int = 1) -> Iterator[tuple[str, Case]]:
    """The cases that ONNX Runtime runs; some of them by a hash of the name."""
    for name, model, arrays in node_cases():
        if zlib.crc32(name.encode()) % of != part:
            continue
        try:
            yield name, recorded(Case(ir.from_proto(model), arrays))
        except Exception:
            continue  # not implemented there, or outputs that are no tensors


def floats(case: Case) -> bool:
    """Is there a float input that could be smaller?"""
    return any(
        isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size > 1
        for array in case.inputs.values()
    )


def check(part: int, of: int) -> tuple[int, set[str]]:
    """Fuzz the cases; gives how many there were, and what is stuck."""
    count, stuck = 0, set()
    for name, case in runnable(part, of):
        if any(out.type is None or out.dtype is None for out in case.model.graph.outputs):
            continue
        analysis = analyse(case)
        assert_valid(case, analysis, 3, seed=len(name))
        count += 1
        if floats(case) and not analysis.classes:
            stuck.add(name)
    return count, stuck


def unexplained(stuck: set[str]) -> set[str]:
    words = {op.split(" ")[0].lower() for op in STUCK}
    return {name for name in stuck if not any(word in name.replace("_", "") for word in words)}


def test_a_sample_of_the_node_cases() -> None:
    count, stuck = check(3, 16)
    assert count > 60
    assert not unexplained(stuck)


@pytest.mark.slow
def test_all_node_cases() -> None:
    count, stuck = check(0, 1)
    assert count > 1200
    assert not unexplained(stuck)


def test_rules_name_operators_that_exist() -> None:
    """A misspelt operator would never be found."""
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    own = {"SimplifiedLayerNormalization"}  # ONNX Runtime's, in the default domain
    assert not {
        op_type for domain, op_type in rules.known() if domain == "" and op_type not in known | own
    }


def test_every_float_operator_has_a_rule_or_a_reason() -> None:
    """What is neither ruled nor listed is left to probing: name it here, so that it is known."""
    probed = {"CausalConvWithState", "CenterCropPad", "DFT", "LinearAttention", "TensorScatter"}
    sequences = {
        *("Optional", "OptionalGetElement", "SequenceAt", "SequenceConstruct", "SequenceErase"),
        *("SequenceInsert", "ConcatFromSequence"),
    }
    missing = set()
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != "" or schema.deprecated:
            continue
        sides = (schema.inputs, schema.outputs)
        floating = all(side and any("tensor(float)" in s for s in side[0].types) for side in sides)
        listed = schema.name in {*probed, *sequences, *STUCK}
        if floating and not listed and rules.find("", schema.name) is None:
            missing.add(schema.name)
    assert not missing
