"""Several candidates judged at once: threads, each with a warm runner of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Self

from onnxreduce.case import Case
from onnxreduce.oracle.judge import Judge
from onnxreduce.oracle.runners import Interrupted, Runner
from onnxreduce.verdict import Verdict


class Panel:
    """Judges up to `jobs` candidates at a time.

    The calling thread never asks, so it stays free for Ctrl-C and for planning ahead.

    Args:
        judge: gives the verdicts; has judged the original already.
        open_runner: makes a runner for each job, when it is first needed.
        jobs: how many questions may run at the same time.
        first: a runner that is open already; whoever opened it closes it. With one job there is
            no other then: one browser, one device, one address for an agent.
    """

    def __init__(
        self,
        judge: Judge,
        open_runner: Callable[[], Runner],
        jobs: int = 1,
        first: Runner | None = None,
    ) -> None:
        self._judge = judge
        self._open_runner = open_runner
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="oracle")
        self._idle: queue.LifoQueue[Runner] = queue.LifoQueue()
        self._runners: list[Runner] = []
        self._submitted: set[Future[Verdict]] = set()
        self._running: dict[Future[Verdict], Runner] = {}
        self._lock = threading.Lock()
        if first is not None:
            self._idle.put(first)

    def submit(self, case: Case) -> Future[Verdict]:
        """The verdict on a candidate, as a future that `cancel` can stop even while it runs."""
        verdict: Future[Verdict] = Future()
        with self._lock:
            self._submitted.add(verdict)
        verdict.add_done_callback(self._submitted.discard)
        self._threads.submit(self._work, verdict, case)
        return verdict

    def cancel(self, verdict: Future[Verdict]) -> None:
        """Give up a question: at once, by killing the oracle's processes if it has begun.

        A question that is answered already stays answered.
        """
        if verdict.cancel():
            return
        with self._lock:
            runner = self._running.get(verdict)
            if runner:
                runner.interrupt()

    def close(self) -> None:
        """Give up what is still asked, and end all the runners."""
        with self._lock:
            submitted = list(self._submitted)
        for verdict in submitted:
            self.cancel(verdict)
        self._threads.shutdown(wait=True)
        for runner in self._runners:
            runner.close()

    def _work(self, verdict: Future[Verdict], case: Case) -> None:
        if not verdict.set_running_or_notify_cancel():
            return
        try:
            runner = self._take()
            with self._lock:
                self._running[verdict] = runner
            try:
                result = self._judge.judge(case, runner)
            finally:
                with self._lock:
                    del self._running[verdict]
                runner.resume()
                self._idle.put(runner)
        except Interrupted:
            verdict.set_exception(CancelledError())
        except Exception as error:
            verdict.set_exception(error)
        else:
            verdict.set_result(result)

    def _take(self) -> Runner:
        """The runner used last, which is the warmest; a new one if all are busy."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            runner = self._open_runner()
            with self._lock:
                self._runners.append(runner)
            return runner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
