"""Candidate files, written once for all who read them."""

from __future__ import annotations

import threading
from pathlib import Path

from onnxreduce.case import Case
from onnxreduce.modelio import Store


class Candidates:
    """A `modelio.Store` in which a case that several readers hold is one file.

    The validity check, the recorder and the judge each write the case that they need and discard
    it afterwards; the file goes with the last of them. Safe to use from several threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, tuple[Path, int]] = {}
        self._lock = threading.Lock()

    def write(self, case: Case) -> Path:
        """The file of a case; pair with `discard`."""
        digest = case.digest
        with self._lock:
            if digest in self._held:
                path, holders = self._held[digest]
            else:
                path, holders = self._store.write(case), 0
            self._held[digest] = path, holders + 1
            return path

    def discard(self, path: Path) -> None:
        """One reader less."""
        with self._lock:
            digest = next(key for key, (held, _) in self._held.items() if held == path)
            holders = self._held.pop(digest)[1] - 1
            if holders:
                self._held[digest] = path, holders
            else:
                self._store.discard(path)
