"""Every answer an oracle ever gave, in sqlite.

Single answers are kept, not verdicts: how many of them make a verdict depends on ``--tries`` and
``--confirm``. A resumed run replays them in order, so it asks nothing again and comes to the same
verdicts, flaky oracles included.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from onnxreduce.errors import Unwritable
from onnxreduce.verdict import Outcome, Verdict

MOST = 1 << 27
"""Bytes of answers that are kept: some 400,000."""
OFTEN = 256
"""After so many new answers it is looked whether there is room."""

SCHEMA = """
create table if not exists answers (
    id integer primary key,
    fingerprint text not null,
    question text not null,
    outcome text not null,
    detail text not null,
    signature text,
    seconds real not null,
    within real
);
create index if not exists questions on answers (fingerprint, question);
"""


@dataclass(frozen=True)
class Answer:
    """What an oracle said once.

    Attributes:
        verdict: the answer.
        seconds: how long it took.
        within: for a timeout, the limit in seconds: a run with a higher one asks again.
    """

    verdict: Verdict
    seconds: float
    within: float | None = None


class Cache:
    """Answers by question (a digest) and fingerprint (which oracle, which settings).

    Safe to use from several threads; several processes may share a file.

    Args:
        path: the database; ``None``: in memory.
        fingerprint: answers of other fingerprints are never seen.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._lock = threading.Lock()
        self._added = 0
        try:
            self._database = _opened(path)
            self._make_room()
        except sqlite3.Error as error:
            raise Unwritable(f"the oracle's answers cannot be stored: {error}") from error

    def answers(self, question: str, timeout: float | None = None) -> list[Answer]:
        """What was said, oldest first; without timeouts shorter than `timeout`."""
        query = (
            "select outcome, detail, signature, seconds, within from answers"
            " where fingerprint = ? and question = ? order by id"
        )
        with self._lock:
            rows = self._database.execute(query, (self.fingerprint, question)).fetchall()
        return [
            Answer(Verdict(Outcome(outcome), detail, signature), seconds, within)
            for outcome, detail, signature, seconds, within in rows
            if within is None or (timeout is not None and within >= timeout)
        ]

    def add(self, question: str, answer: Answer) -> None:
        """Remembers an answer, also should the process die right now.

        Raises:
            Unwritable: as on a full disk.
        """
        try:
            self._insert(question, answer)
            self._added += 1
            if self._added % OFTEN == 0:
                self._make_room()
        except sqlite3.Error as error:
            raise Unwritable(f"the oracle's answers cannot be stored: {error}") from error

    def _insert(self, question: str, answer: Answer) -> None:
        verdict = answer.verdict
        with self._lock:
            self._database.execute(
                "insert into answers"
                " (fingerprint, question, outcome, detail, signature, seconds, within)"
                " values (?, ?, ?, ?, ?, ?, ?)",
                (
                    self.fingerprint,
                    question,
                    verdict.outcome.value,
                    verdict.detail,
                    verdict.signature,
                    answer.seconds,
                    answer.within,
                ),
            )

    def _make_room(self) -> None:
        """Forgets a quarter when there are too many: of other oracles first, the oldest first.

        The pages that become free are used again, so the file stays as it is."""
        with self._lock:
            pages, free, size = (
                self._database.execute(f"pragma {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size > MOST:
                self._database.execute(
                    "delete from answers where id in (select id from answers"
                    " order by fingerprint = ?, id limit (select count(*) / 4 + 1 from answers))",
                    (self.fingerprint,),
                )

    def totals(self) -> tuple[int, float]:
        """How many answers there are, and the seconds that they took: over all resumed runs."""
        with self._lock:
            count, seconds = self._database.execute(
                "select count(*), coalesce(sum(seconds), 0) from answers where fingerprint = ?",
                (self.fingerprint,),
            ).fetchone()
        return int(count), float(seconds)

    def close(self) -> None:
        with self._lock, contextlib.suppress(sqlite3.Error):  # nothing is left to be written
            self._database.close()


def _opened(path: Path | None) -> sqlite3.Connection:
    try:
        return _open(path)
    except sqlite3.OperationalError:  # it cannot be read or written
        raise
    except sqlite3.DatabaseError:
        if path is None:
            raise
    for suffix in ("", "-wal", "-shm"):  # not a database (any more): only a cache
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return _open(path)


def _open(path: Path | None) -> sqlite3.Connection:
    database = sqlite3.connect(
        path or ":memory:", isolation_level=None, check_same_thread=False, timeout=30
    )
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(database.close)
        # With a write-ahead log a commit survives the death of the process without an fsync.
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        database.executescript(SCHEMA)
        on_failure.pop_all()
    return database
