"""Reduces a model of 2.4 GB with external data, and prints what that costs in memory and disk.

    python benchmarks/large.py [--gigabytes 2.4] [--folder DIR]

The reducer maps the weights; pages of a mapped file count as resident but can be dropped, so the
anonymous part is printed beside the peak.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
from onnx import helper as h
from onnx import numpy_helper

from onnxreduce import reduce
from onnxreduce.progress import Silent

WIDTH = 5000
ORACLE = '''
def interesting(case):
    """A Tanh is there; looks at the graph alone, as a loader's crash would."""
    import onnx
    model = onnx.load(case.model_path, load_external_data=False)
    return any(node.op_type == "Tanh" for node in model.graph.node)
'''


class Memory(Silent):
    """Watches this process and the disk while the reduction runs."""

    def __init__(self, folder: Path) -> None:
        self.anonymous = 0
        self.disk = 0
        self._folder = folder

    def asked(self, calls: int) -> None:
        del calls
        memory = psutil.Process().memory_info()
        self.anonymous = max(self.anonymous, memory.rss - memory.shared)
        files = (path for path in self._folder.rglob("*") if path.is_file())
        self.disk = max(self.disk, sum(path.stat().st_size for path in files))


def build(path: Path, layers: int) -> None:
    """A chain of MatMul and Relu with one Tanh in the middle; each weight is 100 MB."""
    rng = np.random.default_rng(0)
    nodes, last = [], "x"
    data = path.with_suffix(".data")
    weights = []
    with data.open("wb") as file:
        for layer in range(layers):
            weight = rng.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
            tensor = numpy_helper.from_array(weight[:0], f"w{layer}")
            tensor.dims[:] = weight.shape
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (
                ("location", data.name),
                ("offset", file.tell()),
                ("length", weight.nbytes),
            ):
                tensor.external_data.add(key=key, value=str(value))
            file.write(weight.tobytes())
            weights.append(tensor)
            nodes.append(h.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]))
            kind = "Tanh" if layer == layers // 2 else "Relu"
            last = f"a{layer}"
            nodes.append(h.make_node(kind, [f"m{layer}"], [last]))
    ports = [
        h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, WIDTH]) for name in ("x", last)
    ]
    graph = h.make_graph(nodes, "large", ports[:1], ports[1:], weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.4)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        layers = round(options.gigabytes * 1e9 / (4 * WIDTH**2))
        build(folder / "large.onnx", layers)
        (folder / "oracle.py").write_text(ORACLE)
        output = folder / "out"
        output.mkdir()
        memory = Memory(output)
        began = time.monotonic()
        result = reduce(folder / "large.onnx", folder / "oracle.py", output=output, listener=memory)
        weights = layers * 4 * WIDTH**2
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            f"{result.original.size.nodes} -> {result.reduced.size.nodes} nodes, "
            f"{result.oracle_calls} calls, {time.monotonic() - began:.1f} s, "
            f"{result.seconds - result.oracle_seconds:.1f} s outside the oracle"
        )
        for what, amount in (
            ("weights", weights),
            ("peak resident", peak),
            ("peak anonymous", memory.anonymous),
            ("disk below output", memory.disk),
        ):
            print(f"  {what:18} {amount / 1e9:6.2f} GB  {amount / weights:5.2f} x weights")


if __name__ == "__main__":
    main()
