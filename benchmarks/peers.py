"""Prints the table of the README: what is left, and in how many oracle calls.

    python benchmarks/peers.py                    the rows below
    python benchmarks/peers.py --oracles DIR      the same rows with executable oracles from DIR
    python benchmarks/peers.py --polygraphy CMD   also run Polygraphy's reducer, side by side
    python benchmarks/peers.py conv7x7_relu ...   only these rows

One job, so that no question is asked on speculation. Calls are counted without the check of the
original; "nodes at" is the number of calls after which
the smallest known number of nodes was reached.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import onnx
from fat_models import build

from onnxreduce import journal, reduce
from onnxreduce.result import describe

HERE = Path(__file__).parent
CHECKS = 2
"""How often the original is asked about before the search begins."""


@dataclass(frozen=True)
class Row:
    """A benchmark: an oracle, a model, and the best known result."""

    name: str
    oracle: str
    model: str
    nodes: int
    weight_bytes: int
    input_elements: int


ROWS = (
    Row("a1", "conv7x7_relu", "inception_v1", 2, 196, 1),
    Row("b1", "conv_and_gemm", "resnet50", 2, 204, 2),
    Row("c2", "maxpool_concat", "inception_v1", 4, 4, 1),
    Row("d2", "concat_wide", "squeezenet", 2, 0, 128),
    Row("e3", "clip_optional", "clip_optional", 1, 4, 1),
)

CLIP = """<ir_version: 8, opset_import: ["" : 15]>
g (float[1,8,16,16] x) => (float[1,8,16,16] y) {
  a = Relu(x)
  six = Constant<value_float = 6.0>()
  b = Clip(a, , six)
  c = Abs(b)
  y = Add(c, x)
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="names such as a1, or oracles")
    parser.add_argument("--models", type=Path, default=HERE / "models")
    parser.add_argument("--oracles", type=Path, help="executable oracles, named <row>_*.py")
    parser.add_argument("--polygraphy", help="the polygraphy command, if it is to run too")
    options = parser.parse_args()
    print(
        f"{'row':4} {'oracle':15} {'model':13} {'original':>26} {'left':>20} {'best':>16} "
        f"{'nodes at':>8} {'calls':>6} {'invalid':>7} {'s':>7} {'outside':>8}"
    )
    for row in ROWS:
        if not options.rows or {row.name, row.oracle} & set(options.rows):
            _ours(row, options)
            if options.polygraphy:
                _polygraphy(row, options)


def _ours(row: Row, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        result = reduce(_model(row, options.models), _oracle(row, options), output=output, jobs=1)
        events = list(journal.read(output / "journal.jsonl"))
    reached = [e["calls"] for e in events if e["event"] == "accepted" and e["nodes"] <= row.nodes]
    before, after = describe(result.original), describe(result.reduced)
    outside = 1 - result.oracle_seconds / result.seconds
    print(
        f"{row.name:4} {row.oracle:15} {row.model:13} {_figures(before):>26} {_figures(after):>20} "
        f"{row.nodes} / {row.weight_bytes} / {row.input_elements:<6} "
        f"{reached[0] - CHECKS if reached else '-':>8} {result.oracle_calls - CHECKS:>6} "
        f"{result.invalid:>7} {result.seconds:7.1f} {outside:7.1%}",
        flush=True,
    )


def _figures(described: dict[str, int]) -> str:
    return f"{described['nodes']} / {described['bytes']:,} / {described['input_elements']:,}"


def _model(row: Row, models: Path) -> Path:
    if row.model != "clip_optional":
        return build(row.model, models)
    path = models / "clip_optional.onnx"
    models.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(CLIP), path)
    return path


def _oracle(row: Row, options: argparse.Namespace) -> Path:
    if options.oracles is None:
        return HERE / "oracles" / f"{row.oracle}.py"
    return next(options.oracles.glob(f"{row.name}_*.py"))


def _polygraphy(row: Row, options: argparse.Namespace) -> None:
    """`polygraphy debug reduce` asks a command; ours answers with the same oracle."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "calls"
        check = [sys.executable, str(HERE / "as_command.py"), str(_oracle(row, options)), str(log)]
        began = time.monotonic()
        done = subprocess.run(
            [
                *options.polygraphy.split(),
                "debug",
                "reduce",
                str(_model(row, options.models)),
                "-o",
                "reduced.onnx",
                "--mode",
                "bisect",
                "--check",
                *check,
                "polygraphy_debug.onnx",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        reduced = Path(folder) / "reduced.onnx"
        calls = len(log.read_text().splitlines()) if log.exists() else 0
        if reduced.exists():
            model = onnx.load(reduced)
            size = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
            left = f"{len(model.graph.node)} / {size:,} bytes"
        else:
            left = f"failed ({done.returncode})"
        print(
            f"     polygraphy bisect: {left}, {calls} calls, {time.monotonic() - began:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
