"""Properties of all edits of the small passes, on a sample of onnx's own test cases."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from node_cases import node_cases
from onnx.backend.test.case.test_case import TestCase

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Edit
from onnxreduce.passes import (
    attributes,
    constants,
    inline,
    operands,
    optional,
    subgraphs,
    tidy,
    types,
    values,
)

PASSES = (constants, operands, optional, attributes, values, types, inline, subgraphs, tidy)

MOST = 8
"""Edits of one pass on one case that are looked at."""


@functools.cache
def everything() -> list[TestCase]:
    """All node cases; they are computed on the fly, which takes seconds."""
    return sorted(node_cases(), key=lambda test: test.name)


def sample(step: int) -> Iterator[Case]:
    """Every `step`-th node case that is well formed, and some that have bodies."""
    words = ("test_if", "test_loop", "test_scan", "test_sequence_map", "test_range")
    rich = [test for test in everything() if test.name.startswith(words)]
    for test in (*everything()[::step], *rich[:: max(1, step // 8)]):
        names = [value.name for value in test.model.graph.input]
        inputs = {n: array(v) for n, v in zip(names, test.data_sets[0][0], strict=True)}
        case = Case(ir.from_proto(test.model), inputs)
        if well_formed(case):
            yield case


def array(fed: object) -> object:
    """What a case holds, for what a data set holds."""
    if isinstance(fed, onnx.TensorProto):
        return onnx.numpy_helper.to_array(fed)
    if fed is None:  # an optional that is empty
        return None
    return [np.asarray(item) for item in fed] if isinstance(fed, list) else np.asarray(fed)


def well_formed(case: Case) -> bool:
    try:
        onnx.checker.check_model(ir.to_proto(case.model))
    except onnx.checker.ValidationError:
        return False
    return True


def run(case: Case, module: object, *, accept: bool) -> Iterator[tuple[Edit, Case, Case]]:
    """What a pass proposes when everything that is smaller is accepted, or nothing."""
    proposals = module.edits(case)
    answer: Case | None = None
    for _ in range(MOST):
        try:
            edit = proposals.send(answer)
        except StopIteration:
            return
        answer = None
        try:
            candidate = edit.apply(case)
        except Conflict:
            continue
        yield edit, case, candidate
        if accept and candidate.size < case.size and well_formed(candidate):
            case = answer = candidate


def check(case: Case, module: object) -> int:
    """Checks every candidate of a pass; gives how many there were."""
    seen = 0
    for accept in (False, True):
        for edit, before, candidate in run(case, module, accept=accept):
            seen += 1
            digest = before.digest
            assert candidate.digest != digest, f"{edit} changes nothing"
            assert Case(before.model, before.inputs).digest == digest, f"{edit} changes its case"
            assert len(edit.describe()) < 200
            fed = {v.name for v in candidate.model.graph.inputs if not v.is_initializer()}
            assert fed == set(candidate.inputs), f"{edit} leaves inputs that do not fit"
            for value in candidate.model.graph.inputs:
                fed_array = candidate.inputs.get(value.name)
                if isinstance(fed_array, np.ndarray) and value.dtype != ir.DataType.STRING:
                    assert ir.DataType.from_numpy(fed_array.dtype) == value.dtype, str(edit)
            # Version numbers of operator sets may make an operator invalid: that is asked.
            if not isinstance(edit, types.Relabel | types.Convert | attributes.DropAttributes):
                assert well_formed(candidate), f"{edit} makes an invalid model"
    return seen


@pytest.mark.parametrize("module", PASSES, ids=lambda module: module.NAME)
def test_edits_keep_models_well_formed(module):
    seen = sum(check(case, module) for case in sample(16))
    assert seen >= {inline: 4, operands: 10, subgraphs: 3}.get(module, 40)


@pytest.mark.slow
@pytest.mark.parametrize("module", PASSES, ids=lambda module: module.NAME)
def test_edits_keep_all_models_well_formed(module):
    for case in sample(1):
        check(case, module)
