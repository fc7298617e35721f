"""onnxreduce: reduce an ONNX model to the smallest one that still shows a bug.

from onnxreduce import Verdict, reduce

result = reduce("model.onnx", "diverges.py", output="model-reduced")
print(result.reduced.size)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreduce.case import Case
    from onnxreduce.errors import ReduceError
    from onnxreduce.reducer import reduce
    from onnxreduce.result import Result
    from onnxreduce.verdict import Outcome, Verdict

__version__ = "0.1.0"

__all__ = ["Case", "Outcome", "ReduceError", "Result", "Verdict", "reduce"]

_HOMES = {
    "Case": "case",
    "Outcome": "verdict",
    "ReduceError": "errors",
    "Result": "result",
    "Verdict": "verdict",
    "reduce": "reducer",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: an oracle that wants a `Verdict` need not load the reducer."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
