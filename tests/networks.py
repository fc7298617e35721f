"""Small networks of the kinds that make axes hard: built in code, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from drive import run_ort
from onnx import TensorProto, helper, numpy_helper

from onnxreduce.case import Case
from onnxreduce.tensors import Array


class Net:
    """A graph under construction; every method adds a node and gives the name of its output.

    A prefix keeps the names of a body apart from those around it.
    """

    def __init__(self, seed: int = 0, prefix: str = "") -> None:
        self.rng = np.random.default_rng(seed)
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[Array, Sequence[int | str]]] = {}

    def input(self, name: str, array: Array, dims: Sequence[int | str] | None = None) -> str:
        self.inputs[name] = (array, array.shape if dims is None else dims)
        return name

    def image(self, *shape: int, dims: Sequence[int | str] | None = None) -> str:
        return self.input("x", self.rng.standard_normal(shape).astype(np.float32), dims)

    def const(self, value: object, dtype: type = np.int64) -> str:
        name = f"{self.prefix}c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.const(self.rng.standard_normal(shape) * 0.1, np.float32)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        first = f"{self.prefix}v{len(self.nodes)}"
        names = [first, *(f"{first}_{j}" for j in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def conv(self, x: str, into: int, out: int, k: int = 3, **attributes: object) -> str:
        groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
        weight, bias = self.weight(out, into // groups, k, k), self.weight(out)
        attributes.setdefault("pads", [k // 2] * 4)
        if "auto_pad" in attributes:
            del attributes["pads"]
        return self.op("Conv", x, weight, bias, kernel_shape=[k, k], **attributes)

    def linear(self, x: str, into: int, out: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(into, out)), self.weight(out))

    def body(self, inputs: dict[str, int], *outputs: str, truth: str = "") -> onnx.GraphProto:
        """A body with inputs of these element types, floats of any shape or else scalars, and float
        outputs (but for `truth`)."""
        fed = [
            helper.make_tensor_value_info(name, kind, None if kind == TensorProto.FLOAT else [])
            for name, kind in inputs.items()
        ]
        given = [
            helper.make_tensor_value_info(
                name, TensorProto.BOOL if name == truth else TensorProto.FLOAT, None
            )
            for name in outputs
        ]
        return helper.make_graph(self.nodes, f"{self.prefix}body", fed, given, self.weights)

    def case(self, *outputs: str, opset: int = 17) -> Case:
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), list(dims)
            )
            for name, (array, dims) in self.inputs.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        for result in results:
            result.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "g", inputs, results, self.weights)
        domains = sorted({node.domain for node in self.nodes} - {""})
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        if not all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
            declare(model, {name: array for name, (array, _) in self.inputs.items()})
        onnx.checker.check_model(model)
        return Case(ir.from_proto(model), {name: array for name, (array, _) in self.inputs.items()})


def declare(model: onnx.ModelProto, inputs: dict[str, Array]) -> None:
    """Say the ranks of outputs behind operators that onnx cannot infer."""
    for value, array in zip(model.graph.output, run_ort(model, inputs), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        dims = [f"{value.name}_{at}" for at in range(array.ndim)]
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, dims))


def attention() -> Case:
    """A transformer block whose heads are split by shapes computed from the input's."""
    n, hidden, heads = Net(), 48, 4
    x = n.image(2, 10, hidden, dims=["batch", "time", hidden])
    shape = n.op("Shape", x)
    batch = n.op("Unsqueeze", n.op("Gather", shape, n.const(0), axis=0), n.const([0]))
    time = n.op("Unsqueeze", n.op("Gather", shape, n.const(1), axis=0), n.const([0]))
    split = n.op("Concat", batch, time, n.const([heads]), n.const([hidden // heads]), axis=0)
    joined = n.op("Concat", batch, time, n.const([hidden]), axis=0)

    def head(perm: list[int]) -> str:
        flat = n.linear(x, hidden, hidden)
        return n.op("Transpose", n.op("Reshape", flat, split), perm=perm)

    q, k, v = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scores = n.op("Div", n.op("MatMul", q, k), n.const(float(hidden // heads) ** 0.5, np.float32))
    mixed = n.op("MatMul", n.op("Softmax", scores, axis=-1), v)
    back = n.op("Reshape", n.op("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
    y = n.op("Add", n.linear(back, hidden, hidden), x)
    mean = n.op("ReduceMean", y, axes=[-1])
    centred = n.op("Sub", y, mean)
    y = n.op("Mul", centred, n.weight(hidden))
    y = n.linear(n.op("Relu", n.linear(y, hidden, 4 * hidden)), 4 * hidden, hidden)
    return n.case(y)


def packed_attention() -> Case:
    """Query, key and value from one product, told apart by Split, Gather and Slice."""
    n, hidden, heads = Net(), 24, 3
    x = n.image(1, 6, hidden)
    qkv = n.op("Reshape", n.linear(x, hidden, 3 * hidden), n.const([0, 0, 3, heads, 8]))
    qkv = n.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (n.op("Gather", qkv, n.const(i), axis=0) for i in range(3))
    half = n.op("Slice", q, n.const([4]), n.const([2**62]), n.const([-1]))
    other = n.op("Slice", q, n.const([0]), n.const([4]), n.const([-1]))
    q = n.op("Concat", n.op("Neg", half), other, axis=-1)  # rotary halves
    scores = n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = n.op("MatMul", n.op("Softmax", scores, axis=-1), v)
    back = n.op("Reshape", n.op("Transpose", mixed, perm=[0, 2, 1, 3]), n.const([1, 6, hidden]))
    return n.case(n.linear(back, hidden, hidden))


def unet() -> Case:
    """Two levels of stride 2 (SAME_UPPER), Resize, and skip connections by Concat."""
    n = Net()
    x = n.image(1, 3, 32, 32, dims=[1, 3, "h", "w"])
    a = n.op("Relu", n.conv(x, 3, 8))
    b = n.op("Relu", n.conv(a, 8, 16, strides=[2, 2], auto_pad="SAME_UPPER"))
    c = n.op("Relu", n.conv(b, 16, 32, strides=[2, 2], auto_pad="SAME_UPPER"))
    scales = n.const([1, 1, 2, 2], np.float32)
    up = n.op("Resize", c, "", scales, mode="nearest")
    d = n.op("Relu", n.conv(n.op("Concat", up, b, axis=1), 48, 16))
    up = n.op("Resize", d, "", scales, mode="nearest")
    e = n.conv(n.op("Concat", up, a, axis=1), 24, 4)
    return n.case(n.op("Sigmoid", e))


def detector() -> Case:
    """YOLO-like: Split and Concat of channels, pyramid of pools, Resize to the size of another
    value, heads reshaped and joined over anchors."""
    n = Net()
    x = n.image(1, 3, 64, 64)
    a = n.conv(x, 3, 16, strides=[2, 2])
    a = n.op("Mul", a, n.op("Sigmoid", a))
    left = n.op("Split", a, n.const([8, 8]), axis=1, outputs=2)
    right = left + "_1"
    inner = n.op("Add", right, n.conv(right, 8, 8))
    a = n.conv(n.op("Concat", left, right, inner, axis=1), 24, 16, k=1)
    b = n.conv(a, 16, 32, strides=[2, 2])
    pool = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}
    p1 = n.op("MaxPool", b, **pool)
    p2 = n.op("MaxPool", p1, **pool)
    b = n.conv(n.op("Concat", b, p1, p2, axis=1), 96, 32, k=1)
    size = n.op("Slice", n.op("Shape", a), n.const([2]), n.const([4]), n.const([0]))
    half = n.op("Slice", n.op("Shape", b), n.const([0]), n.const([2]), n.const([0]))
    sizes = n.op("Concat", half, size, axis=0)
    up = n.op("Resize", b, "", "", sizes, mode="nearest")
    c = n.conv(n.op("Concat", up, a, axis=1), 48, 16)
    heads = [
        n.op("Reshape", n.conv(value, channels, 12, k=1), n.const([1, 12, -1]))
        for value, channels in ((b, 32), (c, 16))
    ]
    joined = n.op("Concat", *heads, axis=2)
    box = n.op("Split", joined, n.const([4, 8]), axis=1, outputs=2)
    scores = n.op("Sigmoid", box + "_1")
    return n.case(n.op("Concat", box, scores, axis=1))


def shuffler() -> Case:
    """Grouped convolutions with channel shuffle, then PixelShuffle twice: by DepthToSpace and by
    Reshape and Transpose."""
    n = Net()
    x = n.image(1, 12, 8, 8)
    a = n.conv(x, 12, 24, group=3)
    a = n.op("Reshape", a, n.const([1, 3, 8, 8, 8]))
    a = n.op("Reshape", n.op("Transpose", a, perm=[0, 2, 1, 3, 4]), n.const([1, 24, 8, 8]))
    a = n.conv(a, 24, 24, group=24)
    a = n.conv(a, 24, 32, group=2)
    b = n.op("DepthToSpace", a, blocksize=2, mode="CRD")
    b = n.conv(b, 8, 16)
    c = n.op("Reshape", b, n.const([1, 4, 2, 2, 16, 16]))
    c = n.op("Transpose", c, perm=[0, 1, 4, 2, 5, 3])
    return n.case(n.op("Reshape", c, n.const([1, 4, 32, 32])))


def merger() -> Case:
    """Groups of channels that meet concatenations: both segments are whole groups, of which there
    are others behind a shuffle."""
    n = Net()
    x = n.image(1, 6, 8, 8)
    a = n.op("Concat", n.conv(x, 6, 8), n.op("Relu", n.conv(x, 6, 16, group=2)), axis=1)
    b = n.op("Relu", n.conv(a, 24, 18, group=6))
    b = n.op("Reshape", b, n.const([1, 3, 6, 8, 8]))
    b = n.op("Reshape", n.op("Transpose", b, perm=[0, 2, 1, 3, 4]), n.const([1, 18, 8, 8]))
    c = n.op("Concat", n.conv(b, 18, 12, group=3), a, axis=1)
    return n.case(n.conv(c, 36, 9, group=3))


def speech() -> Case:
    """A CRNN: convolutions, columns as time steps, two LSTMs, a classifier."""
    n = Net()
    x = n.image(1, 1, 16, 40)
    a = n.op("Relu", n.conv(x, 1, 8))
    a = n.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    a = n.op("Transpose", a, perm=[3, 0, 1, 2])
    a = n.op("Reshape", a, n.const([0, 0, -1]))
    size = 64
    for _ in range(2):
        weights = [n.weight(2, 4 * 24, size), n.weight(2, 4 * 24, 24), n.weight(2, 8 * 24)]
        y = n.op("LSTM", a, *weights, hidden_size=24, direction="bidirectional", outputs=3)
        a = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.const([0, 0, 48]))
        size = 48
    return n.case(n.op("LogSoftmax", n.linear(a, 48, 30), axis=2))


def quantised() -> Case:
    """A residual block in QDQ form with scales per channel."""
    n = Net()
    x = n.image(1, 3, 16, 16)

    def qdq(value: str) -> str:
        scale, zero = n.const(0.05, np.float32), n.const(0, np.int8)
        return n.op("DequantizeLinear", n.op("QuantizeLinear", value, scale, zero), scale, zero)

    def conv(value: str, into: int, out: int) -> str:
        raw = n.const(n.rng.integers(-127, 128, (out, into, 3, 3)), np.int8)
        scale = n.const(n.rng.random(out) * 0.01 + 0.001, np.float32)
        weight = n.op("DequantizeLinear", raw, scale, n.const(np.zeros(out), np.int8), axis=0)
        return n.op("Conv", qdq(value), weight, n.weight(out), pads=[1, 1, 1, 1])

    a = n.op("Relu", conv(x, 3, 16))
    b = n.op("Relu", n.op("Add", qdq(conv(n.op("Relu", conv(a, 16, 16)), 16, 16)), qdq(a)))
    pooled = n.op("Flatten", n.op("GlobalAveragePool", qdq(b)))
    return n.case(n.op("Gemm", pooled, n.weight(10, 16), n.weight(10), transB=1), opset=21)


def embedder() -> Case:
    """Token and position embeddings, a mask made of Range, Expand and Where, a pick of one step."""
    n, vocabulary, hidden = Net(), 50, 16
    tokens = n.input("tokens", np.array([[3, 17, 49, 5, 8, 1]] * 2, np.int64), ["b", "t"])
    shape = n.op("Shape", tokens)
    steps = n.op("Gather", shape, n.const(1), axis=0)
    positions = n.op("Range", n.const(0), steps, n.const(1))
    a = n.op("Gather", n.weight(vocabulary, hidden), tokens, axis=0)
    b = n.op("Gather", n.weight(32, hidden), positions, axis=0)
    x = n.op("Add", a, b)
    row = n.op("Unsqueeze", positions, n.const([0]))
    column = n.op("Unsqueeze", positions, n.const([1]))
    mask = n.op("LessOrEqual", row, column)
    scores = n.op("MatMul", x, n.op("Transpose", x, perm=[0, 2, 1]))
    scores = n.op("Where", mask, scores, n.const(-1e4, np.float32))
    mixed = n.op("MatMul", n.op("Softmax", scores, axis=-1), x)
    first = n.op("Gather", mixed, n.const(0), axis=1)
    padded = n.op("Pad", mixed, n.const([0, 1, 0, 0, 2, 0]))
    both = n.op("Slice", padded, n.const([1]), n.const([-1]), n.const([1]))
    shifted = n.op("Sub", *(_window(n, both, a, b) for a, b in ((1, 2**62), (0, -1))))
    total = n.op("ReduceSum", shifted, n.const([1]), keepdims=0)
    return n.case(n.op("Add", first, total))


def branching() -> Case:
    """Two branches that read a value and a weight from outside; one has a weight of its own."""
    n = Net()
    x = n.op("Relu", n.image(2, 24, dims=["N", 24]))
    shared = n.weight(24, 18)
    then, other = Net(1, "t_"), Net(2, "e_")
    a = then.op("MatMul", x, shared)
    b = then.op("Reshape", a, then.const([0, 3, 6]))
    c = then.op("Reshape", then.op("Softmax", b), then.const([0, -1]))
    d = other.op("Add", other.op("MatMul", x, other.weight(24, 18)), other.weight(18))
    go = n.input("go", np.array(True))
    y = n.op("If", go, then_branch=then.body({}, c), else_branch=other.body({}, d))
    return n.case(n.op("MatMul", y, n.weight(18, 7)))


def looping() -> Case:
    """A state that is fed back, a convolution inside, what is stacked, and a nested branch."""
    n = Net()
    x = n.image(1, 6, 9, 9)
    step, deep, flat = Net(1, "s_"), Net(2, "d_"), Net(3, "f_")
    kept = step.op("Identity", "s_go")
    made = step.op("Tanh", step.conv("s_x", 6, 6))
    shape = step.op("Concat", step.op("Shape", made, end=1), step.const([-1]), axis=0)
    wide = step.op("Reshape", made, shape)
    then = deep.body({}, deep.op("MatMul", wide, deep.weight(6 * 81, 10)))
    other = flat.body({}, flat.op("MatMul", wide, flat.weight(6 * 81, 10)))
    told = step.op("If", "s_go", then_branch=then, else_branch=other)
    into = {"s_i": TensorProto.INT64, "s_go": TensorProto.BOOL, "s_x": TensorProto.FLOAT}
    body = step.body(into, kept, made, told, truth=kept)
    y = n.op("Loop", n.const(4), n.const(True, np.bool_), x, outputs=2, body=body)
    return n.case(y, n.op("MatMul", f"{y}_1", n.weight(10, 5)))


def scanning() -> Case:
    """A recurrent cell written out, over the second axis, with captured weights."""
    n = Net()
    x, h = n.image(3, 12, 8), n.const(np.zeros((3, 10)), np.float32)
    w, u = n.weight(8, 10), n.weight(10, 10)
    step = Net(1, "s_")
    new = step.op("Tanh", step.op("Add", step.op("MatMul", "s_x", w), step.op("MatMul", "s_h", u)))
    said = step.op("Concat", new, "s_x", axis=-1)
    into = {"s_h": TensorProto.FLOAT, "s_x": TensorProto.FLOAT}
    along = {"scan_input_axes": [1], "scan_output_axes": [-1], "num_scan_inputs": 1}
    y = n.op("Scan", h, x, outputs=2, body=step.body(into, new, said), **along)
    return n.case(y, f"{y}_1")


def _window(n: Net, x: str, start: int, end: int) -> str:
    return n.op("Slice", x, n.const([start]), n.const([end]), n.const([1]))


NETWORKS: dict[str, Callable[[], Case]] = {
    network.__name__: network
    for network in (
        attention,
        packed_attention,
        unet,
        detector,
        shuffler,
        merger,
        speech,
        quantised,
        embedder,
        branching,
        looping,
        scanning,
    )
}
