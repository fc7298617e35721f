"""Many models, one summary."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from models import parallel_branches

from onnxreduce.cli import main

ORACLE = """
def interesting(case):
    return "Tanh" in {node.op_type for node in case.model.graph.node}
"""


def test_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "oracle.py").write_text(ORACLE)
    models = tmp_path / "models"
    (models / "deep").mkdir(parents=True)
    onnx.save(parallel_branches(), models / "a.onnx")
    (models / "broken.onnx").write_bytes(b"no model")
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    onnx.save(other, models / "deep" / "c.onnx")
    arguments = ["batch", models, "--oracle", tmp_path / "oracle.py", "--output", models / "out"]
    command = [*map(str, arguments), "--quiet"]
    assert main(command[:-1]) == 2
    said, progress = capsys.readouterr()
    assert [line for line in progress.splitlines() if line.startswith("[")] == [
        "[1/3] a.onnx",
        "[2/3] broken.onnx",
        "[3/3] deep/c.onnx",
    ]
    rows = {row["model"]: row for row in json.loads((models / "out/summary.json").read_text())}
    assert set(rows) == {"a.onnx", "broken.onnx", "deep/c.onnx"}
    assert rows["a.onnx"]["after"][0] == 1
    assert rows["a.onnx"]["ops"] == {"Tanh": 1}
    assert rows["broken.onnx"]["status"] == 2
    assert rows["deep/c.onnx"]["status"] == 1
    assert "7 -> 1" in said
    assert "does not find the original interesting" in said
    assert max(map(len, said.splitlines())) < 120
    assert "1 of 3 reduced" in said
    (models / "broken.onnx").unlink()
    onnx.save(parallel_branches(), models / "b.onnx")
    assert main([*command, "--resume", "--json"]) == 0
    again = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert again["a.onnx"] == rows["a.onnx"]  # not run again
    assert again["b.onnx"]["ops"] == {"Tanh": 1}


def test_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert main(["batch", str(folder), "--oracle", "crashes"]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
