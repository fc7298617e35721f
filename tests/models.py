"""Models that several tests use, built in code."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper


class Builder:
    """Adds nodes and weights under made-up names; `model` closes the graph."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.weight((self.rng.standard_normal(shape) / fan_in**0.5).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(
            h.make_node(kind, list(inputs), [output], name=f"n_{output}", **attributes)
        )
        return output

    def model(
        self,
        inputs: list[onnx.ValueInfoProto],
        outputs: list[onnx.ValueInfoProto],
        opset: int = 17,
    ) -> onnx.ModelProto:
        graph = h.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model, full_check=True)
        return model


def value(
    name: str, shape: list[int | str], dtype: int = onnx.TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, dtype, shape)


def parallel_branches() -> onnx.ModelProto:
    """Seven nodes: two branches of which a bug may need both, with nothing between them."""
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) {
          a = Abs(x)
          r = Relu(a)
          s = Sigmoid(r)
          t = Tanh(a)
          u = Neg(t)
          v = Add(s, u)
          y = Sqrt(v)
        }"""
    )


NESTED = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1, "custom" : 3], producer_name: "p">
main (float[N,3] x, bool flag) => (float[N,3] y, float[M] z)
<float[3] w = {1, 2, 3}, float[2] unused = {0, 0}>
{
    [first] a = local.scale <factor = 2.0> (x, w)
    y = If (flag) <
        then_branch = then_graph () => (float[N,3] t) <float[1] k = {7}> {
            u = Add(a, k)
            t = If (flag) <
                then_branch = deep () => (float[N,3] d) { d = Mul(u, w) },
                else_branch = deeper () => (float[N,3] e) { e = Identity(a) }
            >
        },
        else_branch = else_graph () => (float[N,3] f) { f = Clip(a, , w_max) }
    >
    w_max = Constant <value = float {6}> ()
    z = custom.Strange <names = ["a", "b"], mode = "m"> (x, , w)
}
<domain: "local", opset_import: ["" : 21], doc_string: "scales">
scale <factor> (v, m) => (r) {
    c = Constant <value_float: float = @factor> ()
    s = Mul(v, c)
    r = Mul(s, m)
}
"""


def nested_model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(NESTED)
    proto.metadata_props.add(key="k", value="v")
    proto.graph.node[0].metadata_props.add(key="namespace", value="a/b")
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    annotation = proto.graph.quantization_annotation.add(tensor_name="w")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="unused")
    proto.graph.doc_string = "doc"
    # The parser accepts the order in which the text is written; onnx wants definitions first.
    nodes = sorted(proto.graph.node, key=lambda node: node.op_type != "Constant")
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto
