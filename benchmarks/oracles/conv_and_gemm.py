"""Two operators at opposite ends, with nothing needed between them."""

from common import attribute, runs


def interesting(case):
    """A 7x7 Conv and a Gemm with transB=1 are both there, and the model runs."""
    nodes = case.model.graph.node
    conv = any(n.op_type == "Conv" and attribute(n, "kernel_shape") == [7, 7] for n in nodes)
    gemm = any(n.op_type == "Gemm" and attribute(n, "transB") == 1 for n in nodes)
    return conv and gemm and runs(case.model, case.inputs)
