"""Recording of intermediate values."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper as h
from onnx import numpy_helper
from recording import Direct, case_of, light_case, parsed, recording_of

from onnxreduce.activations import LazyRecorder, MadeUp, Recorded, record
from onnxreduce.case import Case
from onnxreduce.graph import index
from onnxreduce.modelio import Store, save_model
from onnxreduce.process import Worker
from onnxreduce.shapes import ValueType, inferred

X = np.array([1.5, -2.0, 3.25, -4.0], dtype=np.float32)


def abort(*args: object) -> None:
    os.abort()


class Crashing(Direct):
    """A backend that takes its process down with it."""

    def __init__(self, worker: Worker, crashing: str) -> None:
        self.worker = worker
        self.crashing = crashing

    def call(
        self, target: str, *args: object, timeout: float | None = None, memory: int | None = None
    ) -> object:
        if args[0] == self.crashing:
            target = f"{__file__}:abort"
        return self.worker.call(target, *args, timeout=timeout, memory=memory)


def saved(case: Case, directory: Path) -> Path:
    path = directory / "model.onnx"
    save_model(case, path)
    return path


def test_values_are_those_of_the_model(tmp_path: Path) -> None:
    case = parsed(
        """agraph (float[N] x) => (float[N] y) {
            a = Relu(x)
            s = Shape(a)
            e = Constant<value = float[0] {}>()
            m = ReduceMax<keepdims = 0>(a)
            b = Greater(a, m)
            z = Concat<axis = 0>(e, a)
            v, i = TopK(z, s)
            y = Add(v, m)
            n = Not(b)
            d = Cast<to = 8>(n)
            q = Identity(d)
        }""",
        x=X,
    )
    recording = record(case, saved(case, tmp_path), Direct(), tmp_path)
    assert isinstance(recording, Recorded)
    expected = {
        "a": np.maximum(X, 0),
        "s": np.array([4]),
        "e": np.zeros(0, np.float32),
        "m": np.float32(3.25),
        "b": np.zeros(4, bool),
        "v": np.array([3.25, 1.5, 0, 0], np.float32),
        "y": np.array([6.5, 4.75, 3.25, 3.25], np.float32),
        "d": np.array(["1"] * 4, dtype=object),
    }
    for name, value in expected.items():
        got = recording.get(name)
        assert isinstance(got, np.ndarray)
        assert got.dtype == value.dtype
        assert got.shape == value.shape
        assert got.tolist() == value.tolist()
    assert recording.get("x") is None
    assert recording.get("i") is None  # nothing reads it: asking could change what runs
    assert "q" not in recording
    assert str(recording.type_of("a").shape) == "[N]"


def test_types_that_numpy_lacks_are_recorded_bit_for_bit(tmp_path: Path) -> None:
    nodes = []
    kinds = [
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.FLOAT8E4M3FN,
        onnx.TensorProto.FLOAT8E5M2,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.INT4,
    ]
    value = h.make_tensor_value_info
    for kind in kinds:
        nodes.append(h.make_node("Cast", ["x"], [f"c{kind}"], to=kind))
        nodes.append(h.make_node("Cast", [f"c{kind}"], [f"y{kind}"], to=1))
    graph = h.make_graph(
        nodes, "g", [value("x", 1, [3])], [value(f"y{kind}", 1, [3]) for kind in kinds]
    )
    model = h.make_model(graph, ir_version=10, opset_imports=[h.make_opsetid("", 21)])
    x = np.array([1.0, -2.0, 3.0], dtype=np.float32)
    recording = recording_of(case_of(model, {"x": x}))
    assert isinstance(recording, Recorded)
    for kind in kinds:
        got = recording.get(f"c{kind}")
        assert isinstance(got, np.ndarray)
        assert got.dtype == ir.DataType(kind).numpy()
        assert got.astype(np.float32).tolist() == x.tolist()


def test_inputs_of_types_that_numpy_lacks(tmp_path: Path) -> None:
    case = parsed(
        "agraph (bfloat16[2] x) => (float[2] y) { a = Identity(x) y = Cast<to = 1>(a) }",
        x=np.array([1, 2], dtype=ml_dtypes.bfloat16),
    )
    recording = recording_of(case)
    got = recording.get("a")
    assert isinstance(got, np.ndarray)
    assert got.dtype == ml_dtypes.bfloat16
    assert got.tolist() == [1, 2]


def test_sequences_are_lists(tmp_path: Path) -> None:
    case = parsed(
        """agraph (float[4] x) => (int64 y) {
            e = SequenceEmpty()
            a = Neg(x)
            s = SequenceInsert(e, a)
            t = SequenceInsert(s, x)
            y = SequenceLength(t)
        }""",
        x=X,
    )
    recording = recording_of(case)
    assert recording.get("e") == []
    assert [item.tolist() for item in recording.get("t")] == [(-X).tolist(), X.tolist()]


def test_a_wrongly_declared_output_does_not_stop_the_recording(tmp_path: Path) -> None:
    case = parsed(
        "agraph (float[4] x) => (float[9] y) { a = Neg(x) y = Concat<axis = 0>(a, x) }", x=X
    )
    case.model.graph.outputs[0].shape = ir.Shape([9])
    recording = recording_of(case)
    assert recording.get("a").tolist() == (-X).tolist()


def test_nothing_is_left_on_disk_and_values_outlive_the_file(tmp_path: Path) -> None:
    case = light_case("squeezenet")
    path = saved(case, tmp_path)
    recording = record(case, path, Direct(), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
    names = [key for key in index(case.model).order if key in recording]
    assert len(names) > 60
    value = recording.get(names[10])
    before = value.tobytes()
    del recording
    gc.collect()
    assert value.tobytes() == before
    assert not value.flags.writeable


def test_the_reference_is_the_second_choice(tmp_path: Path) -> None:
    # ONNX Runtime has the training operators only in builds of its own.
    case = parsed(
        """<ir_version: 10, opset_import: ["": 18, "ai.onnx.preview.training": 1]>
        agraph (float[4] x, float r, int64 t, float[4] g) => (float[4] y) {
            a = Relu(x)
            b, h2 = ai.onnx.preview.training.Adagrad(r, t, a, g, x)
            y = Neg(b)
        }""",
        x=X,
        r=np.float32(0.1),
        t=np.int64(1),
        g=X,
    )
    recording = recording_of(case)
    assert isinstance(recording, Recorded)
    assert recording.backend == "reference"
    assert recording.get("a").tolist() == np.maximum(X, 0).tolist()


def test_a_crash_costs_the_backend_not_the_reducer(tmp_path: Path) -> None:
    case = parsed("agraph (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }", x=X)
    path = saved(case, tmp_path)
    with Worker() as worker:
        recording = record(case, path, Crashing(worker, "onnxruntime"), tmp_path, timeout=120)
    assert isinstance(recording, Recorded)
    assert recording.backend == "reference"
    assert recording.get("a").tolist() == np.maximum(X, 0).tolist()


def test_where_nothing_runs_values_are_made_up_and_the_reason_is_told(tmp_path: Path) -> None:
    case = parsed(
        """<ir_version: 8, opset_import: ["": 18, "nowhere": 1]>
        agraph (float[N,4] x) => (float[N,4] y) {
            a = Relu(x)
            i = Shape(x)
            b = nowhere.Custom(a, i)
            y = Exp(b)
        }""",
        x=np.ones((3, 4), np.float32),
    )
    recording = record(case, saved(case, tmp_path), Direct(), tmp_path)
    assert isinstance(recording, MadeUp)
    assert "Custom" in recording.notice
    assert "\n" not in recording.notice
    value = recording.get("a")
    assert value.shape == (3, 4)
    assert value.dtype == np.float32
    assert value.tobytes() == recording.get("a").tobytes()
    assert recording.get("i").dtype == np.int64
    assert recording.type_of("b") is None
    assert recording.get("b").shape == (3, 4)  # guessed
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("dtype", [d for d in ir.DataType if d.value], ids=str)
def test_made_up_values_of_every_type(dtype: ir.DataType) -> None:
    made = MadeUp({"v": ValueType(ir.TensorType(dtype), ir.Shape([2, "n", None]))}, {"n": 3})
    value = made.get("v")
    assert isinstance(value, np.ndarray)
    assert value.shape == (2, 3, 2)
    assert value.dtype == (object if dtype == ir.DataType.STRING else dtype.numpy())


def test_weights_outside_the_file(tmp_path: Path) -> None:
    weight = np.arange(4096, dtype=np.float32).reshape(1024, 4)
    value = h.make_tensor_value_info
    graph = h.make_graph(
        [
            h.make_node("Neg", ["x"], ["a"]),
            h.make_node("MatMul", ["w", "a"], ["b"]),
            h.make_node("Neg", ["b"], ["y"]),
        ],
        "g",
        [value("x", 1, [4])],
        [value("y", 1, [1024])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 18)])
    case = case_of(model, {"x": X})
    store = Store(tmp_path / "candidates", external=True)
    path = store.write(case)
    assert path.stat().st_size < 2000
    with Worker() as worker:
        recording = record(case, path, worker, tmp_path, timeout=120)
    assert isinstance(recording, Recorded)
    assert recording.backend == "onnxruntime"
    assert np.allclose(recording.get("b"), weight @ -X)


def test_a_case_is_recorded_once(tmp_path: Path) -> None:
    case = parsed("agraph (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }", x=X)
    calls = []

    class Counting(Direct):
        def call(self, target: str, *args: object, **options: object) -> object:
            calls.append(target)
            return super().call(target, *args)

    store = Store(tmp_path / "candidates", external=False)
    lazy = LazyRecorder(store, Counting(), tmp_path)
    first = lazy.recorded(case)
    assert lazy.recorded(first) is first
    again = lazy.recorded(Case(case.model, case.inputs))
    assert again.recording is first.recording
    assert len(calls) == 1
    assert not list((tmp_path / "candidates").iterdir())


def test_inference_survives_weights_that_are_left_out() -> None:
    types = inferred(light_case("squeezenet").model)
    assert sum(known.shape is not None for known in types.values()) > 100


def test_types_that_inference_leaves_open_are_guessed_and_not_declared() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "my.dom": 1]>
        agraph (int64[4] x) => (y) {
            k = my.dom.Source()
            a = my.dom.Foo(x)
            b = Erf(a)
            c = Cast<to = 10>(b)
            y = my.dom.Bar(c, k)
        }"""
    )
    made_up = MadeUp.of(case_of(proto, {"x": np.arange(4)}))
    kinds = {"a": "int64", "b": "int64", "c": "float16", "k": "float16", "y": "float16"}
    for name, dtype in kinds.items():
        got = made_up.get(name)
        assert isinstance(got, np.ndarray)
        assert (got.dtype.name, got.shape) == (dtype, (4,))
    assert made_up.type_of("a") is None
    assert made_up.get("nobody") is None
