"""Arrays in ``.npz`` files: no pickles, no surprises in size, and the types NumPy lacks.

NumPy cannot store bfloat16, float8 or int4 and reads them back as raw bytes. They are written as
unsigned integers of the same width (their bit patterns); the entry's comment in the archive names
the type, so `read_npz` gives it back, and any other reader sees the bits.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxreduce.errors import UsageError
from onnxreduce.files import check_regular
from onnxreduce.tensors import Array

BITS = {
    kind.name: kind
    for kind in (
        np.dtype(dtype.numpy())
        for dtype in ir.DataType
        if dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING)
    )
    if kind.isbuiltin != 1
}
"""The types that NumPy cannot store, by name."""

FREE = 1 << 28
"""Archives may always expand to this many bytes."""

RATIO = 100
"""Larger ones may expand to this many times their size on disk."""


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an archive by name.

    Raises:
        UsageError: it cannot be read, is no ``.npz``, holds pickles, or expands implausibly.
    """
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            promised = sum(entry.file_size for entry in entries)
            if promised > max(FREE, RATIO * path.stat().st_size):
                raise UsageError(f"{path} would expand to {promised} bytes: refused")
            return {
                entry.filename.removesuffix(".npy"): _read_entry(path, archive, entry)
                for entry in entries
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{path} is not a whole .npz file: {error}") from None
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_entry(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    try:
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(stream)
            header = stream.tell()
        if dtype.hasobject:
            raise UsageError(
                f"{path}: {entry.filename} holds Python objects, which are not read: store strings "
                "with dtype 'U' or 'S'"
            )
        if math.prod(shape) * dtype.itemsize != entry.file_size - header:
            raise UsageError(f"{path}: {entry.filename} does not hold as much as its shape says")
        with archive.open(entry) as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        kind = BITS.get(entry.comment.decode("ascii", "replace"))
        return array.view(kind) if kind and kind.itemsize == array.dtype.itemsize else array
    except ValueError as error:
        raise UsageError(f"{path}: {entry.filename} is not a NumPy array: {error}") from None


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays so that `read_npz` and `numpy.load` read them."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # A fixed date: the same arrays give the same file.
            entry = zipfile.ZipInfo(f"{name}.npy")
            if array.dtype.name in BITS:
                entry.comment = array.dtype.name.encode()
            with archive.open(entry, "w", force_zip64=array.nbytes > 1 << 30) as stream:
                np.lib.format.write_array(stream, _storable(array), allow_pickle=False)


def _storable(array: Array) -> Array:
    if array.dtype.kind == "O":
        texts = [
            item.decode() if isinstance(item, bytes) else str(item)
            for item in array.reshape(-1).tolist()
        ]
        return np.array(texts, np.str_).reshape(array.shape)
    if array.dtype.name in BITS:
        return array.view(f"u{array.dtype.itemsize}")
    return array
