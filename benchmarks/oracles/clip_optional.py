"""An omitted optional input in the middle."""

from common import runs


def interesting(case):
    """A Clip without a minimum but with a maximum, in a model that runs."""
    return any(
        node.op_type == "Clip" and len(node.input) >= 3 and node.input[1] == ""
        for node in case.model.graph.node
    ) and runs(case.model, case.inputs)
