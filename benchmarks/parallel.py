"""What more jobs gain, and what the reducer costs besides the oracle.

    python benchmarks/parallel.py [--seconds 0.2] [--jobs 1 2 4] [--model MODEL --kinds Conv,Relu]

Runs the same reduction with each number of jobs, under an oracle that only waits, and prints wall
time, questions, how much faster than the first number of jobs, and the share of the time after the
original was judged in which no question was waiting for the oracle.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import helper

UNARY = ["Tanh", "Abs", "Neg", "Exp", "Sigmoid", "Softplus", "Sin", "Cos", "Atan", "Erf", "Elu"]

ORACLE = """
import time
def interesting(case, *, kinds: str, seconds: float):
    begin = time.time()
    found = {node.op_type for node in onnx_load(case).graph.node}
    time.sleep(max(0.0, begin + seconds - time.time()))
    with open(LOG, "a") as log:
        print(begin, time.time(), file=log)
    return set(kinds.split(",")) <= found

def onnx_load(case):
    import onnx
    return onnx.load(case.model_path, load_external_data=False)
"""


def line(length: int, culprits: dict[int, str]) -> onnx.ModelProto:
    kinds = [culprits.get(place, "Relu") for place in range(length)]
    nodes = [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"]) for i, kind in enumerate(kinds)]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16])
        for name in ("v0", f"v{length}")
    ]
    graph = helper.make_graph(nodes, "line", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--kinds", help="operators that the bug needs (of --model)")
    parser.add_argument("--culprits", type=int, default=4, help="how many, in a chain of 120")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or folder / "line.onnx"
        if options.model is None:
            kinds = UNARY[: options.culprits]
            options.kinds = ",".join(kinds)
            places = random.Random(1).sample(range(120), len(kinds))
            onnx.save(line(120, dict(zip(places, kinds, strict=True))), model)
        rows = [run(folder, model, jobs, options) for jobs in options.jobs]
    print(f"{'jobs':>4} {'wall s':>8} {'calls':>6} {'faster':>7} {'outside':>8}  result")
    for jobs, wall, outside, summary in rows:
        print(
            f"{jobs:4} {wall:8.1f} {summary['oracle_calls']:6} {rows[0][1] / wall:6.2f}x "
            f"{outside:8.1%}  {summary['digest'][:12]}, {summary['reduced']['nodes']} nodes"
        )


def run(
    folder: Path, model: Path, jobs: int, options: argparse.Namespace
) -> tuple[int, float, float, dict]:
    log = folder / f"log{jobs}"
    oracle = folder / "oracle.py"
    oracle.write_text(f"LOG = {str(log)!r}\n{ORACLE}")
    output = folder / f"out{jobs}"
    settings = [f"kinds={options.kinds}", f"seconds={options.seconds}"]
    command = [sys.executable, "-m", "onnxreduce", model, "--oracle", oracle, "--output", output]
    command += [part for setting in settings for part in ("--set", setting)]
    command += ["--jobs", str(jobs), "--quiet"]
    subprocess.run(list(map(str, command)), check=True)
    spans = [tuple(map(float, line.split())) for line in log.read_text().splitlines()]
    spans = sorted(spans[2:-1])  # without the original, and the result in a fresh process
    wall = spans[-1][1] - spans[0][0]
    return jobs, wall, 1 - covered(spans) / wall, json.loads((output / "summary.json").read_text())


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one question was with the oracle."""
    total, until = 0.0, 0.0
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
