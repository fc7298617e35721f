"""One small file an operator family; each rule is registered by domain and operator type."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from onnxreduce.dims.site import Site

Rule = Callable[[Site], None]

_rules: dict[tuple[str, str], Rule] = {}


def rule(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for operators of a domain."""

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            _rules[domain, op_type] = function
        return function

    return register


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def find(domain: str, op_type: str) -> Rule | None:
    """The rule for an operator, if there is one."""
    _load()
    return _rules.get(("" if domain == "ai.onnx" else domain, op_type))


def known() -> dict[tuple[str, str], Rule]:
    """All rules."""
    _load()
    return dict(_rules)
