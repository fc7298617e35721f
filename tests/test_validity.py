"""Checks before the oracle."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper as h
from recording import Direct, case_of, light_case, parsed, recorded

from onnxreduce.case import Case
from onnxreduce.modelio import Store, save_model
from onnxreduce.passes._draft import infer_outputs
from onnxreduce.process import Worker
from onnxreduce.shapes import inferred
from onnxreduce.surgery import DeleteNodes
from onnxreduce.validity import STATIC, Checks, Skeleton, check_model, check_sorted, infer_shapes

X = np.array([1.5, -2.0, 3.25, -4.0], dtype=np.float32)
GOOD = "agraph (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }"


class Forbidden:
    """A worker that must not be needed."""

    def call(self, target: str, *args: object, **options: object) -> object:
        if target != "onnxreduce.recorder:run":
            return Direct().call(target, *args, **options)
        raise AssertionError("a run was asked for")


def saved(case: Case, directory: Path) -> Path:
    path = directory / "model.onnx"
    save_model(case, path)
    return path


def files(directory: Path) -> Store:
    return Store(directory / "candidates", external=False)


def passed_by(case: Case, directory: Path) -> Checks:
    return Checks.passed_by(case, saved(case, directory), Direct())


def unsorted_case() -> Case:
    case = parsed(GOOD, x=X)
    nodes = list(case.model.graph)
    case.model.graph.remove(nodes[0])
    case.model.graph.append(nodes[0])
    return case


def test_a_good_model_passes_all(tmp_path: Path) -> None:
    checks = passed_by(parsed(GOOD, x=X), tmp_path)
    assert checks.static == ("sorted", "checker", "shapes")
    assert checks.backend == "onnxruntime"


def test_unsorted_nodes() -> None:
    assert check_sorted(Skeleton.of(unsorted_case())) == "Neg reads a, which is not made before"


def test_unsorted_nodes_in_a_body() -> None:
    case = parsed(
        """agraph (float[4] x, bool c) => (float[4] y) {
            a = Relu(x)
            y = If(c) <
                then_branch = yes () => (float[4] p) { q = Neg(a) p = Exp(q) },
                else_branch = no () => (float[4] r) { r = Exp(a) }
            >
        }""",
        x=X,
        c=True,
    )
    assert check_sorted(Skeleton.of(case)) is None
    body = next(iter(case.model.graph.subgraphs()))
    for graph in case.model.graph.subgraphs():
        if len(graph) == 2:
            body = graph
    first = next(iter(body))
    body.remove(first)
    body.append(first)
    assert "Exp reads q" in (check_sorted(Skeleton.of(Case(case.model, case.inputs))) or "")


def test_the_checker_sees_a_model_without_its_weights() -> None:
    case = light_case("squeezenet")
    assert case.payloads
    assert check_model(Skeleton.of(case)) is None
    for node in case.model.graph:
        if node.op_type == "Conv":
            node.op_type = "NoSuchOperator"
            break
    broken = Skeleton.of(Case(case.model, case.inputs))
    assert "NoSuchOperator" in (check_model(broken) or "")
    assert all(list(tensor.dims) != [0] for tensor in broken.proto.graph.initializer)


def test_constants_in_attributes_may_be_large() -> None:
    weight = h.make_tensor("w", 1, [40, 40], np.zeros(1600))
    nodes = [
        h.make_node("Constant", [], ["w"], value=weight),
        h.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    value = h.make_tensor_value_info
    graph = h.make_graph(nodes, "g", [value("x", 1, [40])], [value("y", 1, [40])])
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 18)])
    case = case_of(model, {"x": np.zeros(40, np.float32)})
    assert case.payloads
    assert [check(Skeleton.of(case)) for check in STATIC.values()] == [None, None, None]


def test_shapes_that_contradict() -> None:
    case = parsed("agraph (float[4] x, float[3] z) => (float[4] y) { y = Add(x, z) }")
    assert "ncompatible" in (infer_shapes(Skeleton.of(case)) or "")


def test_a_candidate_that_does_not_run(tmp_path: Path) -> None:
    checks = passed_by(parsed(GOOD, x=X), tmp_path)
    candidate = parsed(
        "agraph (float[4] x) => (float[N] y) <int64[1] s = {3}> { y = Reshape(x, s) }", x=X
    )
    static = Checks(("sorted",), "onnxruntime", Direct())
    reason = static.check(candidate, files(tmp_path))
    assert reason is not None
    assert reason.startswith("onnxruntime: ")
    assert "\n" not in reason
    assert checks.check(parsed(GOOD, x=X), files(tmp_path)) is None


def test_what_the_original_fails_is_not_asked_of_candidates(tmp_path: Path) -> None:
    case = parsed(
        """<ir_version: 8, opset_import: ["": 18, "nowhere": 1]>
        agraph (float[4] x, float[3] z) => (float[4] y) { a = Add(x, z) y = nowhere.Custom(a) }""",
        x=X,
        z=X[:3],
    )
    checks = passed_by(case, tmp_path)
    assert "shapes" not in checks.static
    assert checks.backend is None
    assert checks.check(case, files(tmp_path)) is None


def test_the_reference_judges_where_onnxruntime_cannot(tmp_path: Path) -> None:
    case = parsed(
        """<ir_version: 10, opset_import: ["": 18, "ai.onnx.preview.training": 1]>
        agraph (float[4] x, float r, int64 t, float[4] g) => (float[4] y) {
            b, h2 = ai.onnx.preview.training.Adagrad(r, t, x, g, x)
            y = Neg(b)
        }""",
        x=X,
        r=np.float32(0.1),
        t=np.int64(1),
        g=X,
    )
    assert passed_by(case, tmp_path).backend == "reference"


def test_pure_cuts_of_a_case_that_ran_are_not_run(tmp_path: Path) -> None:
    case = recorded(parsed(GOOD, x=X))
    cut = DeleteNodes(("a",)).apply(case)
    checks = Checks(tuple(STATIC), "onnxruntime", Forbidden())
    assert checks.check(cut, files(tmp_path)) is None
    with pytest.raises(AssertionError, match="a run was asked for"):
        checks.check(cut.with_recording(None), files(tmp_path))


def hang(*args: object) -> None:
    time.sleep(60)


def abort(*args: object) -> None:
    os.abort()


@pytest.mark.parametrize(
    ("what", "reason"), [("hang", "no answer within 2 s"), ("abort", "SIGABRT")]
)
def test_a_run_that_hangs_or_crashes_is_a_reason(what: str, reason: str, tmp_path: Path) -> None:
    with Worker() as worker:

        class Bad:
            def call(self, target: str, *args: object, **options: object) -> object:
                return worker.call(
                    f"{__file__}:{what}", *args, timeout=2 if what == "hang" else 100
                )

        checks = Checks((), "onnxruntime", Bad())
        assert reason in (checks.check(parsed(GOOD, x=X), files(tmp_path)) or "")


def test_stored_models_pass_what_onnx_says_they_pass(tmp_path: Path) -> None:
    for name in ("squeezenet", "shufflenet"):
        case = light_case(name)
        path = saved(case, tmp_path)
        onnx.checker.check_model(str(path))
        assert check_model(Skeleton.of(case)) is None
        assert check_sorted(Skeleton.of(case)) is None


def test_recursive_functions_have_no_shapes_and_no_traceback() -> None:
    """Inference gives up on them with an error of its own kind."""
    opsets = [h.make_opsetid("", 17), h.make_opsetid("loc", 1)]
    call = h.make_node("R", ["p"], ["q"], domain="loc")
    recursive = h.make_function("loc", "R", ["p"], ["q"], [call], opsets)
    x, y = (h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy")
    nodes = [h.make_node("R", ["x"], ["a"], domain="loc"), h.make_node("Relu", ["a"], ["y"])]
    graph = h.make_graph(nodes, "g", [x], [y])
    proto = h.make_model(graph, opset_imports=opsets, functions=[recursive], ir_version=8)
    case = case_of(proto, {"x": X})
    assert infer_shapes(Skeleton.of(case)) is not None
    assert set(inferred(case.model)) == {"x", "y"}
    assert infer_outputs(case.model) == {}


def test_outputs_need_no_type() -> None:
    case = parsed(GOOD, x=X)
    output = case.model.graph.outputs[0]
    output.type = output.shape = None
    assert check_model(Skeleton.of(case)) is None
