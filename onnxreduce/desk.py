"""The desk: where candidates are checked and put to the oracle, several at a time."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from onnxreduce.candidates import Candidates
from onnxreduce.case import Case
from onnxreduce.oracle.executor import Panel
from onnxreduce.trusted import Trusted
from onnxreduce.verdict import Verdict


class Desk:
    """Checks cases, and keeps the files of valid ones until they are released.

    Args:
        trusted: checks.
        panel: asks the oracle.
        candidates: writes files.
        jobs: how many checks, and how many questions, run at a time.
    """

    def __init__(self, trusted: Trusted, panel: Panel, candidates: Candidates, jobs: int) -> None:
        self.jobs = jobs
        self._trusted = trusted
        self._panel = panel
        self._candidates = candidates
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="check")
        # Large files take a while to be written and to be removed; neither is waited for.
        self._disk = ThreadPoolExecutor(jobs + 1, thread_name_prefix="disk")
        self._recordings = ThreadPoolExecutor(1, thread_name_prefix="record")
        self._known: dict[str, str | None] = {}
        self._files: dict[Case, Path] = {}

    def check(self, case: Case) -> Future[str | None]:
        """Why a candidate is invalid; None when it may be asked about."""
        return self._threads.submit(self._check, case)

    def ask(self, case: Case) -> Future[Verdict]:
        """The oracle's verdict."""
        return self._panel.submit(case)

    def record(self, case: Case) -> Future[Case]:
        """A valid case with its intermediate values."""
        return self._recordings.submit(self._trusted.recorded, case)

    def cancel(self, verdict: Future[Verdict]) -> None:
        """Gives up a question at once, if it has not been answered."""
        self._panel.cancel(verdict)

    def release(self, case: Case) -> None:
        """A checked case needs its file no longer."""
        path = self._files.pop(case, None)
        if path is not None:
            self._disk.submit(self._candidates.discard, path)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for case in list(self._files):
            self.release(case)
        self._recordings.shutdown(wait=True, cancel_futures=True)
        self._disk.shutdown(wait=True)

    def _check(self, case: Case) -> str | None:
        with contextlib.suppress(KeyError):
            return self._known[case.digest]
        written = self._disk.submit(self._candidates.write, case)
        reason: str | None = "not checked"
        try:
            reason = self._known[case.digest] = self._trusted.invalid(case)
        finally:
            path = written.result()
            if reason is None:
                self._files[case] = path
            else:
                self._disk.submit(self._candidates.discard, path)
        return reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
