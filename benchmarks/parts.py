"""What the parts cost that are used for every question: milliseconds, the median and the least.

    python benchmarks/parts.py [--web web@1.30.0:wasm]

Nothing here is a bar that a test holds: other processes of the machine come in between.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper as h

from onnxreduce.activations import MadeUp
from onnxreduce.backends import open_backend
from onnxreduce.case import Case
from onnxreduce.graph import Index
from onnxreduce.oracle.loading import find_oracle
from onnxreduce.oracle.runners import Limits
from onnxreduce.process import Worker
from onnxreduce.surgery import KeepNodes

X = np.ones((1, 4, 16, 16), np.float32)


def clock(name: str, action: Callable[[], object], repeats: int) -> None:
    """Prints one row of the table."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) * 1000)
    print(f"{name:44s}{statistics.median(times):10.2f}{min(times):10.2f}{repeats:9d}", flush=True)


def chain(length: int) -> onnx.ModelProto:
    """Relu after Relu."""
    nodes = [h.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(length)]
    value, kind = h.make_tensor_value_info, onnx.TensorProto.FLOAT
    ports = [value(name, kind, [1, 4, 16, 16]) for name in ("v0", f"v{length}")]
    graph = h.make_graph(nodes, "g", ports[:1], ports[1:])
    return h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 18)])


def graphs() -> None:
    case = Case(ir.from_proto(chain(10_000)), {"v0": X}, None)
    case = case.with_recording(MadeUp.of(case))
    clock("index of 10,000 nodes", lambda: Index(case.model).regions(), 3)
    cut = KeepNodes(tuple(f"v{5000 + k}" for k in range(10)))
    cut.apply(case)
    clock("10 of 10,000 nodes cut out", lambda: cut.apply(case), 50)


def workers(folder: Path) -> None:
    def start() -> None:
        with Worker() as fresh:
            fresh.call("os:getpid")

    clock("worker: start, one call, end", start, 5)
    with Worker() as worker:
        worker.call("os:getpid")
        clock("worker: warm call", lambda: worker.call("os:getpid"), 200)
    oracle = folder / "oracle.py"
    oracle.write_text("def interesting(case): return True\n")
    np.savez(folder / "inputs.npz", v0=X)
    with contextlib.closing(find_oracle(str(oracle)).open()) as runner:
        paths = folder / "model.onnx", folder / "inputs.npz"
        runner.ask(*paths, Limits())
        clock("oracle: warm question", lambda: runner.ask(*paths, Limits()), 50)


def backend(spec: str, folder: Path) -> None:
    opened = open_backend(spec)
    try:
        path = str(folder / "model.onnx")
        clock(f"{spec}: first call", lambda: opened.run(path, {"v0": X}), 1)
        clock(f"{spec}: warm call", lambda: opened.run(path, {"v0": X}), 30)
    finally:
        opened.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--web", default="web@1.30.0:wasm", help="the web backend; '' for none")
    options = parser.parse_args()
    print(f"{'':44s}{'median':>10s}{'least':>10s}{'repeats':>9s}")
    graphs()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(chain(1), folder / "model.onnx")
        workers(folder)
        for spec in filter(None, ["ort", options.web]):
            backend(spec, folder)


if __name__ == "__main__":
    main()
