"""Candidate files, written once for all who read them."""

from __future__ import annotations

import threading
from pathlib import Path

from onnxreduce.case import Case
from onnxreduce.modelio import Store, inputs_beside

Stamp = tuple[tuple[int, int] | None, ...]


class Candidates:
    """A `modelio.Store` in which a case that several readers hold is one file.

    The validity check, the recorder and the judge each write the case that they need and discard
    it afterwards; the file goes with the last of them. An oracle may have changed or removed what
    it was given: then the next reader gets a file of its own. Safe to use from several threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest: dict[str, tuple[Path, Stamp]] = {}
        self._holders: dict[Path, int] = {}
        self._gates: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def write(self, case: Case) -> Path:
        """The file of a case; pair with `discard`."""
        digest = case.digest
        with self._lock:
            gate = self._gates.setdefault(digest, threading.Lock())
        with gate:  # others write other cases meanwhile
            path = self._held(digest)
            if path is not None:
                return path
            path = self._store.write(case)
            with self._lock:
                self._newest[digest] = path, _stamp(path)
                self._holders[path] = 1
                self._gates.pop(digest, None)
            return path

    def discard(self, path: Path) -> None:
        """One reader less."""
        with self._lock:
            self._holders[path] -= 1
            if self._holders[path]:
                return
            del self._holders[path]
            for digest in [key for key, (newest, _) in self._newest.items() if newest == path]:
                del self._newest[digest]
        self._store.discard(path)

    def _held(self, digest: str) -> Path | None:
        """The file that others hold, if nobody has changed it; one more holds it now."""
        with self._lock:
            path, stamp = self._newest.get(digest, (None, ()))
            if path is None or path not in self._holders or _stamp(path) != stamp:
                return None
            self._gates.pop(digest, None)
            self._holders[path] += 1
            return path


def _stamp(path: Path) -> Stamp:
    """What shows that a file is as it was written: size and time of last change."""
    return tuple(_file_stamp(each) for each in (path, inputs_beside(path)))


def _file_stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
