"""The main job on real networks with planted bugs whose minimal form is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
from models import parallel_branches

from onnxreduce import Case, Verdict, reduce, schedule
from onnxreduce.edits import Proposals
from onnxreduce.errors import NotInteresting
from onnxreduce.modelio import to_proto
from onnxreduce.oracle.contract import Candidate
from onnxreduce.result import describe

ROOT = Path(__file__).parent.parent


def load(path: Path) -> ModuleType:
    """A script of the project as a module."""
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def kinds(candidate: Candidate) -> set[str]:
    return {node.op_type for node in candidate.model.graph.node}


def test_unet_with_a_wrong_auto_pad_ends_at_the_one_conv(tmp_path: Path) -> None:
    example = ROOT / "examples" / "auto_pad"
    path = tmp_path / "unet.onnx"
    onnx.save(load(example / "make_model.py").unet(), path)
    result = reduce(path, example / "diverges.py")
    reduced = to_proto(result.reduced)
    (conv,) = reduced.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}
    assert result.original.size.nodes == 99
    assert conv.op_type == "Conv"
    assert attributes["auto_pad"] == b"SAME_UPPER"
    assert max(attributes["strides"]) == 2
    assert describe(result.reduced)["input_elements"] <= 9
    assert result.reduced.size.elements <= 18
    assert result.one_minimal
    assert result.confirmed
    inputs = dict(result.reduced.inputs)
    values = np.concatenate([np.ravel(value) for value in inputs.values()])
    assert np.array_equal(values, np.round(values))
    oracle = load(example / "diverges.py")
    assert oracle.interesting(SimpleNamespace(model=reduced, inputs=inputs))


@pytest.mark.parametrize(
    ("model", "oracle", "nodes", "weight_bytes", "elements"),
    [
        ("squeezenet", "concat_wide", 2, 0, 128),
        pytest.param("inception_v1", "conv7x7_relu", 2, 196, 1, marks=pytest.mark.slow),
        pytest.param("resnet50", "conv_and_gemm", 2, 204, 2, marks=pytest.mark.slow),
        pytest.param("inception_v1", "maxpool_concat", 4, 16, 1, marks=pytest.mark.slow),
    ],
)
def test_benchmarks_end_at_the_best_known(
    model: str, oracle: str, nodes: int, weight_bytes: int, elements: int, tmp_path: Path
) -> None:
    path = load(ROOT / "benchmarks" / "fat_models.py").build(model, tmp_path)
    result = reduce(path, ROOT / "benchmarks" / "oracles" / f"{oracle}.py")
    left = describe(result.reduced)
    assert left["nodes"] == nodes
    assert left["bytes"] <= weight_bytes
    assert left["input_elements"] <= elements
    assert result.one_minimal
    assert result.confirmed


def test_a_function_is_an_oracle() -> None:
    result = reduce(parallel_branches(), lambda case: "Neg" in kinds(case))
    assert describe(result.reduced)["ops"] == {"Neg": 1}
    assert result.directory is None


def test_another_signature_is_another_bug() -> None:
    def signed(case: Candidate) -> Verdict:
        """Without Tanh it is still 'interesting', but for another reason."""
        return Verdict.interesting("seen", "tanh" if "Tanh" in kinds(case) else "other")

    result = reduce(parallel_branches(), signed)
    assert describe(result.reduced)["ops"] == {"Tanh": 1}
    assert result.verdict.signature == "tanh"


def test_an_uninteresting_original_is_an_error() -> None:
    with pytest.raises(NotInteresting, match="original"):
        reduce(parallel_branches(), lambda case: False)


def test_without_cuts_the_models_own_inputs_stay() -> None:
    result = reduce(parallel_branches(), lambda case: "Neg" in kinds(case), cuts=False)
    graph = result.reduced.model.graph
    assert "Neg" in describe(result.reduced)["ops"]
    assert len(graph.inputs) == 1


def test_a_broken_pass_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case) -> Proposals:
        raise RuntimeError("a mistake of ours")
        yield

    stages = schedule.stages()
    stages.insert(0, schedule.Stage("broken", broken))
    monkeypatch.setattr("onnxreduce.reducer.stages", lambda **options: stages)
    result = reduce(parallel_branches(), lambda case: "Neg" in kinds(case))
    assert describe(result.reduced)["ops"] == {"Neg": 1}
    assert not result.one_minimal
    assert any("a mistake of ours" in note for note in result.notes)


def test_an_input_and_an_output_are_left() -> None:
    """An oracle that says yes to everything gets a model that still is one."""
    result = reduce(parallel_branches(), lambda case: True)
    graph = result.reduced.model.graph
    assert len(graph.inputs) == 1
    assert len(graph.outputs) == 1
    onnx.checker.check_model(to_proto(result.reduced), full_check=True)
    assert describe(result.reduced)["nodes"] == 1


def test_custom_operators_that_nothing_runs_are_cut_out(tmp_path: Path) -> None:
    """Values behind them have no known type: what is fed is guessed, and the oracle decides."""
    domain = "my.dom"
    ops = ["Foo"] * 5 + ["Bug"] + ["Foo"] * 4
    nodes = [
        onnx.helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], domain=domain)
        for i, op in enumerate(ops)
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3])
        for name in ("v0", "v10")
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(domain, 1)]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    result = reduce(model, lambda candidate: "Bug" in kinds(candidate))
    assert [node.op_type for node in result.reduced.model.graph] == ["Bug"]
    assert result.one_minimal
