"""The node cases of the onnx package, collected once for all tests.

The package collects them by importing its modules: asked first for one operator, it never finds
the others again in the same process.
"""

from __future__ import annotations

from functools import cache

from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests


@cache
def node_cases() -> tuple[TestCase, ...]:
    """All of them: about 1,900, in some six seconds."""
    return tuple(load_model_tests(kind="node"))


def cases_of(operator: str) -> list[TestCase]:
    """Those whose only node is this operator."""
    return [
        case
        for case in node_cases()
        if [node.op_type for node in case.model.graph.node] == [operator]
    ]
