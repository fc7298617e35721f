"""Planted size bugs: each ends exactly at its threshold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from drive import Run, case_of, drive, record
from networks import NETWORKS, Net

from onnxreduce.activations import MadeUp
from onnxreduce.case import Case
from onnxreduce.dims import analyse
from onnxreduce.passes import dims


def shrink(case: Case, interesting: Callable[[Case], bool]) -> Run:
    return drive(case.with_recording(None), [dims], interesting)


def input_shape(case: Case, name: str = "x") -> tuple[int, ...]:
    array = case.inputs[name]
    assert isinstance(array, np.ndarray)
    return array.shape


def weights(case: Case, op_type: str, at: int = 1) -> list[tuple[int, ...]]:
    """Shapes of the stored operands `at` of all nodes of a type."""
    found = []
    for node in case.model.graph:
        if node.op_type == op_type and len(node.inputs) > at:
            value = node.inputs[at]
            if value is not None and value.const_value is not None:
                found.append(tuple(value.const_value.shape.numpy()))
    return found


def attribute(case: Case, op_type: str, name: str) -> list[object]:
    return [
        node.attributes[name].value  # type: ignore[union-attr]
        for node in case.model.graph
        if node.op_type == op_type and name in node.attributes
    ]


def single(op_type: str = "Conv", **attributes: object) -> Case:
    net = Net()
    x = net.image(2, 96, 24, 24)
    return net.case(net.conv(x, 96, 128, k=5, **attributes))


def test_one_convolution_becomes_tiny() -> None:
    run = shrink(single(), lambda case: True)
    assert input_shape(run.case) == (1, 1, 1, 1)
    assert weights(run.case, "Conv") == [(1, 1, 1, 1)]
    assert attribute(run.case, "Conv", "pads") == [(0, 0, 0, 0)]
    assert run.calls <= 3


@pytest.mark.parametrize("threshold", [2, 17, 64, 65])
def test_threshold_on_channels(threshold: int) -> None:
    run = shrink(single(), lambda case: weights(case, "Conv")[0][0] >= threshold)
    assert weights(run.case, "Conv") == [(threshold, 1, 1, 1)]
    assert input_shape(run.case) == (1, 1, 1, 1)
    assert run.calls <= 2 * 7 + 13


def test_threshold_on_the_kernel() -> None:
    run = shrink(single(), lambda case: weights(case, "Conv")[0][3] >= 5)
    assert weights(run.case, "Conv") == [(1, 1, 1, 5)]
    assert input_shape(run.case) == (1, 1, 1, 1)


def test_odd_width() -> None:
    def interesting(case: Case) -> bool:
        return input_shape(case)[3] % 2 == 1 and input_shape(case)[3] >= 6

    net = Net()
    run = shrink(net.case(net.conv(net.image(1, 4, 9, 31), 4, 4)), interesting)
    assert input_shape(run.case) == (1, 1, 1, 7)


def test_batch_and_group() -> None:
    def interesting(case: Case) -> bool:
        return input_shape(case)[0] >= 2 and attribute(case, "Conv", "group")[0] >= 3  # type: ignore[operator]

    run = shrink(single(group=32), interesting)
    assert input_shape(run.case) == (2, 3, 1, 1)
    assert weights(run.case, "Conv") == [(3, 1, 1, 1)]


def test_auto_pad_in_a_unet() -> None:
    """A stride of two with SAME_UPPER pads is wrong unless there is nothing to pad."""

    def interesting(case: Case) -> bool:
        return input_shape(case)[2] >= 4 and any(k[3] == 3 for k in weights(case, "Conv"))

    run = shrink(NETWORKS["unet"](), interesting)
    assert int(np.prod(input_shape(run.case))) <= 16


def test_flattened_size() -> None:
    net = Net()
    x = net.image(1, 32, 8, 8)
    flat = net.op("Flatten", net.op("Relu", net.conv(x, 32, 64)))
    case = net.case(net.op("Gemm", flat, net.weight(10, 4096), net.weight(10), transB=1))
    run = shrink(case, lambda case: weights(case, "Gemm")[0][1] >= 1025)
    size = weights(run.case, "Gemm")[0][1]
    assert size == 1025
    assert weights(run.case, "Gemm")[0][0] == 1


def test_sequence_length_in_an_lstm() -> None:
    def interesting(case: Case) -> bool:
        return record(case)["v4"].shape[0] >= 17

    run = shrink(NETWORKS["speech"](), interesting)
    assert record(run.case)["v4"].shape[0] == 17
    assert attribute(run.case, "LSTM", "hidden_size") == [1, 1]


def test_head_size_in_attention() -> None:
    def interesting(case: Case) -> bool:
        values = record(case)
        softmax = next(node for node in case.model.graph if node.op_type == "Softmax")
        product = softmax.inputs[0].producer().inputs[0].producer()  # type: ignore[union-attr]
        return values[product.inputs[0].name].shape[-1] >= 3  # type: ignore[index, union-attr]

    run = shrink(NETWORKS["attention"](), interesting)
    assert input_shape(run.case) == (1, 1, 1)
    assert weights(run.case, "MatMul") == [(1, 3), (1, 3), (1, 3), (3, 1), (1, 1), (1, 1)]


def test_classes_that_the_bug_ties() -> None:
    """Each axis alone is stuck where it is; together they shrink."""
    run = shrink(NETWORKS["unet"](), lambda case: input_shape(case)[2] == input_shape(case)[3] > 5)
    assert input_shape(run.case) == (1, 1, 8, 8)
    net = Net()
    twice = net.case(net.op("Relu", net.image(12, 24)))
    run = shrink(twice, lambda case: 2 * input_shape(case)[0] == input_shape(case)[1] > 4)
    assert input_shape(run.case) == (3, 6)


def test_which_index() -> None:
    """The one channel that matters is kept, and nothing else."""
    net = Net()
    x = net.input("x", np.arange(32, dtype=np.float32).reshape(1, 32))
    case = net.case(net.op("Relu", x))
    run = shrink(case, lambda case: 11.0 in np.asarray(case.inputs["x"]))
    assert np.asarray(run.case.inputs["x"]).tolist() == [[11.0]]


def test_two_indices() -> None:
    net = Net()
    x = net.input("x", np.arange(40, dtype=np.float32).reshape(1, 40))
    run = shrink(
        net.case(net.op("Relu", x)),
        lambda case: {3.0, 29.0} <= set(np.asarray(case.inputs["x"]).ravel().tolist()),
    )
    assert np.asarray(run.case.inputs["x"]).tolist() == [[3.0, 29.0]]


def test_candidates_are_valid() -> None:
    """No question is wasted: every candidate that is asked about runs."""
    for name in ("detector", "shuffler", "quantised", "embedder"):
        run = shrink(NETWORKS[name](), lambda case: sum(w[0] for w in weights(case, "Conv")) != 7)
        assert run.invalid == 0


def test_nothing_to_shrink_asks_nothing() -> None:
    net = Net()
    case = net.case(net.op("Relu", net.image(1, 1)))
    assert next(dims.edits(case.with_recording(record(case))), None) is None


def test_is_deterministic() -> None:
    case = NETWORKS["detector"]()
    first, second = (shrink(case, lambda c: input_shape(c)[2] >= 6) for _ in range(2))
    assert first.steps == second.steps
    assert ir.to_proto(first.case.model) == ir.to_proto(second.case.model)


def test_which_indices_of_classes_that_the_bug_ties() -> None:
    """A square weight whose first scales are alike: two that differ are enough."""
    scales = np.concatenate([np.full(28, 0.1), np.full(12, 0.7)]).astype(np.float32)

    def interesting(case: Case) -> bool:
        left, right = (np.asarray(case.inputs[name]).ravel() for name in ("x", "z"))
        return len(left) == len(right) and left.min() != left.max()

    net = Net()
    x, z = net.input("x", scales), net.input("z", np.arange(40, dtype=np.float32))
    run = shrink(net.case(net.op("Relu", x), net.op("Relu", z)), interesting)
    assert input_shape(run.case, "x") == input_shape(run.case, "z") == (2,)
    assert run.calls <= 30


@pytest.mark.parametrize("recorded_each_time", [True, False])
def test_sizes_of_a_model_that_no_backend_runs(recorded_each_time: bool) -> None:
    """Where an operator cannot run, the oracle decides about the sizes of its inputs."""
    case = case_of(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[M,6] d, float[6] e) => (float[K] y) <int64[1] k = {7}> {
          a = Add(d, e) r = Reshape(a, k) y = Exp(r)
        }""",
        d=np.ones((5, 6), np.float32),
        e=np.ones(6, np.float32),
    )
    case = case.with_recording(MadeUp.of(case))
    search = dims.edits(case)
    edit, calls = next(search, None), 0
    while edit is not None:
        candidate = edit.apply(case)
        accepted = candidate.size < case.size and np.size(candidate.inputs["d"]) > 2
        if accepted:
            case = candidate
            if recorded_each_time:
                case = case.with_recording(MadeUp.of(case))
        calls += 1
        try:
            edit = search.send(case if accepted else None)
        except StopIteration:
            break
    # Either axis may be the one that is left; the two inputs still fit each other.
    assert sorted(input_shape(case, "d")) == [1, 3]
    assert input_shape(case, "e") in ((1,), input_shape(case, "d")[1:])
    assert calls < 20


@pytest.mark.parametrize(
    ("name", "weight", "axis", "least", "left"),
    [
        ("branching", "e_c0", 1, 5, 27),
        ("looping", "s_c0", 0, 3, 25),
        ("scanning", "c1", 0, 7, 16),
    ],
)
def test_a_threshold_inside_a_body(
    name: str, weight: str, axis: int, least: int, left: int
) -> None:
    def size(case: Case) -> int:
        return next(
            root.shape[axis]
            for root in analyse(case).roots.values()
            if root.name == weight and root.shape
        )

    run = shrink(NETWORKS[name](), lambda case: size(case) >= least)
    assert size(run.case) == least
    assert run.invalid == 0
    assert run.calls < 30
    assert run.case.size.elements == left
