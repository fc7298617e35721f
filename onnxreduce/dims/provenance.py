"""Where each element of a small vector came from.

Exporters compute shapes from shapes: ``Concat(Gather(Shape(x), 0), -1, 64)``. When x shrinks, the
first element mends itself, the second is inferred, and the third must be rewritten where it is
stored. An element is therefore the size of an axis, a stored literal that may be overwritten, or
computed from others, and then evaluated again at the new sizes. A literal inside arithmetic is
never rewritten: it only constrains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod as multiply
from typing import Any

import numpy as np

from onnxreduce.dims.expr import Expr
from onnxreduce.dims.solve import Size
from onnxreduce.tensors import Array

LONGEST = 256
"""Vectors with more elements are data."""

Edge = tuple[str, int]
"""The first reader of a stored tensor on the way to where it is used: node key, input index."""


@dataclass(frozen=True, eq=False)
class Dim:
    """The size of an axis."""

    axis: Expr

    @property
    def value(self) -> int:
        return self.axis.size

    def at(self, size: Size) -> Any:
        return size(self.axis)


@dataclass(frozen=True)
class Lit:
    """One element of a stored tensor."""

    root: str
    index: int
    edge: Edge
    value: Any

    def at(self, size: Size) -> Any:
        return self.value


@dataclass(frozen=True, eq=False)
class Calc:
    """Computed from other elements."""

    function: Callable[..., Any]
    parts: tuple[Element, ...]
    value: Any

    def at(self, size: Size) -> Any:
        return self.function(*(part.at(size) for part in self.parts))


Element = Dim | Lit | Calc


@dataclass(frozen=True, eq=False)
class Vector:
    """A scalar or a vector with known elements."""

    elements: tuple[Element, ...]
    rank: int
    dtype: np.dtype[Any]

    def array(self, size: Size) -> Array:
        flat = np.array([element.at(size) for element in self.elements], self.dtype)
        return flat.reshape(()) if self.rank == 0 else flat


def stored(array: Array, root: str, edge: Edge) -> Vector | None:
    """The elements of a stored tensor; ``None`` for data."""
    if array.ndim > 1 or array.size > LONGEST or array.dtype.kind not in "iufb":
        return None
    elements = tuple(
        Lit(root, index, edge, value) for index, value in enumerate(array.reshape(-1).tolist())
    )
    return Vector(elements, array.ndim, array.dtype)


Inputs = Sequence[Vector | None]
Tracer = Callable[[Any, Inputs], "Vector | None"]
"""Gets the node's site and the vectors of its inputs."""

TRACERS: dict[str, Tracer] = {}


def tracer(*op_types: str) -> Callable[[Tracer], Tracer]:
    def register(function: Tracer) -> Tracer:
        TRACERS.update(dict.fromkeys(op_types, function))
        return function

    return register


def traced(site: Any) -> bool:
    """Whether the elements of what this node makes can be followed: a short vector, by size."""
    return site.domain == "" and site.op_type in TRACERS and fits(site.shape_out())


def fits(shape: tuple[int, ...]) -> bool:
    return len(shape) <= 1 and multiply(shape) <= LONGEST


def trace(site: Any, inputs: Inputs) -> Vector | None:
    """The elements of a node's first output, where they are known."""
    return TRACERS[site.op_type](site, inputs)


@tracer("Shape")
def _shape(site: Any, inputs: Inputs) -> Vector | None:
    axes = site.ax(0)
    chosen = axes[slice(site.number("start", 0), site.number("end", len(axes)))]
    return Vector(tuple(map(Dim, chosen)), 1, np.dtype(np.int64))


@tracer("Size")
def _size(site: Any, inputs: Inputs) -> Vector | None:
    parts = tuple(map(Dim, site.ax(0)))
    value = int(np.prod([part.value for part in parts], dtype=np.int64))
    element = Calc(lambda *sizes: int(np.prod(sizes, dtype=np.int64)), parts, value)
    return Vector((element,), 0, np.dtype(np.int64))


@tracer("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _same_elements(site: Any, inputs: Inputs) -> Vector | None:
    source, rank = inputs[0], len(site.shape_out())
    if source is None or rank > 1:
        return None
    return Vector(source.elements, rank, source.dtype)


@tracer("ConstantOfShape")
def _filled(site: Any, inputs: Inputs) -> Vector | None:
    """Equal elements that are no stored literal."""
    result = site.value_out()
    if result is None or result.dtype.kind not in "iufb":
        return None
    return _computed(lambda: result.reshape(-1)[0].item(), (), result)


@tracer("Cast", "CastLike")
def _cast(site: Any, inputs: Inputs) -> Vector | None:
    source, result = inputs[0], site.value_out()
    if source is None or result is None or result.dtype.kind not in "iufb":
        return None
    if result.dtype.kind == source.dtype.kind == "i":
        return Vector(source.elements, source.rank, result.dtype)
    convert = result.dtype.type
    return _computed(lambda value: convert(value).item(), (source,), result)


@tracer("Gather")
def _gather(site: Any, inputs: Inputs) -> Vector | None:
    source, indices = inputs[0], site.val(1)
    if source is None or indices is None or source.rank != 1 or indices.ndim > 1:
        return None
    elements = tuple(source.elements[index] for index in indices.reshape(-1).tolist())
    return Vector(elements, indices.ndim, source.dtype)


@tracer("Slice")
def _slice(site: Any, inputs: Inputs) -> Vector | None:
    source = inputs[0]
    bounds = site.slices()
    if source is None or source.rank != 1 or bounds is None:
        return None
    _, start, end, step = bounds[0]
    return Vector(source.elements[slice(start, end, step)], 1, source.dtype)


@tracer("Concat")
def _concat(site: Any, inputs: Inputs) -> Vector | None:
    known = [vector for vector in inputs if vector is not None]
    if len(known) != len(inputs) or any(vector.rank != 1 for vector in known):
        return None
    elements = tuple(element for vector in known for element in vector.elements)
    return Vector(elements, 1, known[0].dtype)


@tracer("Where")
def _where(site: Any, inputs: Inputs) -> Vector | None:
    condition, result = site.val(0), site.value_out()
    left, right = inputs[1], inputs[2]
    if condition is None or result is None or left is None or right is None or result.ndim > 1:
        return None
    count = result.size
    chosen = np.broadcast_to(condition, result.shape).reshape(-1).tolist()
    sides = (_spread(right, count), _spread(left, count))
    elements = tuple(sides[bool(flag)][at] for at, flag in enumerate(chosen))
    return Vector(elements, result.ndim, result.dtype)


def _spread(vector: Vector, count: int) -> tuple[Element, ...]:
    return vector.elements if len(vector.elements) == count else vector.elements * count


def _computed(function: Callable[..., Any], inputs: Sequence[Vector], result: Array) -> Vector:
    count = result.size
    columns = [_spread(vector, count) for vector in inputs]
    flat = result.reshape(-1).tolist()
    elements = tuple(
        Calc(function, tuple(column[at] for column in columns), flat[at]) for at in range(count)
    )
    return Vector(elements, result.ndim, result.dtype)


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if abs(a) < 2**53 else a // b  # ONNX integer Div truncates
    return a / b


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Mod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "Greater": lambda a, b: a > b,
    "Neg": lambda a: -a,
    "Abs": abs,
    "Floor": lambda a: float(np.floor(a)),
    "Ceil": lambda a: float(np.ceil(a)),
    "Round": lambda a: float(np.round(a)),
    "Sqrt": lambda a: float(np.sqrt(a)),
}


@tracer(*ARITHMETIC)
def _arithmetic(site: Any, inputs: Inputs) -> Vector | None:
    known = [vector for vector in inputs if vector is not None]
    if len(known) != len(inputs):
        return None
    result = site.value_out()
    if result is None:
        result = _worked_out(site, known)
    if result.ndim > 1:
        return None
    if result.size > LONGEST or any(len(v.elements) not in (1, result.size) for v in known):
        return None
    function = ARITHMETIC[site.op_type]
    if len(known) == 1 and site.op_type in ("Min", "Max"):
        return known[0]
    return _computed(function, known, result)


def _worked_out(site: Any, inputs: Sequence[Vector]) -> Array:
    """What arithmetic inside a body gives: nothing is recorded there."""
    count = max(len(vector.elements) for vector in inputs)
    columns = [[element.value for element in _spread(vector, count)] for vector in inputs]
    function = ARITHMETIC[site.op_type]
    truth = site.op_type in ("Equal", "Less", "Greater")
    flat = [function(*values) for values in zip(*columns, strict=True)]
    return np.array(flat, np.bool_ if truth else inputs[0].dtype).reshape(site.shape_out())


@tracer("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(site: Any, inputs: Inputs) -> Vector | None:
    source, result = inputs[0], site.value_out()
    if source is None or source.rank != 1 or result is None or result.size != 1:
        return None
    functions: dict[str, Callable[[Array], Any]] = {
        "Prod": np.prod,
        "Sum": np.sum,
        "Max": np.max,
        "Min": np.min,
    }
    function = functions[site.op_type[6:]]

    def reduce(*values: Any) -> Any:
        return function(np.array(values, source.dtype)).item()

    element = Calc(reduce, source.elements, result.item())
    return Vector((element,), result.ndim, result.dtype)
