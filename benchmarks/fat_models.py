"""The onnx package's light networks with real random weights, 5 to 100 MB each.

The light models make their weights with ConstantOfShape, which says nothing about a reducer:
here each becomes an initializer with plausible values (He initialisation, seeded by its name).
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def build(name: str, directory: Path) -> Path:
    """Writes ``directory/name.onnx`` unless it is there; returns its path."""
    path = directory / f"{name}.onnx"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        onnx.save(fatten(onnx.load(LIGHT / f"light_{name}.onnx")), path)
    return path


def fatten(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replaces every ConstantOfShape weight by an initializer, in place."""
    graph = model.graph
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, position))
    kept, weights, used_shapes = [], [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        used_shapes.add(node.input[0])
        shape = numpy_helper.to_array(shapes[node.input[0]]).tolist()
        weights.append(
            numpy_helper.from_array(_values(node.output[0], shape, readers), node.output[0])
        )
    rest = [tensor for tensor in graph.initializer if tensor.name not in used_shapes]
    constant = {tensor.name for tensor in rest} | used_shapes
    inputs = [value for value in graph.input if value.name not in constant]
    for field, items in (("node", kept), ("initializer", rest + weights), ("input", inputs)):
        del getattr(graph, field)[:]
        getattr(graph, field).extend(items)
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def _values(
    name: str, shape: list[int], readers: dict[str, list[tuple[onnx.NodeProto, int]]]
) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    operator, position = _role(name, readers)
    if operator in ("Conv", "Gemm") and position == 1:
        values = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
    elif (operator, position) in (
        ("BatchNormalization", 1),
        ("BatchNormalization", 4),
    ) or operator == "Mul":
        values = rng.uniform(0.5, 1.5, shape)
    else:
        values = rng.standard_normal(shape) * 0.05
    return values.astype(np.float32)


def _role(name: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]]) -> tuple[str, int]:
    """The operator that finally reads a weight, and at which position (through Unsqueeze)."""
    for node, position in readers.get(name, []):
        if node.op_type == "Unsqueeze":
            return _role(node.output[0], readers)
        return node.op_type, position
    return "", 0
