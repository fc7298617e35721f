"""Looking ahead: any number of jobs takes the same steps to the same result, only sooner."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from models import Builder, parallel_branches, value

from onnxreduce.cli import main

KINDS = """
import time
def interesting(case, *, kinds: str, seconds: float = 0.0):
    time.sleep(seconds)
    return set(kinds.split(",")) <= {node.op_type for node in case.model.graph.node}
"""


def convolutions() -> onnx.ModelProto:
    """A small network with weights, where sizes and values are shrunk as well."""
    b = Builder()
    x = b.op("Conv", "x", b.normal(4, 3, 3, 3), pads=[1, 1, 1, 1])
    x = b.op("Relu", x)
    skip = x
    x = b.op("Conv", x, b.normal(4, 4, 3, 3), pads=[1, 1, 1, 1], strides=[1, 1])
    x = b.op("Add", x, skip)
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("Sigmoid", x)
    x = b.op("GlobalAveragePool", x)
    x = b.op("Flatten", x)
    x = b.op("Gemm", x, b.normal(4, 5))
    return b.model([value("x", ["batch", 3, 8, 8])], [value(x, ["batch", 5])])


def line(kinds: list[str]) -> onnx.ModelProto:
    b = Builder()
    x = "x"
    for kind in kinds:
        x = b.op(kind, x)
    return b.model([value("x", [2, 3])], [value(x, [2, 3])])


MODELS = {
    "branches": parallel_branches(),
    "convolutions": convolutions(),
    "line": line((["Relu"] * 5 + ["Tanh"] + ["Abs"] * 7 + ["Neg"] + ["Exp"] * 3) * 2),
}

SLOW = pytest.mark.slow

CASES = [
    ("branches", "Relu,Tanh"),
    *(
        pytest.param(model, kinds, marks=SLOW)
        for model, kinds in (
            ("branches", "Sqrt"),
            ("branches", "Abs,Neg"),
            ("convolutions", "MaxPool,Gemm"),
            ("convolutions", "Conv,Sigmoid"),
            ("convolutions", "Conv,Add"),
            ("convolutions", "Gemm"),
            ("line", "Tanh,Neg"),
            ("line", "Abs"),
            ("line", "Relu,Exp,Neg"),
        )
    ),
]


def run(folder: Path, model: str, oracle: Path, *options: str) -> tuple[str, list[tuple]]:
    """The digest of the result, and the accepted steps."""
    path = folder / "model.onnx"
    onnx.save(MODELS[model], path)
    output = folder / f"out{len(list(folder.iterdir()))}"
    arguments = [path, "--oracle", oracle, "--output", output, "--quiet", *options]
    assert main([str(argument) for argument in arguments]) == 0
    events = [json.loads(line) for line in (output / "journal.jsonl").read_text().splitlines()]
    steps = [
        (event["stage"], event["edit"], event["digest"])
        for event in events
        if event["event"] == "accepted"
    ]
    return json.loads((output / "summary.json").read_text())["digest"], steps


@pytest.fixture
def oracle(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.py"
    path.write_text(textwrap.dedent(KINDS))
    return path


@pytest.mark.parametrize(("model", "kinds"), CASES)
def test_jobs_take_the_same_steps(model: str, kinds: str, oracle: Path, tmp_path: Path) -> None:
    runs = [
        run(tmp_path, model, oracle, "--set", f"kinds={kinds}", "--jobs", str(jobs))
        for jobs in (1, 2, 4)
    ]
    assert runs[0][1]
    assert runs[0] == runs[1] == runs[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a scheduler with two workers, processes of their own."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as local:
        yield local.scheduler_address


@pytest.mark.slow
@pytest.mark.parametrize(("model", "kinds"), CASES)
def test_cluster_takes_the_same_steps(
    model: str, kinds: str, cluster: str, oracle: Path, tmp_path: Path
) -> None:
    settings = ("--set", f"kinds={kinds}")
    here = run(tmp_path, model, oracle, *settings, "--jobs", "1")
    assert run(tmp_path, model, oracle, *settings, "--dask", cluster) == here


@pytest.mark.slow
def test_cluster_gets_each_tensor_once(cluster: str, tmp_path: Path) -> None:
    from onnxreduce.oracle.cluster import Cluster, _split

    b = Builder()
    x = b.op("MatMul", "x", b.normal(64, 64))
    model = b.model([value("x", [1, 64])], [value(x, [1, 64])])
    paths = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    for number, path in enumerate(paths):
        model.producer_name = str(number)
        onnx.save(model, path)
    with Cluster(cluster) as connection:
        first, second = (connection.tensor(_split(path)[2][0]) for path in paths)
    assert first is second
    assert [len(_split(path)[0]) < 1000 for path in paths] == [True, True]


@pytest.mark.slow
def test_cluster_that_is_not_there(
    oracle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    onnx.save(parallel_branches(), tmp_path / "model.onnx")
    arguments = [str(tmp_path / "model.onnx"), "--oracle", str(oracle), "--set", "kinds=Relu"]
    output = ["--output", str(tmp_path / "out"), "--quiet"]
    assert main([*arguments, *output, "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers" in capsys.readouterr().err
