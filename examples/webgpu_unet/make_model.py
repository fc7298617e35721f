"""Build unet.onnx, and test_data_set_0 beside it: a small U-Net with dynamic shapes.

Three of its convolutions halve the image with stride 2 and auto_pad=SAME_UPPER. ONNX Runtime Web
1.20 to 1.26 pads those wrong on WebGPU (JSEP) and WebGL when the size is only known at run time;
an export with static shapes hides it, because an optimiser then writes explicit pads.

    python make_model.py [DIRECTORY]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = (4, 6, 8, 12)
SIZE = 32


class Builder:
    """Collects nodes and weights; every method returns the name of its output."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def weight(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, cin: int, cout: int, kernel: int = 3, **attributes: object) -> str:
        scale = np.sqrt(2 / (cin * kernel * kernel))
        w = self.weight(self.random.normal(0, scale, (cout, cin, kernel, kernel)))
        b = self.weight(self.random.normal(0, 0.1, cout))
        settings = {"strides": [1, 1], "dilations": [1, 1], "group": 1, **attributes}
        if "auto_pad" not in settings:
            settings["pads"] = [kernel // 2] * 4
        return self.node("Conv", x, w, b, kernel_shape=[kernel, kernel], **settings)

    def norm(self, x: str, channels: int) -> str:
        def draw(low: float, high: float) -> str:
            return self.weight(self.random.uniform(low, high, channels))

        return self.node("BatchNormalization", x, *(draw(a, b) for a, b in
                         ((0.8, 1.2), (-0.1, 0.1), (-0.1, 0.1), (0.8, 1.2))))  # fmt: skip

    def block(self, x: str, cin: int, cout: int) -> str:
        for channels in (cin, cout):
            x = self.node("Relu", self.norm(self.conv(x, channels, cout), cout))
        return x

    def halve(self, x: str, channels: int) -> str:
        """The layer with the bug."""
        down = self.conv(x, channels, channels, strides=[2, 2], auto_pad="SAME_UPPER")
        return self.node("Relu", down)

    def double(self, x: str, cin: int, cout: int) -> str:
        w = self.weight(self.random.normal(0, np.sqrt(1 / cin), (cin, cout, 2, 2)))
        b = self.weight(self.random.normal(0, 0.1, cout))
        return self.node("ConvTranspose", x, w, b, strides=[2, 2], kernel_shape=[2, 2],
                         dilations=[1, 1], group=1, pads=[0, 0, 0, 0])  # fmt: skip

    def gate(self, x: str, channels: int) -> str:
        """Squeeze and excite."""
        squeezed = self.node("GlobalAveragePool", x)
        hidden = self.node("Relu", self.conv(squeezed, channels, 4, kernel=1))
        return self.node("Mul", x, self.node("Sigmoid", self.conv(hidden, 4, channels, kernel=1)))


def build() -> onnx.ModelProto:
    """The model: 62 nodes, input ``image`` (N,3,H,W), output ``mask`` (N,1,H,W)."""
    b = Builder()
    x, before, skips = "image", 3, []
    for channels in CHANNELS[:-1]:
        x = b.block(x, before, channels)
        skips.append(x)
        x, before = b.halve(x, channels), channels
    x = b.gate(b.block(x, before, CHANNELS[-1]), CHANNELS[-1])
    for deep, channels in zip(CHANNELS[:0:-1], CHANNELS[-2::-1], strict=True):
        up = b.double(x, deep, channels)
        x = b.block(b.node("Concat", up, skips.pop(), axis=1), 2 * channels, channels)
    logits = b.conv(x, CHANNELS[0], 1, kernel=1)
    b.nodes.append(helper.make_node("Sigmoid", [logits], ["mask"], "mask"))
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", channels, "h", "w"])
        for name, channels in (("image", 3), ("mask", 1))
    ]
    graph = helper.make_graph(b.nodes, "unet", values[:1], values[1:], b.weights)
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    model = build()
    onnx.save(model, folder / "unet.onnx")
    image = np.random.default_rng(1).normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    onnx.save_tensor(numpy_helper.from_array(image, "image"), data / "input_0.pb")
    print(f"{folder / 'unet.onnx'}: {len(model.graph.node)} nodes; its input is in {data}")


if __name__ == "__main__":
    main()
