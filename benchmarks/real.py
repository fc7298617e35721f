"""Reduces real bugs in released software, and prints the oracle calls that each took.

    python benchmarks/real.py CASES [NAME...]

CASES holds a folder a bug, with `big.py OUT.onnx` (writes a large model that shows it),
`model_min.py OUT.onnx` (the smallest model known) and `oracle.py MODEL INPUTS` (exits 0 while the
bug shows). Calls are counted without the check of the original.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from peers import CHECKS

from onnxreduce import journal, reduce
from onnxreduce.result import describe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--oracle", help="an oracle for all of them instead of each case's own")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    names = options.names or sorted(p.parent.name for p in options.cases.glob("*/oracle.py"))
    print(
        f"{'case':29}{'nodes':>12}{'known':>6}{'at call':>8}{'calls':>6}{'invalid':>8}"
        f"{'elements':>20}{'s':>7}{'outside':>8}"
    )
    reached = [_reduce(options.cases / name, options) for name in names]
    hits = [calls for calls in reached if calls is not None]
    print(
        f"mean calls to the smallest known number of nodes: {sum(hits) / max(1, len(hits)):.1f} "
        f"({len(hits)} of {len(names)} cases)"
    )


def _reduce(case: Path, options: argparse.Namespace) -> int | None:
    with tempfile.TemporaryDirectory() as folder:
        big, least = Path(folder) / "big.onnx", Path(folder) / "min.onnx"
        for script, path in (("big.py", big), ("model_min.py", least)):
            subprocess.run(
                [sys.executable, str(case / script), str(path)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        known = count_nodes(onnx.load(least))
        settings = dict(pair.split("=", 1) for pair in options.set)
        oracle = options.oracle or case / "oracle.py"
        result = reduce(big, oracle, output=Path(folder) / "out", settings=settings, jobs=1)
        events = list(journal.read(Path(folder) / "out" / "journal.jsonl"))
    before, after = describe(result.original), describe(result.reduced)
    first = next(
        (e["calls"] - CHECKS for e in events if e["event"] == "accepted" and e["nodes"] <= known),
        None,
    )
    nodes = f"{before['nodes']} -> {after['nodes']}"
    elements = f"{before['elements']:,} -> {after['elements']}"
    print(
        f"{case.name:29}{nodes:>12}{known:>6}{first if first is not None else '-':>8}"
        f"{result.oracle_calls - CHECKS:>6}{result.invalid:>8}{elements:>20}"
        f"{result.seconds:7.1f}{1 - result.oracle_seconds / result.seconds:8.1%}",
        flush=True,
    )
    return first


def count_nodes(model: onnx.ModelProto) -> int:
    """Of the main graph and of all graphs inside it."""

    def count(graph: onnx.GraphProto) -> int:
        return len(graph.node) + sum(
            count(a.g) for n in graph.node for a in n.attribute if a.HasField("g")
        )

    return count(model.graph)


if __name__ == "__main__":
    main()
