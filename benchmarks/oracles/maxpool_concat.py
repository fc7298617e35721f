"""A fusion bug that needs four nodes in a branchy network.

The planted bug: where the last input of a channel Concat of four or more is
Relu(Conv(MaxPool of stride 1)), the backend writes that slice before the Relu was applied.
"""

import numpy as np
import onnx
from common import attribute, producers, run


def fused_wrongly(model):
    """The model as the buggy backend computes it, or None where the pattern does not occur."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    by, hit = producers(copy), False
    for node in copy.graph.node:
        if node.op_type != "Concat" or attribute(node, "axis") != 1 or len(node.input) < 4:
            continue
        relu = by.get(node.input[-1])
        conv = by.get(relu.input[0]) if relu is not None and relu.op_type == "Relu" else None
        pool = by.get(conv.input[0]) if conv is not None and conv.op_type == "Conv" else None
        if pool is None or pool.op_type != "MaxPool" or attribute(pool, "strides") != [1, 1]:
            continue
        node.input[len(node.input) - 1] = relu.input[0]
        hit = True
    return copy if hit else None


def interesting(case, *, atol: float = 1e-3):
    """The wrong fusion changes an output by more than `atol`."""
    wrong = fused_wrongly(case.model)
    if wrong is None:
        return False
    pairs = zip(run(case.model, case.inputs), run(wrong, case.inputs), strict=True)
    return any(a.size and np.isfinite(a).all() and np.abs(a - b).max() > atol for a, b in pairs)
