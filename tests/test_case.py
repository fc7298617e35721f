from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from models import nested_model
from node_cases import node_cases
from onnx.backend.test.case.test_case import TestCase

from onnxreduce.case import Case, declared_inputs, graphs, tensors
from onnxreduce.modelio import Store, load_model, to_proto
from onnxreduce.tensors import SparseInitializer
from tests.roundtrip import normal


def saved(proto: onnx.ModelProto, tmp_path: Path, name: str = "model.onnx") -> Path:
    path = tmp_path / name
    onnx.save(proto, path)
    return path


def test_nothing_of_a_nested_model_is_lost(tmp_path: Path) -> None:
    proto = nested_model()
    case = Case(load_model(saved(proto, tmp_path)), {})
    assert normal(to_proto(case)) == normal(proto)
    assert normal(to_proto(Case(case.copy_model(), {}))) == normal(proto)


def test_graphs_and_tensors_are_found_everywhere(tmp_path: Path) -> None:
    model = load_model(saved(nested_model(), tmp_path))
    names = [graph.name for graph in graphs(model)]
    assert names[:5] == ["main", "then_graph", "deep", "deeper", "else_graph"]
    assert len(names) == 6  # and the function
    assert sum(tensor.size for tensor in tensors(model)) == 3 + 2 + 1 + 1


def sparse(name: str, dense: np.ndarray) -> onnx.SparseTensorProto:
    where = np.flatnonzero(dense)
    return onnx.helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(dense.reshape(-1)[where], name),
        onnx.numpy_helper.from_array(where.astype(np.int64), name + "_at"),
        list(dense.shape),
    )


def test_sparse_initializers_and_attributes_survive(tmp_path: Path) -> None:
    dense = np.array([[0, 5, 0], [7, 0, 0]], np.float32)
    make = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            make("Constant", [], ["c"], sparse_value=sparse("v", dense)),
            make("Add", ["c", "w"], "y"),
        ],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 3])],
        sparse_initializer=[sparse("w", dense)],
    )
    proto = onnx.helper.make_model(graph)
    case = Case(load_model(saved(proto, tmp_path)), {})
    held = case.model.graph.initializers["w"].const_value
    assert isinstance(held, SparseInitializer)
    np.testing.assert_array_equal(held.numpy(), dense)
    written = to_proto(Case(case.copy_model(), {}))
    assert written.graph.sparse_initializer == proto.graph.sparse_initializer
    assert written.graph.node[0] == proto.graph.node[0]
    assert not written.graph.initializer
    assert case.size.elements == 12
    other = Case(load_model(saved(proto, tmp_path, "again.onnx")), {})
    assert case.digest == other.digest
    proto.graph.sparse_initializer[0].values.raw_data = np.array([5, 8], np.float32).tobytes()
    changed = Case(load_model(saved(proto, tmp_path, "changed.onnx")), {})
    assert case.digest != changed.digest


@pytest.mark.parametrize(
    "dtype",
    [d for d in ir.DataType if d not in (ir.DataType.UNDEFINED, ir.DataType.STRING)],
    ids=lambda d: d.name,
)
@pytest.mark.parametrize("count", [3, 3001], ids=["small", "large"])
def test_tensors_of_every_type_survive(dtype: ir.DataType, count: int, tmp_path: Path) -> None:
    values = np.resize(np.array([0, 1, 1]), count).astype(dtype.numpy())
    tensor = ir.Tensor(values, dtype=dtype, name="w")
    weight = ir.Value(name="w", const_value=tensor, type=ir.TensorType(dtype), shape=tensor.shape)
    node = ir.Node("custom", "Op", [weight], outputs=[ir.Value(name="y")])
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[weight], name="g")
    graph.opset_imports.update({"": 21, "custom": 1})
    original = Case(ir.Model(graph, ir_version=13), {})
    for external in (False, True):
        path = Store(tmp_path / str(external), external).write(original)
        again = Case(load_model(path), {})
        assert again.digest == original.digest
        read = again.model.graph.initializers["w"].const_value
        assert read is not None
        assert read.numpy().tobytes() == values.tobytes()


def test_strings_are_kept_whole(tmp_path: Path) -> None:
    texts = [b"", "grün".encode(), b"x" * 5000]
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.STRING, [3], texts)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [3])],
        [tensor],
    )
    proto = onnx.helper.make_model(graph)
    case = Case(load_model(saved(proto, tmp_path)), {})
    assert list(to_proto(case).graph.initializer[0].string_data) == texts
    assert case.size.values == 2 * 5005


def test_skeleton_leaves_large_tensors_out_and_copies_share_them(tmp_path: Path) -> None:
    weights = np.arange(5000, dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["N"])],
        [onnx.helper.make_tensor_value_info("y", 1, ["N"])],
        [
            onnx.numpy_helper.from_array(np.ones(3, np.float32), "small"),
            onnx.numpy_helper.from_array(weights, "w"),
        ],
    )
    case = Case(load_model(saved(onnx.helper.make_model(graph), tmp_path)), {})
    assert len(case.encoded.content) < 300
    assert [part.index for part in case.payloads] == [1]
    assert case.encoded.message().graph.initializer[1].dims == [5000]
    copy = Case(case.copy_model(), {})
    assert copy.payloads[0].tensor is case.payloads[0].tensor
    assert copy.digest == case.digest


def test_digest_sees_every_change() -> None:
    model = ir.from_proto(nested_model())
    x = np.zeros((2, 3), np.float32)
    base = Case(model, {"x": x, "flag": np.array(True)})
    digests = {base.digest}
    for inputs in (
        {"x": x + 1, "flag": np.array(True)},
        {"x": x.reshape(3, 2), "flag": np.array(True)},
        {"x": x.view(np.int32), "flag": np.array(True)},
        {"x": [x], "flag": np.array(True)},
        {"x": None, "flag": np.array(True)},
    ):
        digests.add(Case(model, inputs).digest)
    other = base.copy_model()
    other.graph.initializers["w"].const_value = ir.Tensor(np.array([1, 2, 4], np.float32))
    digests.add(Case(other, base.inputs).digest)
    renamed = base.copy_model()
    renamed.graph.name = "other"
    digests.add(Case(renamed, base.inputs).digest)
    assert len(digests) == 8
    assert Case(base.copy_model(), base.inputs).digest == base.digest


def test_declared_inputs_leave_out_initializers_of_old_models() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
    )
    model = ir.from_proto(proto)
    assert [value.name for value in declared_inputs(model)] == ["x"]
    assert [value.name for value in to_proto(Case(model, {})).graph.input] == ["x", "w"]


def check_node_case(test: TestCase, tmp_path: Path) -> None:
    model = load_model(saved(test.model, tmp_path))
    case = Case(model, {})
    assert normal(to_proto(case)) == normal(test.model), test.name
    copy = Case(case.copy_model(), {})
    assert (copy.digest, copy.size) == (case.digest, case.size), test.name


@pytest.mark.slow
def test_nothing_is_lost_in_all_node_cases(tmp_path: Path) -> None:
    for test in node_cases():
        check_node_case(test, tmp_path)


def test_nothing_is_lost_in_the_light_models(tmp_path: Path) -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    paths = sorted(folder.glob("*.onnx"))
    assert paths
    for path in paths:
        assert normal(to_proto(Case(load_model(path), {}))) == normal(onnx.load(path)), path.name
