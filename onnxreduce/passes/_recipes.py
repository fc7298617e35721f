"""Simpler contents for a tensor: what a person would write instead of random numbers.

Pure functions from an array to one of the same shape and dtype, from the simplest on. Special
values (NaN, infinities, negative zero, subnormal numbers) may be what the bug needs: every recipe
comes in a second form that leaves them where they are.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from onnxreduce.tensors import Array

TOLD_APART = 100
"""Up to this many elements are numbered without repeating."""

KEEP = "+special"
"""Appended to the name of a recipe: leave special values where they are."""


def cook(recipe: str, array: Array) -> Array:
    """The array that a recipe makes of another one; equal to it where the recipe does not fit."""
    name = recipe.removesuffix(KEEP)
    if array.dtype.kind in "OSUT":
        made = np.full(array.shape, "" if name == "zeros" else "a", array.dtype)
        return made if name in ("zeros", "ones") else array
    wide = array
    if is_float(array):
        wide = array.astype(np.float64)
    elif array.dtype.kind == "V":
        wide = array.astype(np.int64)
    with np.errstate(all="ignore"):
        made = (_RECIPES[name](wide) + 0).astype(array.dtype)  # no zero becomes a negative one
    if recipe.endswith(KEEP):
        made = np.where(special(array), array, made)
    return np.asarray(made)


def recipes(array: Array) -> list[str]:
    """The names of recipes for an array, simplest first."""
    if array.dtype.kind in "bOSUT":
        return ["zeros", "ones"]
    names = list(_RECIPES) if is_float(array) else list(INTEGER_RECIPES)
    if special(array).any():
        return [form for name in names for form in (name, name + KEEP)]
    return names


def is_float(array: Array) -> bool:
    """Floating point of any width; numpy gives the narrow ones of ml_dtypes the kind ``V``."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def special(array: Array) -> Array:
    """Where an array holds NaN, an infinity, negative zero or a subnormal number."""
    if not is_float(array):
        return np.zeros(array.shape, bool)
    wide = array.astype(np.float64)
    magnitude = np.abs(wide)
    limits = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]
    tiny = float(limits.tiny)
    subnormal = (magnitude > 0) & (magnitude < tiny)
    found: Array = ~np.isfinite(wide) | (np.signbit(wide) & (wide == 0)) | subnormal
    return found


def significant(array: Array, digits: int) -> Array:
    """Rounded to so many significant decimal digits; what is not finite stays."""
    magnitude = np.abs(array)
    usable = np.isfinite(array) & (magnitude > 0)
    exponent = np.floor(np.log10(np.where(usable, magnitude, 1.0)))
    power = 10.0 ** np.abs(digits - 1 - exponent)
    up = digits - 1 - exponent >= 0
    scaled = np.round(np.where(up, array * power, array / power))
    return np.where(usable, np.where(up, scaled / power, scaled * power), array)


def _identity(array: Array) -> Array:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] == 1:
        return array
    return np.broadcast_to(np.eye(array.shape[-1], dtype=array.dtype), array.shape)


def _arange(array: Array) -> Array:
    """0, 1, 2, ...; of large tensors the last digit."""
    numbers = np.arange(array.size)
    return (numbers if array.size <= TOLD_APART else numbers % 10).reshape(array.shape)


def _count(array: Array) -> Array:
    """1, 2, 3, ...: as `_arange`, and no element is zero."""
    numbers = np.arange(array.size)
    return ((numbers if array.size <= TOLD_APART else numbers % 9) + 1).reshape(array.shape)


def _even(array: Array) -> Array:
    """All non-zero elements equal to the first of them."""
    where = array != 0
    return np.where(where, array[where][0], array) if where.any() else array


def _small(array: Array) -> Array:
    """The integers from -4 to 4 that keep proportions best."""
    finite = np.where(np.isfinite(array), array, 0)
    most = np.abs(finite).max(initial=0)
    return np.round(array / most * 4) if most else array


_RECIPES: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "identity": _identity,
    "signs": np.sign,
    "arange": _arange,
    "count": _count,
    "even": _even,
    "integers": np.rint,
    "small integers": _small,
    "one digit": lambda array: significant(array, 1),
    "two digits": lambda array: significant(array, 2),
    "three digits": lambda array: significant(array, 3),
}

INTEGER_RECIPES = ("zeros", "ones", "identity", "signs", "arange", "count", "even")
