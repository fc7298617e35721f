"""What the benchmark's oracles share."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort

ort.set_default_logger_severity(4)


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs on ONNX Runtime's CPU, one thread; raises when the model does not run."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def runs(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> bool:
    try:
        run(model, inputs)
    except Exception:
        return False
    return True


def attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    for item in node.attribute:
        if item.name == name:
            return onnx.helper.get_attribute_value(item)
    return default


def producers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output if name}


def readers(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found
