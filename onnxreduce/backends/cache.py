"""Where backends keep what they fetch, and the lock that keeps two makers apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_home() -> Path:
    """The platform's cache directory for this user; ``ONNXREDUCE_CACHE`` moves it."""
    moved = os.environ.get("ONNXREDUCE_CACHE")
    if moved:
        return Path(moved)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "onnxreduce"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onnxreduce"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; it is let go of when its holder dies, too."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
