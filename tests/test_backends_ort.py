from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from onnxreduce.backends import Backend, BackendError, open_backend

HERE = ["ort", "ort:isolate", f"ort:python={sys.executable}"]
"""In this process, in a child, and as another interpreter's."""

FUSED = """
<ir_version: 8, opset_import: ["" : 17]>
g (int32[3] x, int32[3] y) => (int32[3] z) <int32 one = {1}> {
  r = Div(one, x)
  z = Mul(r, y)
}
"""
"""ONNX Runtime rewrites (1/x)*y to y/x, which integers do not bear."""

INPUTS = {"x": np.array([2, 3, 1], np.int32), "y": np.array([4, 9, 5], np.int32)}


@pytest.fixture(scope="module", params=HERE)
def ort(request: pytest.FixtureRequest) -> Iterator[Backend]:
    backend = open_backend(request.param)
    yield backend
    backend.close()


def save(text: str, path: Path) -> str:
    onnx.save(parser.parse_model(text), path)
    return str(path)


def identity(tmp_path: Path, element_type: int) -> str:
    x, y = (helper.make_tensor_value_info(name, element_type, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "i.onnx")
    return str(tmp_path / "i.onnx")


def test_outputs_by_name(ort: Backend, tmp_path: Path) -> None:
    path = save(FUSED, tmp_path / "m.onnx")
    np.testing.assert_array_equal(ort.run(path, INPUTS)["z"], [2, 3, 5])
    values = ort.run_all(path, INPUTS)
    np.testing.assert_array_equal(values["r"], [0, 0, 1])
    # With the value between the two nodes in use they are not fused.
    np.testing.assert_array_equal(values["z"], [0, 0, 5])


def test_failures_have_a_kind(ort: Backend, tmp_path: Path) -> None:
    path = save(FUSED, tmp_path / "m.onnx")
    with pytest.raises(BackendError, match="Invalid rank for input") as caught:
        ort.run(path, {**INPUTS, "x": np.ones((2, 2), np.int32)})
    assert caught.value.kind == "run"
    bad = save(FUSED.replace("Mul(r", "Mull(r"), tmp_path / "bad.onnx")
    with pytest.raises(BackendError, match="Mull") as caught:
        ort.run(bad, INPUTS)
    assert caught.value.kind == "load"
    # Neither leaves a trace.
    np.testing.assert_array_equal(ort.run(path, INPUTS)["z"], [2, 3, 5])


def test_a_batch_gives_each_its_result_or_error(ort: Backend, tmp_path: Path) -> None:
    path = save(FUSED, tmp_path / "m.onnx")
    good, bad = (path, INPUTS), (path, {"x": INPUTS["x"]})
    results = ort.run_batch([good, bad, good])
    assert isinstance(results[1], BackendError)
    assert [isinstance(result, dict) for result in results] == [True, False, True]


@pytest.mark.parametrize(
    ("element_type", "dtype"),
    [
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.BOOL, np.bool_),
        (TensorProto.INT8, np.int8),
    ],
)
def test_element_types(ort: Backend, tmp_path: Path, element_type: int, dtype: type) -> None:
    x = np.array([1, 0], dtype)
    y = ort.run(identity(tmp_path, element_type), {"x": x})["y"]
    assert isinstance(y, np.ndarray)
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", [object, str])
def test_strings(ort: Backend, tmp_path: Path, dtype: type) -> None:
    x = np.array(["a", "bé"], dtype)
    y = ort.run(identity(tmp_path, TensorProto.STRING), {"x": x})["y"]
    assert isinstance(y, np.ndarray)
    assert y.tolist() == ["a", "bé"]


def test_sequences(ort: Backend, tmp_path: Path) -> None:
    path = save(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (seq(float[N]) s, float[N] x) => (seq(float[N]) t, int64 n)
        { t = SequenceInsert(s, x) n = SequenceLength(t) }""",
        tmp_path / "s.onnx",
    )
    one, two = np.float32([1, 2]), np.float32([3])
    found = ort.run(path, {"s": [one], "x": two})
    assert isinstance(found["t"], list)
    assert [item.tolist() for item in found["t"]] == [[1, 2], [3]]
    assert found["n"] == 2


def test_external_weights_stay_in_their_file(ort: Backend, tmp_path: Path) -> None:
    graph = parser.parse_graph("g (float[4] x) => (float[4] y) { s = Add(x, w) y = Neg(s) }")
    weights = np.arange(4, dtype=np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = {entry.name: entry.stat().st_mtime_ns for entry in tmp_path.iterdir()}
    values = ort.run_all(str(path), {"x": weights})
    np.testing.assert_array_equal(values["s"], 2 * weights)
    assert {entry.name: entry.stat().st_mtime_ns for entry in tmp_path.iterdir()} == before


def test_values_inside_branches_are_not_asked_for(ort: Backend, tmp_path: Path) -> None:
    path = save(
        """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) {
          h = Neg(x)
          y = If(c) <then_branch = t () => (float[2] a) { i = Abs(h) a = Neg(i) },
                     else_branch = e () => (float[2] b) { b = Identity(h) }>
        }""",
        tmp_path / "if.onnx",
    )
    values = ort.run_all(path, {"c": np.array(True), "x": np.float32([1, -2])})
    assert set(values) == {"h", "y"}
    np.testing.assert_array_equal(values["y"], [-1, -2])


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("ort:opt=disable_all", [0, 0, 5]),
        ("ort:opt=basic", [2, 3, 5]),
        ("ort:disabled=DivMulFusion", [0, 0, 5]),
        ("ort:disabled=ConstantFolding+DivMulFusion", [0, 0, 5]),
        ("ort:ep=cpu,threads=2,session.disable_prepacking=1", [2, 3, 5]),
    ],
)
def test_options(tmp_path: Path, spec: str, wanted: list[int]) -> None:
    found = open_backend(spec).run(save(FUSED, tmp_path / "m.onnx"), INPUTS)
    np.testing.assert_array_equal(found["z"], wanted)


def test_a_provider_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no execution provider QNNExecutionProvider") as caught:
        open_backend("ort:ep=qnn").run(save(FUSED, tmp_path / "m.onnx"), INPUTS)
    assert caught.value.kind == "unsupported"


def test_a_provider_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU does not answer in its place."""
    azure = "AzureExecutionProvider"
    if azure not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has the CPU alone")
    start = onnxruntime.InferenceSession._create_inference_session

    def without_adapter(self: object, providers: list[str], *others: object) -> object:
        if providers == [azure]:
            raise RuntimeError("no adapter")
        return start(self, providers, *others)

    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", without_adapter)
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
    path = save(text, tmp_path / "m.onnx")
    with pytest.raises(BackendError, match="no adapter") as caught:
        open_backend(f"ort:ep={azure}").run(path, {"x": np.ones(2, np.float32)})
    assert caught.value.kind == "load"


def test_an_interpreter_without_the_runtime(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False)
    backend = open_backend(f"ort:python={tmp_path / 'bare' / 'bin' / 'python'}")
    with pytest.raises(BackendError, match="No module named") as caught:
        backend.version()
    assert caught.value.kind == "unsupported"
    backend.close()
    with pytest.raises(BackendError, match="cannot run /nowhere/python"):
        open_backend("ort:python=/nowhere/python").version()


def test_the_optimised_model_can_be_written(tmp_path: Path) -> None:
    from onnxreduce.backends.ort import OrtBackend

    backend = open_backend("ort")
    assert isinstance(backend, OrtBackend)
    backend.rewrite(save(FUSED, tmp_path / "m.onnx"), str(tmp_path / "o.onnx"))
    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == ["Div"]


def test_timing_counts_the_run_alone(tmp_path: Path) -> None:
    path = save(FUSED, tmp_path / "m.onnx")
    seconds = open_backend("ort").run_timed(path, INPUTS, 5)
    assert len(seconds) == 5
    assert 0 < min(seconds) < 0.01


def test_a_model_that_changed_under_its_name_is_loaded_again(tmp_path: Path) -> None:
    backend = open_backend("ort")
    path = save(FUSED, tmp_path / "m.onnx")
    backend.run_timed(path, INPUTS)
    save(FUSED.replace("Mul(r, y)", "Sub(r, y)"), tmp_path / "m.onnx")
    np.testing.assert_array_equal(backend.run(path, INPUTS)["z"], [-4, -9, -4])
