"""The trusted side: runs cases on backends that are believed to be right, in a child process."""

from __future__ import annotations

import contextlib
import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreduce.activations import LazyRecorder, Recorded
from onnxreduce.candidates import Candidates
from onnxreduce.case import Case, InputValue
from onnxreduce.process import Worker, WorkerError
from onnxreduce.validity import Checks

SECONDS = 600.0
"""Limit of a run of the original."""
FACTOR, LEAST = 10.0, 30.0
"""A candidate, being smaller, gets this multiple of the original's time, and at least so long."""

DEATHS = 3
"""So many worker processes may die over a case before that is taken for an answer."""


class Crew:
    """As many workers as there are calls at a time, from any thread."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._workers: list[Worker] = []
        self._closed = False

    def call(
        self,
        target: str,
        *args: Any,
        timeout: float | None = None,
        memory: int | None = None,
    ) -> Any:
        """See `Worker.call`; a call whose process dies is made again."""
        worker = self._take()
        try:
            for left in reversed(range(DEATHS)):
                try:
                    return worker.call(target, *args, timeout=timeout, memory=memory)
                except WorkerError as error:
                    if error.kind != "crash" or not left or self._closed:
                        raise
        finally:
            self._idle.put(worker)

    def hire(self) -> None:
        """One more worker, who has what a call needs loaded before he takes one."""
        worker = Worker()
        self._workers.append(worker)
        try:
            with contextlib.suppress(WorkerError):
                worker.call("onnxreduce.validity:get_ready", timeout=SECONDS)
        finally:
            self._idle.put(worker)
            if self._closed:
                worker.kill()

    def _take(self) -> Worker:
        """An idle worker; where there is none, a new one, or whoever is free before."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            if self._closed:
                raise WorkerError("crash", "the run is over") from None
            threading.Thread(target=self.hire, name="hire", daemon=True).start()
            return self._idle.get()

    def kill(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.kill()


class Trusted:
    """Checks candidates, records values, computes expected outputs. Takes calls from any thread.

    Args:
        candidates: where cases are written.
        recordings: a folder for recorded values.
        seconds: limit of a run of the original.
    """

    def __init__(self, candidates: Candidates, recordings: Path, seconds: float = SECONDS) -> None:
        self._crew = Crew()
        self._candidates = candidates
        self._recordings = recordings
        self._recorder = LazyRecorder(candidates, self._crew, recordings, seconds)
        self._seconds = seconds
        self._checks: Checks | None = None

    def examine(self, case: Case) -> bool:
        """Finds the checks that the original passes; whether some backend runs it."""
        path = self._candidates.write(case)
        try:
            self._checks = Checks.passed_by(case, path, self._crew, self._seconds)
        finally:
            self._candidates.discard(path)
        return self._checks.backend is not None

    def warm_up(self) -> None:
        """Has another process ready to check candidates while one records."""
        self._crew.hire()

    def limit(self, seconds: float) -> None:
        """Candidates need not take longer than a multiple of the original's time."""
        assert self._checks is not None
        self._checks = replace(self._checks, timeout=max(LEAST, FACTOR * seconds))

    def invalid(self, case: Case) -> str | None:
        """Why a candidate is not worth a question; None when nothing speaks against it."""
        assert self._checks is not None
        return self._checks.check(case, self._candidates)

    def recorded(self, case: Case) -> Case:
        """The case with its intermediate values."""
        return self._recorder.recorded(case)

    def outputs(self, case: Case) -> dict[str, InputValue] | None:
        """What the backend that runs the original makes of a case; None when none does."""
        assert self._checks is not None
        names = [value.name or "" for value in case.model.graph.outputs]
        path = self._candidates.write(case)
        target = self._recordings / "outputs.bin"
        arguments: tuple[Any, ...] = (
            self._checks.backend,
            str(path),
            dict(case.inputs),
            names,
            [],
            str(target),
        )
        try:
            if self._checks.backend is None:
                return None
            entries = self._crew.call(
                "onnxreduce.recorder:record",
                *arguments,
                timeout=self._checks.timeout or self._seconds,
            )
            recorded = Recorded(entries, target, {}, self._checks.backend)
            return {name: recorded.get(name) for name in names if name in recorded}
        except WorkerError:
            return None
        finally:
            target.unlink(missing_ok=True)
            self._candidates.discard(path)

    def close(self) -> None:
        """The workers hold nothing that they would have to put away."""
        self._crew.kill()
