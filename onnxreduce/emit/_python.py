"""Python source for the values of a case: models, arrays, literals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxreduce.case import Case, InputValue
from onnxreduce.emit.text import model_text, parsed_back
from onnxreduce.tensors import Array

INLINE = 256
"""Elements of all inputs together that are written out; more are read from ``inputs.npz``."""

WIDTH = 96


def literal(text: str) -> str:
    """A readable string literal of several lines, whatever is in it."""
    plain = all(c.isprintable() or c == "\n" for c in text)
    if plain and "\\" not in text and '"""' not in text and not text.endswith('"'):
        return f'"""\\\n{text}"""'
    lines = "\n".join(f"    {line!r}" for line in text.splitlines(keepends=True))
    return f"(\n{lines}\n)"


def model_source(case: Case) -> str | None:
    """The model in ONNX's text form as a literal; ``None``: too large, or it would not be read
    back as the same model."""
    if case.size.elements > INLINE * 4:
        return None
    text = model_text(case) + "\n"
    return literal(text) if parsed_back(text, case) else None


def inputs_source(inputs: Mapping[str, InputValue]) -> str | None:
    """A dict of arrays; ``None``: too large, or of types that numpy lacks."""
    arrays = [part for value in inputs.values() for part in parts_of(value)]
    if sum(array.size for array in arrays) > INLINE:
        return None
    if any(array.dtype.isbuiltin != 1 for array in arrays):
        return None
    items = "".join(f"        {quoted(name)}: {_value(value)},\n" for name, value in inputs.items())
    return f"{{\n{items}    }}" if items else "{}"


def quoted(value: object) -> str:
    """``repr``, with double quotes where that takes no escapes."""
    text = repr(value)
    plain = isinstance(value, str) and "\\" not in text and '"' not in text
    return f'"{value}"' if plain else text


def parts_of(value: InputValue) -> list[Array]:
    """The arrays of an input."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _value(value: InputValue) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(array_source, value))}]"
    return "None" if value is None else array_source(value)


def array_source(array: Array) -> str:
    """An expression for a small array."""
    if array.dtype.kind in "OSUT":
        return f"np.array({array.tolist()!r}, dtype=object)"
    name = {"bool": "bool"}.get(array.dtype.name, f"np.{array.dtype.name}")
    if array.size and array.ndim and (array == array.flat[0]).all() and array.size > 4:
        return f"np.full({array.shape}, {_item(array.flat[0])}, {name})"
    if array.size == 0:
        return f"np.zeros({array.shape}, {name})"
    flat = _nested(array)
    return f"np.array({flat}, {name})"


def _nested(array: Array) -> str:
    if array.ndim == 0:
        return _item(array.flat[0])
    return f"[{', '.join(_nested(part) for part in array)}]"


def _item(item: np.generic) -> str:
    """The shortest text that gives the same element again."""
    if item.dtype.kind in "fc" and not np.isfinite(item):
        text = repr(complex(item)) if item.dtype.kind == "c" else f"np.{float(item)}"
        return text.replace("np.-inf", "-np.inf")
    return str(item)
