"""Writes the model of this example: a U-Net of a hundred nodes with dynamic batch and size.

    python examples/auto_pad/make_model.py unet.onnx

Somewhere on its way down sits a strided Conv with ``auto_pad=SAME_UPPER``.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Builder:
    """Adds nodes and random weights under made-up names."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def kernel(self, *shape: int) -> str:
        scale = np.prod(shape[1:]) ** -0.5
        return self.weight((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def block(self, t: str, channels_in: int, channels: int, layers: int) -> str:
        """`layers` times Conv, BatchNormalization, Relu."""
        for _ in range(layers):
            t = self.op("Conv", t, self.kernel(channels, channels_in, 3, 3), pads=[1, 1, 1, 1])
            ones = np.ones(channels, np.float32)
            statistics = (self.weight(ones * value) for value in (1.1, 0.1, 0.05, 1.0))
            t = self.op("Relu", self.op("BatchNormalization", t, *statistics))
            channels_in = channels
        return t


def unet(levels: int = 4, layers: int = 3, width: int = 8) -> onnx.ModelProto:
    """99 nodes with the defaults; image [N, 3, H, W] to mask [N, 1, H, W]."""
    b = Builder()
    t, channels, skips = b.block("image", 3, width, layers), width, []
    for level in range(levels):
        skips.append((t, channels))
        padding = "SAME_UPPER" if level == 1 else "SAME_LOWER"
        down = b.kernel(channels * 2, channels, 3, 3)
        t = b.op("LeakyRelu", b.op("Conv", t, down, strides=[2, 2], auto_pad=padding))
        channels *= 2
        t = b.block(t, channels, channels, layers)
    scales = b.weight(np.array([1, 1, 2, 2], np.float32))
    for skip, skip_channels in reversed(skips):
        t = b.op("Resize", t, "", scales, mode="nearest")
        t = b.op("Concat", t, skip, axis=1)
        t = b.block(t, channels + skip_channels, skip_channels, layers)
        channels = skip_channels
    t = b.op("Sigmoid", b.op("Conv", t, b.kernel(1, channels, 1, 1)))
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 3, "H", "W"])
    mask = helper.make_tensor_value_info(t, onnx.TensorProto.FLOAT, ["N", 1, "H", "W"])
    graph = helper.make_graph(b.nodes, "unet", [image], [mask], b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    onnx.save(unet(), sys.argv[1] if len(sys.argv) > 1 else "unet.onnx")
