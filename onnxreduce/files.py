"""Writing files so that a crash at any moment leaves the old content or the new, never half."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxreduce.errors import UsageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there replaces `path` when all went well."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """`content` into `path`, by way of a temporary file, fsync and rename."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def check_regular(path: Path) -> None:
    """Refuse what never ends or waits for somebody: devices, pipes, sockets.

    Raises:
        UsageError: `path` exists and is no regular file.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
