"""Axes of size one go where the operators allow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from drive import drive, record, run_ort
from networks import Net

from onnxreduce.case import Case
from onnxreduce.dims.ranks import DropAxis
from onnxreduce.edits import Conflict
from onnxreduce.passes import ranks


def ready(case: Case) -> Case:
    return case.with_recording(record(case))


def rank(case: Case) -> int:
    return np.asarray(case.inputs["x"]).ndim


def conv(n: Net) -> str:
    x = n.image(1, 2, 1, 5)
    a = n.op("Conv", x, n.weight(3, 2, 1, 3), n.weight(3), kernel_shape=[1, 3], pads=[0, 1, 0, 1])
    a = n.op(
        "BatchNormalization",
        n.op("Relu", a),
        *(n.weight(3) for _ in range(3)),
        n.const([1] * 3, np.float32),
    )
    return n.op("MaxPool", a, kernel_shape=[1, 2], strides=[1, 2])


def matmul(n: Net) -> str:
    return n.op("Add", n.op("MatMul", n.image(1, 1, 3, 4), n.weight(1, 4, 2)), n.weight(2))


def moves(n: Net) -> str:
    a = n.op("Transpose", n.image(2, 1, 3), perm=[2, 1, 0])
    return n.op("Softmax", n.op("Concat", a, n.weight(3, 1, 4), axis=2), axis=2)


def flat(n: Net) -> str:
    return n.op("Flatten", n.op("Sigmoid", n.image(2, 3, 1, 1)))


LEFT: dict[Callable[[Net], str], int] = {conv: 3, matmul: 2, moves: 2, flat: 2}


@pytest.mark.parametrize("build", LEFT, ids=lambda build: build.__name__)
def test_the_values_stay(build: Callable[[Net], str]) -> None:
    net = Net()
    case = net.case(build(net))
    run = drive(case, [ranks], lambda candidate: True)
    assert rank(run.case) == LEFT[build]
    assert run.invalid == 0
    before, after = (run_ort(ir.to_proto(c.model), c.inputs)[0] for c in (case, run.case))
    np.testing.assert_allclose(after.ravel(), before.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "axis"),
    [
        (lambda n: n.op("Flatten", n.image(1, 3), axis=1), 5),
        (lambda n: n.op("Conv", n.image(1, 2, 5), n.weight(3, 2, 3)), 0),
        (lambda n: n.op("Softmax", n.image(3, 1), axis=1), 1),
        (lambda n: n.op("MatMul", n.image(1, 4), n.weight(4, 2)), 0),
        (lambda n: n.op("Relu", n.image(2, 3)), 0),
        (lambda n: n.op("ReduceMean", n.image(1, 3), axes=[0]), 0),
    ],
)
def test_what_needs_the_axis_conflicts(build: Callable[[Net], str], axis: int) -> None:
    net = Net()
    case = ready(net.case(build(net)))
    with pytest.raises(Conflict):
        DropAxis("x", axis).apply(case)


def test_a_bug_in_four_axes_keeps_them() -> None:
    net = Net()
    run = drive(net.case(conv(net)), [ranks], lambda case: rank(case) == 4)
    assert rank(run.case) == 4
