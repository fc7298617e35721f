"""How far two results are apart, in the measures that people use in reports.

What counts as equal is numpy's `allclose`: ``|actual - expected| <= atol + rtol * |expected|``,
NaN equal to NaN and an infinity to itself; `scale` adds a share of the tensor's largest expected
value to what is allowed, for tensors of very different ranges. Integers are compared exactly in
their own width, floats in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onnxreduce.tensors import Array

Kind = Literal["same", "values", "nonfinite", "shape", "dtype", "missing"]

SEVERITY: tuple[Kind, ...] = ("same", "values", "nonfinite", "shape", "dtype", "missing")
"""From agreement to what says most; the worst one names a comparison."""


@dataclass(frozen=True)
class Difference:
    """One value on both sides.

    Attributes:
        name: of the value.
        kind: ``same`` (within the tolerances), ``values``, ``nonfinite`` (NaN or an infinity on
            one side only), ``shape``, ``dtype`` or ``missing``.
        max_abs, max_rel, mean_abs: over the elements that are finite on both sides;
            `max_rel` over those whose expected value is not zero.
        ulps: the largest distance in units in the last place of the type; ``None`` for
            integers and where there is nothing to measure.
        cosine: of the angle between the two as vectors; ``None`` when one of them is zero.
        mismatched, total: elements out of tolerance, elements.
        worst: index of the element furthest out of tolerance, or furthest apart when none is.
        expected, actual: that element, or what differs (a shape, a dtype), as text.
        magnitude: the largest finite absolute value on the expected side.
    """

    name: str
    kind: Kind
    max_abs: float = 0.0
    max_rel: float = 0.0
    mean_abs: float = 0.0
    ulps: int | None = None
    cosine: float | None = None
    mismatched: int = 0
    total: int = 0
    worst: tuple[int, ...] | None = None
    expected: str = ""
    actual: str = ""
    magnitude: float = 0.0

    @property
    def place(self) -> str:
        """The worst element, such as ``Y[0,0,3,4]``."""
        index = ",".join(map(str, self.worst or ()))
        return f"{self.name}[{index}]" if self.worst else self.name

    def summary(self) -> str:
        """One line, such as ``max abs 1.658 at Y[0,0,3,4] (expected 2.1, actual 0.4)``."""
        sides = f"expected {self.expected}, actual {self.actual}"
        if self.kind == "missing":
            return f"{self.name}: {sides}"
        if self.kind in ("shape", "dtype"):
            return f"{self.kind} of {self.name}: {sides}"
        if self.kind == "nonfinite":
            return f"{self.place}: {sides} ({self.mismatched} of {self.total} elements differ)"
        if self.worst is None:
            return f"{self.name} is empty on both sides"
        return f"max abs {self.max_abs:.4g} at {self.place} ({sides})"

    def figures(self) -> str:
        """The other measures in one line, such as ``max rel 0.8, 12 of 64 elements, ...``."""
        words = [f"max rel {self.max_rel:.3g}", f"mean abs {self.mean_abs:.3g}"]
        if self.ulps is not None:
            words.append(f"{self.ulps} ulps")
        if self.cosine is not None:
            words.append(f"cosine {self.cosine:.6f}")
        return ", ".join([*words, f"{self.mismatched} of {self.total} elements out of tolerance"])


@dataclass(frozen=True)
class Comparison:
    """All values of two results, in the order of the expected side."""

    differences: tuple[Difference, ...]

    @property
    def agree(self) -> bool:
        return self.kind == "same"

    @property
    def kind(self) -> Kind:
        """The worst kind of all values."""
        return self.worst.kind if self.differences else "same"

    @property
    def worst(self) -> Difference:
        """The value that says most: worst kind first, then largest difference.

        Raises:
            ValueError: nothing was compared.
        """
        return max(self.differences, key=lambda d: (SEVERITY.index(d.kind), d.max_abs))

    @property
    def wrong(self) -> tuple[Difference, ...]:
        return tuple(d for d in self.differences if d.kind != "same")

    def summary(self) -> str:
        return self.worst.summary() if self.differences else "nothing to compare"


@dataclass(frozen=True)
class Tolerance:
    """What is allowed: ``atol + rtol * |expected| + scale * max |expected|``."""

    atol: float = 0.0
    rtol: float = 0.0
    scale: float = 0.0

    def __str__(self) -> str:
        share = f", scale={self.scale:g}" if self.scale else ""
        return f"atol={self.atol:g}, rtol={self.rtol:g}{share}"

    def allows(self, magnitudes: Array) -> Array:
        """For each element, given the absolute values of a tensor's expected ones."""
        largest = float(magnitudes.max(initial=0.0))
        return np.asarray(self.rtol * magnitudes + (self.atol + self.scale * largest))


EXACT = Tolerance()


def compare(
    expected: Mapping[str, Any], actual: Mapping[str, Any], tolerance: Tolerance = EXACT
) -> Comparison:
    """Compare two results by name.

    Args:
        expected: arrays, lists of them (sequences) or ``None`` (empty optionals).
        actual: the same; a name that is only here is ignored.
        tolerance: up to which two elements are the same.
    """
    found: list[Difference] = []
    for name, value in expected.items():
        if name in actual:
            found += _compare_values(name, value, actual[name], tolerance)
        else:
            found.append(Difference(name, "missing", expected="a value", actual="none"))
    return Comparison(tuple(found))


def compare_arrays(
    expected: Array, actual: Array, tolerance: Tolerance = EXACT, name: str = "value"
) -> Difference:
    """Compare two tensors of any type that ONNX has."""
    expected, actual = np.asarray(expected), np.asarray(actual)
    if _dtype(expected) != _dtype(actual):
        return Difference(name, "dtype", expected=_dtype(expected), actual=_dtype(actual))
    if expected.shape != actual.shape:
        sides = [str(list(array.shape)).replace(" ", "") for array in (expected, actual)]
        return Difference(name, "shape", expected=sides[0], actual=sides[1])
    if expected.size == 0:
        return Difference(name, "same")
    if expected.dtype.kind in "OUST":
        return _compare_strings(expected, actual, name)
    return _compare_numbers(expected, actual, tolerance, name)


def _compare_values(
    name: str, expected: Any, actual: Any, tolerance: Tolerance
) -> list[Difference]:
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        return [compare_arrays(expected, actual, tolerance, name)]
    if isinstance(expected, Sequence) and isinstance(actual, Sequence):
        if len(expected) != len(actual):
            sides = [f"a sequence of {len(side)}" for side in (expected, actual)]
            return [Difference(name, "shape", expected=sides[0], actual=sides[1])]
        found: list[Difference] = []
        for index, (left, right) in enumerate(zip(expected, actual, strict=True)):
            found += _compare_values(f"{name}.{index}", left, right, tolerance)
        return found
    if expected is None and actual is None:
        return [Difference(name, "same")]
    kinds = [_container(side) for side in (expected, actual)]
    return [Difference(name, "dtype", expected=kinds[0], actual=kinds[1])]


def _container(value: Any) -> str:
    if value is None:
        return "an empty optional"
    return "a tensor" if isinstance(value, np.ndarray) else "a sequence"


def _dtype(array: Array) -> str:
    return "string" if array.dtype.kind in "OUST" else array.dtype.name


def _compare_strings(expected: Array, actual: Array, name: str) -> Difference:
    wrong = np.asarray(expected.astype(str) != actual.astype(str))
    count = int(wrong.sum())
    worst = _index(int(np.argmax(wrong)), wrong.shape)
    return Difference(
        name,
        "values" if count else "same",
        max_abs=float(count > 0),
        mismatched=count,
        total=wrong.size,
        worst=worst,
        expected=repr(str(expected[worst])),
        actual=repr(str(actual[worst])),
    )


def _compare_numbers(expected: Array, actual: Array, tolerance: Tolerance, name: str) -> Difference:
    left, right = _wide(expected), _wide(actual)
    finite = np.isfinite(left) & np.isfinite(right)
    # Where one side is not finite: equal, both NaN, or a mismatch of the worse kind.
    odd = ~finite & ~((left == right) | (np.isnan(left) & np.isnan(right)))
    gap = np.where(finite, _gap(expected, actual, left, right), 0.0)
    scale = np.where(finite, np.abs(left), 0.0)
    excess = gap - tolerance.allows(scale)
    wrong = (excess > 0) | odd
    rank = np.where(wrong.any(), np.where(wrong, gap, -1.0), gap)
    flat = int(np.argmax(odd)) if odd.any() else int(np.argmax(rank))
    worst = _index(flat, expected.shape)
    nonzero = scale > 0
    count = int(finite.sum())
    return Difference(
        name,
        "nonfinite" if odd.any() else "values" if wrong.any() else "same",
        max_abs=float(gap.max()),
        max_rel=float((gap[nonzero] / scale[nonzero]).max()) if nonzero.any() else 0.0,
        mean_abs=float(gap.sum() / count) if count else 0.0,
        ulps=_ulps(expected, actual, finite),
        cosine=_cosine(left, right, finite),
        mismatched=int(wrong.sum()),
        total=wrong.size,
        worst=worst,
        expected=_number(expected[worst]),
        actual=_number(actual[worst]),
        magnitude=float(scale.max()),
    )


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)


def _gap(expected: Array, actual: Array, left: Array, right: Array) -> Array:
    """|actual - expected|; exact for 64-bit integers too, before it is rounded to float64."""
    if expected.dtype.kind in "iu" and expected.dtype.itemsize == 8:
        low, high = np.minimum(expected, actual), np.maximum(expected, actual)
        return (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(right - left))


def _ulps(expected: Array, actual: Array, finite: Array) -> int | None:
    """Distance on the line of all numbers of the type, which its bits count (sign-magnitude)."""
    if expected.dtype.kind not in "fV" or not finite.any() or expected.dtype.itemsize > 8:
        return None
    if np.issubdtype(expected.dtype, np.integer) or expected.dtype.name.startswith(("int", "uint")):
        return None
    places = [_line(array[finite]) for array in (expected, actual)]
    apart = np.where(places[0] > places[1], places[0] - places[1], places[1] - places[0])
    return int(apart.max())


def _line(array: Array) -> Array:
    """Positions as uint64, monotonic in the value; both zeros at the same place."""
    width = array.dtype.itemsize
    bits = np.ascontiguousarray(array).view(f"u{width}").astype(np.uint64)
    half = np.uint64(1 << (8 * width - 1))
    size = bits & np.uint64(int(half) - 1)
    return np.where(bits & half, half - size, half + size)


def _cosine(left: Array, right: Array, finite: Array) -> float | None:
    a, b = left[finite], right[finite]
    scale = [float(np.abs(side).max(initial=0.0)) for side in (a, b)]
    if not all(scale):
        return None
    a, b = a / scale[0], b / scale[1]  # squares of large numbers would overflow
    # Sums and no BLAS: its threads fight over a busy machine's cores.
    norms = [float(np.sqrt((np.abs(side) ** 2).sum())) for side in (a, b)]
    return float((np.conj(a) * b).sum().real / (norms[0] * norms[1]))


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _number(item: Any) -> str:
    """Short, and never so short that two different integers look alike."""
    item = item.item() if isinstance(item, np.generic) else item
    if isinstance(item, (bool, int)):
        return str(item)
    if isinstance(item, complex):
        return f"{item:.6g}"
    return f"{float(item):.6g}"
