"""Asks an oracle file as a command, the way `polygraphy debug` does: failing is interesting.

python as_command.py ORACLE.py LOG MODEL.onnx     (one line is added to LOG for each call)
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx


def main() -> int:
    oracle, log, model = (Path(argument) for argument in sys.argv[1:])
    with log.open("a") as file:
        file.write(f"{model}\n")
    if not any(line.startswith("def interesting") for line in oracle.read_text().splitlines()):
        return int(subprocess.run([sys.executable, oracle, model], check=False).returncode == 0)
    sys.path.insert(0, str(oracle.parent))
    spec = spec_from_file_location("oracle", oracle)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    proto = onnx.load(model)
    return int(bool(module.interesting(SimpleNamespace(model=proto, inputs=_inputs(proto)))))


def _inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Polygraphy passes no inputs: the same for a name every time."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name not in weights:
            shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            rng = np.random.default_rng(zlib.crc32(value.name.encode()))
            inputs[value.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


if __name__ == "__main__":
    sys.exit(main())
