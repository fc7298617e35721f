"""The journal: one JSON line an event, in the order in which things happened.

Accepted steps are flushed with fsync (about 15 ms); other events are only written, since losing
the last of them costs nothing: verdicts live in the cache, and the best case so far in its files.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxreduce.errors import Unwritable

Event = dict[str, Any]


class Journal:
    """Appends events to a JSONL file. Every event gets ``event`` and ``at`` (seconds, epoch)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = not _ends_with_newline(path)
        self._file = path.open("ab", buffering=0)

    def write(self, event: str, *, durable: bool = False, **fields: Any) -> None:
        """Appends an event; when `durable`, it is on the disk when this returns.

        Raises:
            Unwritable: as on a full disk. A half-written line is completed by nobody and passed
                over by `read`.
        """
        record = {"event": event, "at": round(time.time(), 3), **fields}
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        try:
            if self._torn:
                line = b"\n" + line
            self._torn = True
            if self._file.write(line) == len(line):
                self._torn = False
            else:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise Unwritable(f"{self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Event]:
    """Events of a journal; a line that a crash left half-written is passed over."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(event, dict):
                yield event


def _ends_with_newline(path: Path) -> bool:
    """A torn last line must not swallow the first event that is appended to it."""
    if not path.exists() or path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
