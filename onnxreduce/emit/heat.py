"""Tensors as pictures: heat maps as PNG data URIs, and tables of numbers for small ones."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from onnxreduce.emit.charts import histogram
from onnxreduce.emit.escape import clipped, escaped
from onnxreduce.emit.frame import count, figure
from onnxreduce.tensors import Array

PIXELS = 192
"""A heat map has at most so many cells each way; larger slices are thinned out."""

SMALL = 64
"""Elements up to which the numbers themselves are shown."""

IMAGE = 3
"""The last two axes of an image are both at least so long."""

_VALUES = np.array(
    [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float64
)
_ERRORS = np.array(
    [[13, 10, 32], [87, 16, 109], [187, 55, 84], [249, 142, 9], [252, 255, 200]], np.float64
)
_NOT_FINITE = (255, 0, 128)


def pair(expected: Array, actual: Array, worst: tuple[int, ...] | None) -> str:
    """Two tensors side by side, with their difference where the shapes allow it."""
    comparable = expected.shape == actual.shape and _numeric(expected) and _numeric(actual)
    if not comparable:
        return f'<div class="two">{_alone("expected", expected)}{_alone("actual", actual)}</div>'
    left, right = _wide(expected), _wide(actual)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(right - left)
    if expected.size <= SMALL:
        wrong = gap > 0
        sides = (("expected", expected, None), ("actual", actual, wrong), ("difference", gap, None))
        return '<div class="panels">' + "".join(
            f"<figure>{numbers(array, marked)}<figcaption><b>{name}</b></figcaption></figure>"
            for name, array, marked in sides
        ) + "</div>"  # fmt: skip
    parts = ""
    place = worst if worst is not None and len(worst) == expected.ndim else (0,) * expected.ndim
    axes = image_axes(expected.shape)
    if axes is not None:
        parts = _panels(left, right, gap, axes, place)
    return f"{parts}{_distribution(left, right)}"


def single(array: Array) -> str:
    """One tensor: its numbers, or a heat map of its first slice, or their distribution."""
    if not _numeric(array) or array.size <= SMALL:
        return numbers(array)
    wide = _wide(array)
    axes = image_axes(array.shape)
    if axes is None:
        return histogram(wide, wide[:0])
    part, where = _slice(wide, axes, (0,) * array.ndim)
    low, high = _range(part)
    return (
        f'<img alt="heat map" width="160" style="image-rendering:pixelated;border-radius:6px" '
        f'src="{png(shades(part, low, high, _VALUES))}">'
        f"<figcaption>{escaped(where)}, {figure(low)} to {figure(high)}</figcaption>"
    )


def _panels(
    left: Array, right: Array, gap: Array, axes: tuple[int, int], place: tuple[int, ...]
) -> str:
    parts = [_slice(array, axes, place)[0] for array in (left, right)]
    error, where = _slice(gap, axes, place, largest=True)
    low, high = _range(np.stack(parts))
    top = _range(error)[1]
    pictures = [
        ("expected", shades(parts[0], low, high, _VALUES), *_range(parts[0])),
        ("actual", shades(parts[1], low, high, _VALUES), *_range(parts[1])),
        ("difference", shades(error, 0.0, top, _ERRORS), 0.0, top),
    ]
    return '<div class="panels">' + "".join(
        f'<figure><img alt="{name} as a heat map" src="{png(pixels)}" '
        f'style="aspect-ratio:{_aspect(pixels.shape)}">'
        f"<figcaption><b>{name}</b> {escaped(where)}, {figure(least)} to {figure(most)}"
        "</figcaption></figure>"
        for name, pixels, least, most in pictures
    ) + "</div>"  # fmt: skip


def _distribution(left: Array, right: Array) -> str:
    drawn = histogram(left, right)
    if not drawn:
        return ""
    return (
        '<p class="legend"><span><i class="c-accent"></i>expected</span>'
        '<span><i class="c-second"></i>actual</span>'
        f"<span>how often each value occurs (square root)</span></p>{drawn}"
    )


def _alone(title: str, array: Array) -> str:
    shape = "×".join(map(str, array.shape)) or "scalar"
    return (
        f"<figure><figcaption><b>{title}</b> {escaped(array.dtype.name)} {shape}</figcaption>"
        f"{single(array)}</figure>"
    )


def image_axes(shape: Sequence[int]) -> tuple[int, int] | None:
    """The two axes to look at: the last two if they span an image, else the two longest."""
    if len(shape) >= 2 and min(shape[-2:]) >= IMAGE:
        return len(shape) - 2, len(shape) - 1
    long = sorted((axis for axis in range(len(shape)) if shape[axis] > 1), key=lambda a: -shape[a])
    return (min(long[:2]), max(long[:2])) if len(long) >= 2 else None


def _slice(
    array: Array, axes: tuple[int, int], place: tuple[int, ...], *, largest: bool = False
) -> tuple[Array, str]:
    """The plane through a place, thinned out to what a picture can show, and its indices."""
    at = tuple(slice(None) if axis in axes else index for axis, index in enumerate(place))
    plane = array[at]
    words = ",".join(":" if isinstance(index, slice) else str(index) for index in at)
    for axis in (0, 1):
        block = -(-plane.shape[axis] // PIXELS)
        if block > 1:
            starts = np.arange(0, plane.shape[axis], block)
            if largest:
                plane = np.fmax.reduceat(plane, starts, axis=axis)
            else:
                plane = np.take(plane, starts, axis=axis)
    return plane, f"[{words}]"


def _range(array: Array) -> tuple[float, float]:
    finite = array[np.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def shades(plane: Array, low: float, high: float, colours: Array) -> Array:
    """Numbers as RGB, uint8 [rows, columns, 3]; what is not finite stands out."""
    finite = np.isfinite(plane)
    span = high - low
    share = np.where(finite, (np.where(finite, plane, low) - low) / (span if span > 0 else 1), 0)
    at = np.clip(share, 0, 1) * (len(colours) - 1)
    first = np.minimum(at.astype(int), len(colours) - 2)
    part = (at - first)[..., None]
    mixed = colours[first] * (1 - part) + colours[first + 1] * part
    return np.where(finite[..., None], mixed, np.array(_NOT_FINITE)).astype(np.uint8)


def png(pixels: Array) -> str:
    """An RGB image as a data URI (PNG specification, colour type 2, filter 0)."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _aspect(shape: Sequence[int]) -> str:
    """As the tensor has it, but never a needle."""
    return f"{min(4.0, max(0.5, shape[1] / shape[0])):.3f}"


def numbers(array: Array, marked: Array | None = None) -> str:
    """Small tensors as tables of their last two axes, others as their first elements."""
    if array.size == 0:
        return '<p class="note">empty</p>'
    if array.size > SMALL:
        start = ", ".join(_text(item) for item in islice(array.flat, 8))
        return f'<p class="note mono">{escaped(start)}, … ({count(array.size)} elements)</p>'
    matrix = array.reshape((1,) * max(0, 2 - array.ndim) + array.shape)
    marks = None if marked is None else marked.reshape(matrix.shape)
    tables = []
    for outer in product(*(range(size) for size in matrix.shape[:-2])):
        caption = f"[{','.join(map(str, outer))},:,:]" if array.ndim > 2 and matrix.size else ""
        if len(caption) and np.prod(matrix.shape[:-2]) == 1:
            caption = ""
        tables.append((caption, _grid(matrix[outer], None if marks is None else marks[outer])))
    return "".join(
        (f"<figcaption>{escaped(caption)}</figcaption>" if caption else "") + grid
        for caption, grid in tables
    )


def _grid(plane: Array, marks: Array | None) -> str:
    return (
        '<table class="grid-of"><tbody>'
        + "".join(f"<tr>{''.join(_cells(plane, marks, row))}</tr>" for row in range(len(plane)))
        + "</tbody></table>"
    )


def _cells(plane: Array, marks: Array | None, row: int) -> Iterator[str]:
    for column, item in enumerate(plane[row]):
        off = marks is not None and bool(marks[row][column])
        nil = _text(item) in ("0", "0.0")
        css = ' class="off"' if off else ' class="nil"' if nil else ""
        yield f"<td{css}>{escaped(clipped(_text(item), 24))}</td>"


def _text(item: object) -> str:
    value = item.item() if isinstance(item, np.generic) else item
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, complex):
        return f"{value:.6g}"
    return f"{float(value):.6g}"  # type: ignore[arg-type]


def _numeric(array: Array) -> bool:
    return array.dtype.kind not in "OUSTc"


def _wide(array: Array) -> Array:
    return np.asarray(array.astype(np.float64))
