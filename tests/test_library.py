"""Use as a library: what may be given, and what is said of what may not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import parallel_branches
from onnx import helper as h

from onnxreduce import Case, ReduceError, Verdict, reduce
from onnxreduce.emit.privacy import privacy
from onnxreduce.oracle.contract import Candidate


def has_neg(case: Candidate) -> bool:
    return any(node.op_type == "Neg" for node in case.model.graph.node)


@pytest.mark.parametrize(
    "wrong", [{"tries": 0}, {"confirm": -1}, {"max_calls": 0}, {"seed": -1}, {"timeout": 0}]
)
def test_options_out_of_range_are_one_clear_line(wrong: dict[str, int]) -> None:
    with pytest.raises(ReduceError, match=f"{next(iter(wrong))} must be at least"):
        reduce(parallel_branches(), has_neg, **wrong)


def test_output_as_text_and_an_oracle_that_changes_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def wanders(case: Candidate) -> bool:
        os.chdir(tmp_path / "elsewhere")
        return has_neg(case)

    result = reduce(parallel_branches(), wanders, output="out")
    assert result.directory == tmp_path / "out"
    assert (tmp_path / "out" / "summary.json").exists()


def test_sparse_initializers_of_a_model_in_memory_are_kept() -> None:
    values = h.make_tensor("s", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    places = h.make_tensor("s_at", onnx.TensorProto.INT64, [2], [1, 3])
    ports = [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [5]) for name in "xy"]
    graph = h.make_graph(
        [h.make_node("Add", ["x", "s"], ["a"]), h.make_node("Neg", ["a"], ["y"])],
        "g",
        ports[:1],
        ports[1:],
        sparse_initializer=[h.make_sparse_tensor(values, places, [5])],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    before = model.SerializeToString()
    seen = []

    def oracle(case: Candidate) -> bool:
        seen.append(len(case.model.graph.sparse_initializer))
        return has_neg(case)

    reduce(model, oracle, inputs={"x": np.ones(5, np.float32)})
    assert seen[0] == 1
    assert model.SerializeToString() == before


def test_a_case_and_a_verdict(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parallel_branches(), path)
    first = reduce(path, lambda case: Verdict.interesting("yes") if has_neg(case) else False)
    again = reduce(Case(first.reduced.model, first.reduced.inputs), has_neg)
    assert again.reduced.size <= first.reduced.size
    assert first.verdict.detail == "yes"


def test_an_undefined_value_in_memory_is_one_clear_line() -> None:
    model = parallel_branches()
    model.graph.node[2].input[0] = "nowhere"
    with pytest.raises(ReduceError, match="nowhere"):
        reduce(model, has_neg)


def test_an_oracle_that_spoils_its_files_is_given_new_ones() -> None:
    """Each of its tries sees the candidate, not what the last one left of it."""
    seen: dict[Path, set[bytes]] = {}

    def spoils(case: Candidate) -> bool:
        content = case.model_path.read_bytes()
        shows = has_neg(case)
        onnx.save(parallel_branches(), case.model_path)
        seen.setdefault(case.model_path, set()).add(content)
        return shows and len(seen) % 3 > 0

    result = reduce(parallel_branches(), spoils, tries=4)
    assert all(len(contents) == 1 for contents in seen.values())
    assert "Neg" in {node.op_type for node in result.reduced.model.graph}


def test_numpy_scalars_are_tensors_of_rank_zero() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { a = Abs(x) y = Neg(a) }'
    )
    result = reduce(model, has_neg, inputs={"x": np.float32(2)})
    assert [node.op_type for node in result.reduced.model.graph] == ["Neg"]


def test_a_report_tells_that_a_dim_kept_its_name() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>'
        "g (float[secret_batch] x) => (float[secret_batch] y) { a = Abs(x) y = Neg(a) }"
    )

    def needs_the_name(case: Candidate) -> bool:
        return "secret_batch" in str(case.model.graph.input)

    assert "secret_batch" in privacy(reduce(model, needs_the_name))
    assert "secret_batch" not in privacy(reduce(model, has_neg))
