"""The journal: one JSON line an event, in the order in which things happened.

Accepted steps are flushed with fsync (about 15 ms); other events are only written, since losing
the last of them costs nothing: verdicts live in the cache, and the best case so far in its files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """Appends events to a JSONL file. Every event gets ``event`` and ``at`` (seconds, epoch)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _end_with_newline(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: str, *, durable: bool = False, **fields: Any) -> None:
        record = {"event": event, "at": round(time.time(), 3), **fields}
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())

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


def _end_with_newline(path: Path) -> None:
    """A torn last line must not swallow the first event that is appended to it."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
