"""One operator at the start: a 7x7 Conv of stride 2 whose output a Relu reads."""

from common import attribute, readers, runs


def interesting(case):
    """A strided 7x7 Conv feeds a Relu, and the model runs."""
    after = readers(case.model)
    return any(
        node.op_type == "Conv"
        and attribute(node, "kernel_shape") == [7, 7]
        and attribute(node, "strides") == [2, 2]
        and any(reader.op_type == "Relu" for reader in after.get(node.output[0], []))
        for node in case.model.graph.node
    ) and runs(case.model, case.inputs)
