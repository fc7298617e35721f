"""The values of a graph as two sides show them: how far apart, and whose fault it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.compare import SEVERITY, Difference, Tolerance, compare
from onnxreduce.graph import Index, index
from onnxreduce.shapes import bind, inferred
from onnxreduce.suspects import born as birthplaces
from onnxreduce.tensors import Array
from onnxreduce.watching import Watcher

State = Literal["agrees", "born", "passed on", "hidden"]

SAMPLES = 4
"""How many tensors are kept for a closer look."""


class Odd(NamedTuple):
    """Elements of a tensor that are no numbers, or no finite ones."""

    nan: int = 0
    inf: int = 0

    def __str__(self) -> str:
        parts = [
            f"{count} {word}" for count, word in zip(self, ("NaN", "Inf"), strict=True) if count
        ]
        return ", ".join(parts)


class Pair(NamedTuple):
    """A tensor on both sides."""

    expected: Array
    actual: Array


@dataclass(frozen=True)
class Shown:
    """One value of the main graph.

    Attributes:
        name: of the value.
        node: the key of the node that makes it.
        label: that node's own name, which may be empty.
        op: its operator.
        position: of the node in graph order, from 0.
        shape, dtype: on the expected side; empty where it is not a tensor that was shown.
        state: ``born`` (wrong, and computed from right values), ``passed on`` (wrong, as something
            before it is), ``agrees``, or ``hidden`` (not shown).
        difference: between the sides; `None` when hidden.
        expected, actual: elements that are not finite.
    """

    name: str
    node: str
    label: str
    op: str
    position: int
    shape: tuple[int, ...] | None
    dtype: str
    state: State
    difference: Difference | None
    expected: Odd
    actual: Odd

    @property
    def max_abs(self) -> float:
        return self.difference.max_abs if self.difference else 0.0


def shown_values(
    known: Index,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    tolerance: Tolerance,
    watcher: Watcher,
    born: Collection[str] | None = None,
) -> tuple[Shown, ...]:
    """All values of a graph, in its order.

    Args:
        known: the graph.
        expected, actual: what the sides show, by value.
        tolerance: what is no difference.
        watcher: told how far it is.
        born: where errors are born, if that is known; else it is worked out.
    """
    names = [name for key in known.order for name in known.writes[key]]
    found: dict[str, Difference] = {}
    for name in watcher.each(names, len(names)):
        if name in expected and name in actual:
            all_parts = compare({name: expected[name]}, actual, tolerance)
            found[name] = all_parts.worst if all_parts.differences else Difference(name, "same")
    wrong = {name for name, difference in found.items() if difference.kind != "same"}
    if born is None:
        born = frozenset(birthplaces(known, wrong, found))

    def state(name: str) -> State:
        if name not in found:
            return "hidden"
        if name in wrong:
            return "born" if name in born else "passed on"
        return "agrees"

    return tuple(
        _shown(known, key, name, state(name), found.get(name), expected, actual)
        for key in known.order
        for name in known.writes[key]
    )


def _shown(
    known: Index,
    key: str,
    name: str,
    state: State,
    difference: Difference | None,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
) -> Shown:
    node = known.nodes[key]
    left = expected.get(name)
    tensor = isinstance(left, np.ndarray) and difference is not None
    return Shown(
        name=name,
        node=key,
        label=node.name or "",
        op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
        position=known.position[key],
        shape=tuple(left.shape) if tensor and left is not None else None,
        dtype=left.dtype.name if tensor and left is not None else "",
        state=state,
        difference=difference,
        expected=odd(left) if difference else Odd(),
        actual=odd(actual.get(name)) if difference else Odd(),
    )


def odd(value: Any) -> Odd:
    """Counts of NaN and infinities."""
    if isinstance(value, list):
        parts = [odd(part) for part in value]
        return Odd(sum(part.nan for part in parts), sum(part.inf for part in parts))
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fcV" or not value.size:
        return Odd()
    wide = value if value.dtype.kind == "c" else value.astype(np.float64)
    return Odd(int(np.isnan(wide).sum()), int(np.isinf(wide).sum()))


def samples(
    values: tuple[Shown, ...], expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> dict[str, Pair]:
    """The tensors worth a look: where errors are born, then where they are worst."""
    wrong = [value for value in values if value.state in ("born", "passed on")]
    wrong.sort(key=lambda v: (v.state != "born", v.state != "born" and _severity(v)))
    found: dict[str, Pair] = {}
    for value in wrong:
        pair = expected.get(value.name), actual.get(value.name)
        if len(found) < SAMPLES and all(isinstance(side, np.ndarray) for side in pair):
            found[value.name] = Pair(np.asarray(pair[0]), np.asarray(pair[1]))
    return found


def _severity(value: Shown) -> tuple[int, float]:
    """Sorts the worst first."""
    assert value.difference is not None
    return -SEVERITY.index(value.difference.kind), -value.difference.max_abs


def bytes_of_values(case: Case) -> int:
    """What the intermediate values of a case take in memory, as far as their shapes are known."""
    sizes: dict[str, int] = {}
    for value in case.model.graph.inputs:
        array = case.inputs.get(value.name or "")
        if isinstance(array, np.ndarray):
            bind(value.shape, array.shape, sizes)
    types = inferred(case.model)
    total = 0
    for names in index(case.model).writes.values():
        for name in names:
            known = types.get(name)
            if known is None or known.shape is None or not isinstance(known.type, ir.TensorType):
                continue
            count = 1
            for dim in known.shape:
                count *= dim if isinstance(dim, int) else sizes.get(dim.value or "", 1)
            total += count * max(1, known.type.dtype.bitwidth // 8)
    return total
