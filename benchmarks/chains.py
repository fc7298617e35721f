"""Long chains with few culprits: what a reduction costs where the model is nothing but nodes.

    python benchmarks/chains.py [--length 10000]

Printed for each row: questions, seconds of wall time outside the oracle from the first question
about the original to the written result, seconds of processor time of the reducer's own process in
all, and nodes left. The oracle looks for operators in the graph, as a Python file and as a program.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import onnx
from parallel import UNARY, line

from onnxreduce import reduce

FUNCTION = """
import onnx
def interesting(case):
    model = onnx.load(case.model_path, load_external_data=False)
    return {kinds} <= {{node.op_type for node in model.graph.node}}
"""

PROGRAM = """#!{python}
import sys, onnx
model = onnx.load(sys.argv[1], load_external_data=False)
sys.exit(0 if {kinds} <= {{node.op_type for node in model.graph.node}} else 1)
"""

PLACES = ((1 / 3,), (0.0,), (1.0,), (0.1, 0.9))
"""Of the culprits, from the first node to the last."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=10_000)
    options = parser.parse_args()
    print(f"{'nodes':>6} {'culprits':>12} {'oracle':8} {'calls':>5} {'outside s':>9} {'cpu s':>6}")
    for shares in PLACES:
        places = [round(share * (options.length - 1)) for share in shares]
        for form in ("function", "program"):
            run(options.length, places, form)


def run(length: int, places: list[int], form: str) -> None:
    kinds = UNARY[: len(places)]
    with tempfile.TemporaryDirectory() as name:
        model, oracle = Path(name) / "line.onnx", Path(name) / "oracle"
        onnx.save(line(length, dict(zip(places, kinds, strict=True))), model)
        if form == "function":
            oracle = oracle.with_suffix(".py")
        text = FUNCTION if form == "function" else PROGRAM
        oracle.write_text(text.format(kinds=repr(set(kinds)), python=sys.executable))
        oracle.chmod(0o755)
        began = time.process_time()
        result = reduce(model, oracle, output=Path(name) / "out", jobs=1)
        spent = time.process_time() - began
    if result.reduced.size.nodes != len(places):
        raise SystemExit(f"{result.reduced.size.nodes} nodes are left of {length}")
    print(
        f"{length:6} {','.join(map(str, places)):>12} {form:8} {result.oracle_calls:5} "
        f"{result.seconds - result.oracle_seconds:9.1f} {spent:6.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
