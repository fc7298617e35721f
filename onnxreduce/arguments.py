"""Words of the command line as numbers, sizes and pairs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypeVar

from onnxreduce.errors import UsageError

N = TypeVar("N", int, float)


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {item}: give it as NAME=VALUE")
        pairs[name] = value
    return pairs


def sizes(items: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for name, value in pairs(items, "--dim").items():
        if not value.isdecimal():
            raise UsageError(f"--dim {name}={value}: the size must be a whole number")
        sizes[name] = int(value)
    return sizes


def count(text: str) -> int:
    return _number(text, int, 1)


def natural(text: str) -> int:
    return _number(text, int, 0)


def positive(text: str) -> float:
    return _number(text, float, 1e-3)


def tolerance(text: str) -> float:
    return _number(text, float, 0.0)


def share(text: str) -> float:
    value = _number(text, float, 1e-9)
    if value > 0.2:
        raise argparse.ArgumentTypeError(f"{text} must be at most 0.2")
    return value


def _number(text: str, kind: type[N], least: N) -> N:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not least <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be at least {least}")
    return value


def size(text: str) -> int:
    units = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    digits, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    return int(_number(digits, float, 1e-3) * unit)
