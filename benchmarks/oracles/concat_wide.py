"""A crash that depends on a size: an 8-bit counter of channels overflows."""

import onnx
from common import attribute, producers, run


def interesting(case, *, limit: int = 255):
    """A channel Concat of Relus makes more than `limit` channels, and the model runs."""
    by = producers(case.model)
    wide = [
        node.output[0]
        for node in case.model.graph.node
        if node.op_type == "Concat"
        and attribute(node, "axis") == 1
        and len(node.input) >= 2
        and all(name in by and by[name].op_type == "Relu" for name in node.input)
    ]
    if not wide:
        return False
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wide)
    return any(output.shape[1] > limit for output in run(model, case.inputs))
