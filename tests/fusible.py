"""Networks whose parts ONNX Runtime's optimisers know and fuse."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from networks import Net
from onnx import helper

from onnxreduce.case import Case

HIDDEN, HEADS = 32, 4


def optimised(case: Case, level: ort.GraphOptimizationLevel) -> Case:
    """The case with the model as ONNX Runtime rewrites it at load."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    proto = ir.to_proto(case.model)
    assert isinstance(proto, onnx.ModelProto)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimised.onnx")
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        return Case(ir.from_proto(onnx.load(path)), case.inputs)


def bert() -> Case:
    """Embeddings, a mask, and one layer, in plain operators."""
    n = Net()
    tokens = n.input("ids", np.array([[3, 17, 49, 5, 8, 1]] * 2, np.int64), ["batch", "time"])
    segments = n.input("segments", np.zeros((2, 6), np.int64), ["batch", "time"])
    mask = n.input("mask", np.ones((2, 6), np.int64), ["batch", "time"])
    time = n.op("Unsqueeze", n.op("Gather", n.op("Shape", tokens), n.const(1)), n.const([0]))
    steps = n.op("Slice", n.const([range(16)]), n.const([0]), time, n.const([1]))
    parts = [(50, tokens), (2, segments), (16, steps)]
    word, segment, place = (n.op("Gather", n.weight(size, HIDDEN), ids) for size, ids in parts)
    x = _normal(n, n.op("Add", n.op("Add", word, segment), place))
    mask = n.op("Unsqueeze", n.op("Unsqueeze", mask, n.const([1])), n.const([2]))
    mask = n.op("Sub", n.const(1, np.float32), n.op("Cast", mask, to=1))
    mask = n.op("Mul", mask, n.const(-1e4, np.float32))

    def head(perm: list[int]) -> str:
        shape = n.const([0, 0, HEADS, HIDDEN // HEADS])
        return n.op("Transpose", n.op("Reshape", n.linear(x, HIDDEN, HIDDEN), shape), perm=perm)

    q, k, v = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    root = n.const(float(HIDDEN // HEADS) ** 0.5, np.float32)
    scores = n.op("Add", n.op("Div", n.op("MatMul", q, k), root), mask)
    mixed = n.op("MatMul", n.op("Softmax", scores, axis=-1), v)
    back = n.op("Transpose", mixed, perm=[0, 2, 1, 3])
    back = n.linear(n.op("Reshape", back, n.const([0, 0, HIDDEN])), HIDDEN, HIDDEN)
    x = _normal(n, n.op("Add", back, x))
    wide = _gelu(n, n.linear(x, HIDDEN, 4 * HIDDEN))
    return n.case(_normal(n, n.op("Add", n.linear(wide, 4 * HIDDEN, HIDDEN), x)))


def _normal(n: Net, x: str) -> str:
    return n.op("LayerNormalization", x, n.weight(HIDDEN), n.weight(HIDDEN), axis=-1)


def _gelu(n: Net, x: str) -> str:
    root, one, half = (n.const(value, np.float32) for value in (2**0.5, 1, 0.5))
    bell = n.op("Add", n.op("Erf", n.op("Div", x, root)), one)
    return n.op("Mul", n.op("Mul", x, bell), half)


def decoder() -> Case:
    """One step of a decoder as generators write it: a cache, and lengths that come of a mask."""
    n, width, groups, past = Net(), 16, 2, 5
    x = n.image(2, 1, HIDDEN, dims=["batch", "time", HIDDEN])
    shape = (2, groups, past, width)
    caches = [
        n.input(name, n.rng.standard_normal(shape).astype(np.float32))
        for name in ("keys", "values")
    ]
    mask = n.input("mask", np.ones((2, past + 1), np.int64), ["batch", "total"])
    lengths = n.op("Sub", n.op("ReduceSum", mask, n.const([1]), keepdims=0), n.const(1))
    total = n.op("Gather", n.op("Shape", mask), n.const(1))
    lengths, total = n.op("Cast", lengths, to=6), n.op("Cast", total, to=6)
    sizes = (HEADS * width, groups * width, groups * width)
    heads = [n.op("MatMul", x, n.weight(HIDDEN, size)) for size in sizes]
    tables = [n.weight(32, width // 2), n.weight(32, width // 2)]
    y = n.op(
        *("GroupQueryAttention", *heads, *caches, lengths, total, *tables),
        num_heads=HEADS,
        kv_num_heads=groups,
        do_rotary=1,
        domain="com.microsoft",
        outputs=3,
    )
    return n.case(n.op("MatMul", y, n.weight(HEADS * width, HIDDEN)), f"{y}_1", f"{y}_2")


def pixels() -> Case:
    """A quantised network whose every operator has an integer form."""
    n = Net()
    x = n.image(1, 3, 16, 16)
    scale, zero = n.const(0.05, np.float32), n.const(128, np.uint8)

    def qdq(value: str) -> str:
        quantised = n.op("QuantizeLinear", value, scale, zero)
        return n.op("DequantizeLinear", quantised, scale, zero)

    def conv(value: str, into: int, out: int) -> str:
        raw = n.const(n.rng.integers(-127, 128, (out, into, 3, 3)), np.int8)
        each = n.const(n.rng.random(out) * 0.01 + 0.001, np.float32)
        weight = n.op("DequantizeLinear", raw, each, n.const(np.zeros(out), np.int8), axis=0)
        return qdq(n.op("Conv", value, weight, pads=[1, 1, 1, 1]))

    a = conv(qdq(x), 3, 16)
    b = qdq(n.op("Sigmoid", conv(a, 16, 16)))
    c = qdq(n.op("Mul", qdq(n.op("Add", a, b)), a))
    c = qdq(n.op("LeakyRelu", c, alpha=0.1))
    d = qdq(n.op("Concat", c, b, axis=1))
    d = qdq(n.op("AveragePool", d, kernel_shape=[2, 2], strides=[2, 2]))
    flat = n.op("Flatten", qdq(n.op("GlobalAveragePool", d)))
    weight = n.op("DequantizeLinear", n.const(n.rng.integers(-99, 99, (10, 32)), np.int8), scale)
    return n.case(qdq(n.op("Gemm", qdq(flat), weight, transB=1)))


def fused_bert(folder: Path) -> Case:
    """`bert` after ``onnxruntime.transformers.optimizer``."""
    from onnxruntime.transformers import optimizer

    case = bert()
    path = folder / "bert.onnx"
    onnx.save(ir.to_proto(case.model), path)
    made = optimizer.optimize_model(
        str(path), model_type="bert", num_heads=HEADS, hidden_size=HIDDEN, opt_level=0
    ).model
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return Case(ir.from_proto(made), case.inputs)
