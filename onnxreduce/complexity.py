"""How long the numbers of a tensor are when written down.

Zero costs nothing and one costs one, then every digit counts: an edit that zeroes an element,
rounds it or replaces it by a small integer always makes a tensor simpler. Results are remembered
by tensor, so a candidate pays only for what an edit changed.
"""

from __future__ import annotations

import functools
import math
import weakref
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreduce.tensors import Array

SAMPLE = 4096
"""Beyond this many elements, digits are counted in an evenly spaced sample."""

COUNTED = 1 << 24
"""Beyond this many elements, zeros are counted in a sample too."""

COUNTABLE = 4096
"""Integers below this cost what they count; larger ones only their digits more than this."""

_by_tensor: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
_by_array: dict[int, tuple[weakref.ref[Any], int]] = {}


def tensor_complexity(tensor: ir.TensorProtocol) -> tuple[int, int]:
    """A tensor's number of elements and the complexity of its values; computed once a tensor."""
    known = _by_tensor.get(tensor)
    if known is None:
        known = _by_tensor[tensor] = (tensor.size, _complexity(tensor.numpy()))
    return known


def array_complexity(array: Array) -> int:
    """The complexity of an array's values; computed once an array (by identity)."""
    known = _by_array.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    cost = _complexity(array)
    name = id(array)
    _by_array[name] = (weakref.ref(array, lambda _: _by_array.pop(name, None)), cost)
    return cost


def element_complexity(flat: Array) -> Array:
    """The complexity of each number of a one-dimensional array; strings are not numbers."""
    return _digits(flat)


@functools.lru_cache(maxsize=65536)
def number_complexity(number: float) -> int:
    """The complexity of one number; a float is taken as the float32 that an attribute holds."""
    return 2 * int(
        _digits(np.array([number], np.float32 if isinstance(number, float) else None))[0]
    )


def _complexity(array: Array) -> int:
    if array.size == 0:
        return 0
    flat = array.reshape(-1)
    if flat.dtype.kind in "OSUT":
        return 2 * sum(len(item) for item in flat[:COUNTED].tolist())
    counted = flat if flat.size <= COUNTED else flat[:: math.ceil(flat.size / COUNTED)]
    nonzero = int(np.count_nonzero(counted)) * flat.size // counted.size
    sample = flat if flat.size <= SAMPLE else flat[:: math.ceil(flat.size / SAMPLE)]
    digits = _digits(sample)
    shown = int(np.count_nonzero(digits))
    total = int(digits.sum())
    if sample.size < flat.size and shown:
        total = nonzero * total // shown
    # Fewer distinct values are easier to write, as in a constant fill. They weigh less than any
    # digit: zeroing one of many equal elements adds a distinct value, and is still simpler.
    return 2 * total + _distinct(sample)


def _distinct(sample: Array) -> int:
    size = sample.dtype.itemsize
    bits = np.ascontiguousarray(sample).view(f"V{size}" if size > 8 or size == 3 else f"u{size}")
    return len(np.unique(bits)) - 1


def _digits(flat: Array) -> Array:
    """The cost of each number: 0 for zero, 1 for one, else its significant digits and marks."""
    if flat.dtype.kind == "c":
        parts = flat.view(np.float32 if flat.dtype == np.complex64 else np.float64)
        both: Array = _digits(parts).reshape(-1, 2).sum(axis=1, dtype=np.int64)
        return both
    if flat.dtype.kind in "bui":
        return _integer_digits(flat)
    wide = flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float32)
    exact = wide.astype(np.float64)
    finite = np.isfinite(exact)
    magnitude = np.where(finite, np.abs(exact), 0.0)
    exponent = np.floor(np.log10(np.where(magnitude > 0, magnitude, 1.0)))
    significant = _significant(wide, magnitude, exponent)
    whole = magnitude == np.floor(magnitude)
    trailing_zeros = exponent >= significant
    short = 1 + significant + trailing_zeros + np.maximum(exponent, 0) // 8
    decimal = significant + 3 + np.where(exponent < -4, 3, 0)
    cost = np.where(magnitude == 1, 1, np.where(whole, short, decimal))
    cost = np.where(magnitude == 0, 0, cost) + np.signbit(exact)
    return np.where(finite, cost, 4).astype(np.int64)


def _integer_digits(flat: Array) -> Array:
    # A small integer is often a size, an index or a threshold: there 5 is simpler than 7.
    magnitude = np.abs(flat.astype(np.float64))
    length = np.floor(np.log10(np.maximum(magnitude, 1))).astype(np.int64) + 2
    cost = np.where(magnitude < COUNTABLE, magnitude, COUNTABLE + length)
    return (cost + (flat.astype(np.float64) < 0)).astype(np.int64)


def _significant(wide: Array, magnitude: Array, exponent: Array) -> Array:
    """How many significant decimal digits it takes to give each number back exactly."""
    kind = wide.dtype.type
    most = 9 if wide.dtype == np.float32 else 17
    needed = np.full(wide.shape, most, np.int64)
    open_ = np.flatnonzero(magnitude > 0)
    target = np.abs(wide)
    for digits in range(1, most):
        if not open_.size:
            break
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            # Dividing by a power of ten is exact to half a unit where multiplying by its
            # inverse is not.
            shift = digits - 1 - exponent[open_]
            power = 10.0 ** np.abs(shift)
            scaled = np.where(shift >= 0, magnitude[open_] * power, magnitude[open_] / power)
            rounded = np.round(scaled)
            back = np.where(shift >= 0, rounded / power, rounded * power)
            hit = back.astype(kind) == target[open_]
        needed[open_[hit]] = digits
        open_ = open_[~hit]
    return needed
