"""How tensors travel between Python and the page: a JSON header, then raw bytes.

One envelope is ``u32 little-endian length of the header | header | tensor | tensor ...``, every
tensor starting at a multiple of eight bytes (JavaScript's typed arrays insist). A tensor is its
ONNX type name, its dims and its bytes as ONNX lays them out (little-endian, row-major; 4-bit
types two to a byte, low half first; strings as a JSON array in UTF-8). Nothing is converted on
the way, so bfloat16 and float16 arrive bit for bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from onnxreduce.tensors import Array

ALIGN = 8
_NIBBLES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}
_NAMES = [
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]
_EXTENDED = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
_DTYPES: dict[str, Any] = {name: np.dtype(name) for name in _NAMES} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENDED
}

Buffer = bytes | memoryview


def encode(array: Array) -> tuple[dict[str, Any], Buffer]:
    """The type and dims of an array, and its bytes.

    Raises:
        TypeError: the array has a dtype that no ONNX tensor has.
    """
    dims = list(array.shape)
    if array.dtype.kind in "OSUT":
        texts = [x.decode() if isinstance(x, bytes) else str(x) for x in array.ravel().tolist()]
        return {"type": "string", "dims": dims}, json.dumps(texts).encode()
    name = array.dtype.name
    if name in _NIBBLES:
        return {"type": name, "dims": dims}, _pack_nibbles(array)
    if name not in _DTYPES:
        raise TypeError(f"no ONNX tensor type for dtype {array.dtype}")
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return {"type": name, "dims": dims}, flat.view(np.uint8).data


def decode(kind: str, dims: list[int], data: memoryview) -> Array:
    """The array of a type name, dims and bytes; it keeps the buffer and does not copy it."""
    if kind == "string":
        return np.array(json.loads(bytes(data)), dtype=object).reshape(dims)
    if kind in _NIBBLES:
        return _unpack_nibbles(np.frombuffer(data, np.uint8), math.prod(dims), kind).reshape(dims)
    return np.frombuffer(data, _DTYPES[kind]).reshape(dims)


def pack(header: Mapping[str, Any], tensors: Mapping[str, Array]) -> list[Buffer]:
    """The parts of an envelope, to be written one after another."""
    described, bodies = [], []
    for name, array in tensors.items():
        form, body = encode(array)
        described.append({"name": name, **form, "bytes": len(body)})
        bodies.append(body)
    text = json.dumps({**header, "tensors": described}).encode()
    text += b" " * (-(4 + len(text)) % ALIGN)
    parts: list[Buffer] = [len(text).to_bytes(4, "little"), text]
    for body in bodies:
        parts += [body, bytes(-len(body) % ALIGN)]
    return parts


def unpack(envelope: bytes | bytearray) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the tensors of an envelope.

    Raises:
        ValueError: the bytes are no envelope, or end too early.
    """
    view = memoryview(envelope)
    at = 4 + int.from_bytes(view[:4], "little")
    header = json.loads(bytes(view[4:at]))
    tensors = {}
    for form in header.pop("tensors", []):
        size = form["bytes"]
        if at + size > len(view):
            raise ValueError(f"the page's answer ends inside tensor {form['name']!r}")
        tensors[form["name"]] = decode(form["type"], form["dims"], view[at : at + size])
        at += size + (-size % ALIGN)
    return header, tensors


def _pack_nibbles(array: Array) -> bytes:
    flat = array.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
    flat = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return bytes(flat[0::2] | (flat[1::2] << 4))


def _unpack_nibbles(packed: Array, count: int, kind: str) -> Array:
    pairs = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(-1)[:count]
    if kind == "int4":
        pairs = (pairs.astype(np.int8) ^ 8) - 8
    return pairs.astype(_NIBBLES[kind])
