"""The main job: wires case, oracle, passes and artefacts, and runs them to a result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import onnx_ir as ir

from onnxreduce.books import Books
from onnxreduce.budget import Budget, Deadline, Stopped
from onnxreduce.candidates import Candidates
from onnxreduce.case import Case, InputValue
from onnxreduce.conclusion import Conclusion
from onnxreduce.desk import Desk
from onnxreduce.engine import Engine
from onnxreduce.errors import OutOfTime, Unwritable, UsageError
from onnxreduce.history import History
from onnxreduce.lineage import mark, mark_again
from onnxreduce.modelio import Store, is_external
from onnxreduce.notes import Notes
from onnxreduce.options import Options
from onnxreduce.oracle.cache import Cache
from onnxreduce.oracle.executor import Panel
from onnxreduce.oracle.function import FunctionSource, Judged
from onnxreduce.oracle.judge import Judge
from onnxreduce.oracle.loading import OracleSource, find_oracle
from onnxreduce.oracle.runners import Runner, identity_of
from onnxreduce.progress import Listener, Silent
from onnxreduce.result import Result
from onnxreduce.schedule import preload, stages
from onnxreduce.scrub import Scrub, Scrubbed
from onnxreduce.speculate import SPARE
from onnxreduce.start import Start, control, first_case, other_sizes
from onnxreduce.trusted import SECONDS, Trusted
from onnxreduce.used import oracle_used
from onnxreduce.workspace import Workspace, claim

Source = OracleSource | FunctionSource

LEAST_SECONDS = 1.0
"""To find out what the original passes, however little time there is."""


def reduce(
    model: Case | str | Path | onnx.ModelProto | ir.Model,
    oracle: str | Path | Judged,
    *,
    inputs: Mapping[str, InputValue] | str | Path | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Result:
    """Reduces a model to the smallest one that still shows the bug.

    Args:
        model: a file, a model in memory, or a case with its inputs.
        oracle: a file or ready-made name as on the command line (it runs in processes of its own
            with a timeout), or a function from a candidate to a bool or a `Verdict`, which is
            called in this process: a crash or hang of it is one of yours.
        inputs: arrays by input name, or a file; default: beside the model, else made up.
        listener: told of progress; default: silence.
        **options: see `Options`.

    Raises:
        ReduceError: the model, inputs or oracle cannot be used, the oracle does not find the
            original interesting, or it contradicts itself.
    """
    if isinstance(inputs, (str, Path)):
        options["inputs"], inputs = Path(inputs), None
    settled = Options(**options)
    deadline = Deadline(settled.max_seconds)
    source = _source(oracle, settled)
    start = first_case(model, inputs, settled)
    with ExitStack() as stack:
        workspace = stack.enter_context(claim(settled.output, settled.resume, settled.force))
        candidates = Candidates(Store(workspace.candidates, is_external(start.case.model)))
        stack.enter_context(_terminable())
        left = deadline.left()
        seconds = SECONDS if left is None else min(SECONDS, max(left, LEAST_SECONDS))
        trusted = Trusted(candidates, workspace.recordings, seconds)
        stack.callback(trusted.close)
        start = _examined(start, settled, trusted)
        mark(start.case.model)
        run = Reduction(
            start, source, settled, workspace, candidates, trusted, listener or Silent(), deadline
        )
        return run.run()


def _source(oracle: str | Path | Judged, options: Options) -> Source:
    if isinstance(oracle, (str, Path)):
        return find_oracle(str(oracle), options.settings)
    return FunctionSource(oracle)


def _examined(start: Start, options: Options, trusted: Trusted) -> Start:
    """The start, with other sizes of made-up inputs when the model does not run at the first."""
    if trusted.examine(start.case) or not start.made_up:
        return start
    for other in other_sizes(start, options):
        if trusted.examine(other.case):
            return other
    trusted.examine(start.case)
    return start


@dataclass
class Reduction:
    """One run: opens what it needs, drives the engine, and draws the conclusion."""

    start: Start
    source: Source
    options: Options
    workspace: Workspace
    candidates: Candidates
    trusted: Trusted
    listener: Listener
    deadline: Deadline

    def run(self) -> Result:
        """To the fixpoint, or as far as the budgets and the user allow.

        Raises:
            ReduceError: see `reduce`.
        """
        notes = Notes(self.listener)
        notes.add(f"inputs: {self.start.origin}")
        with ExitStack() as stack:
            open_runner, jobs = self._runners(stack)
            runner = open_runner(self.source)
            stack.callback(runner.close)
            with self._in_time(runner):
                identity = identity_of(runner)
            fingerprint = self.source.fingerprint(identity)
            cache = Cache(self.workspace.cache if self.options.output else None, fingerprint)
            stack.callback(cache.close)
            history = self._history(fingerprint)
            stack.callback(history.close)
            earlier_calls, earlier_seconds = cache.totals()
            judge = self._judge(runner, cache)
            budget = Budget(self.options, lambda: earlier_calls + judge.calls, self.deadline)
            self.listener.started(self.start.case.size)
            stack.callback(self.listener.close)
            first = history.base or self.start.case
            if history.base is not None:
                mark_again(self.start.case.model, first.model)
            with self._in_time(runner):
                if self.options.error is not None:
                    notes.add(str(judge.plan(first, control(first), self.options.error)))
                self._get_ready(stack, first)
                verdict = judge.original(first)
                held = self.source.holding(judge.hold(first))
            history.begin(self.start.case)
            desk = self._desk(stack, judge, runner, partial(open_runner, held), jobs)
            books = Books(
                (first, verdict), desk, self.trusted, history, budget, notes, self.listener
            )
            stack.callback(books.close)
            engine = Engine(first, books, books.look_ahead)
            stopped_by, scrubbed = self._drive(engine, books, judge, notes)
            conclusion = Conclusion(
                self.start,
                self.options,
                oracle_used(self.source, identity),
                judge,
                self.trusted,
                self.candidates,
                history,
                books,
                budget,
                self.deadline,
                notes,
                earlier_seconds,
            )
            try:
                return conclusion.draw(engine.case, stopped_by, scrubbed)
            except (OSError, Unwritable) as error:
                raise history.unwritable(error) from error

    @contextmanager
    def _in_time(self, runner: Runner) -> Iterator[None]:
        """While the oracle has not judged the original."""
        try:
            with self.deadline.bounding(runner):
                yield
        except Stopped as stop:
            raise OutOfTime(
                f"stopped by {stop} before the oracle had judged the original: allow more than "
                f"{self.deadline.most:g} s"
            ) from None

    def _runners(self, stack: ExitStack) -> tuple[Callable[[Any], Runner], int]:
        """What opens a runner of an oracle, and how many there should be."""
        options = self.options
        if options.dask is None:
            return lambda source: source.open(), options.jobs or self.source.jobs
        if not isinstance(self.source, OracleSource):
            raise UsageError("a function of this process cannot be asked on a cluster: give a file")
        from onnxreduce.oracle.cluster import Cluster, RemoteRunner

        cluster = stack.enter_context(Cluster(options.dask))
        return partial(RemoteRunner, cluster), options.jobs or cluster.jobs

    def _get_ready(self, stack: ExitStack, first: Case) -> None:
        """Has what the passes need done while the oracle looks at the original; what fails here
        is tried again when it is needed, and told then."""
        ahead = ThreadPoolExecutor(2, thread_name_prefix="ready")
        stack.callback(ahead.shutdown)
        stack.callback(self.trusted.close)
        ahead.submit(self.trusted.recorded, first)
        ahead.submit(self.trusted.warm_up)
        ahead.submit(preload)

    def _history(self, fingerprint: str) -> History:
        return History(self.workspace, self.start.case, fingerprint, rebase=self.options.force)

    def _judge(self, runner: Runner, cache: Cache) -> Judge:
        options = self.options
        return Judge(
            runner,
            cache,
            self.candidates,
            timeout=options.timeout,
            tries=options.tries,
            confirm=options.confirm,
            cpu_time=options.cpu_time,
            memory=options.memory,
        )

    def _desk(
        self,
        stack: ExitStack,
        judge: Judge,
        runner: Runner,
        open_runner: Callable[[], Runner],
        jobs: int,
    ) -> Desk:
        most = jobs + SPARE if jobs > 1 else 1
        panel = Panel(judge, open_runner, most, runner if most == 1 else None)
        stack.enter_context(panel)
        return stack.enter_context(Desk(self.trusted, panel, self.candidates, jobs))

    def _drive(
        self, engine: Engine, books: Books, judge: Judge, notes: Notes
    ) -> tuple[str | None, Scrubbed | None]:
        """What stopped the engine (``None``: it came to the fixpoint), and what was scrubbed."""
        scrub = None
        try:
            engine.run(stages(cuts=self.options.cuts, suspects=judge.suspects))
            if self.options.scrub:
                scrub = Scrub(engine.case, books)
                scrub.run()
            stopped_by = None
        except Stopped as stop:
            stopped_by = str(stop)
        except (OSError, Unwritable) as error:
            notes.add(f"stopped: {error}")
            stopped_by = "disk"
        except KeyboardInterrupt:
            notes.add("interrupted: writing the best so far")
            stopped_by = "interrupt"
        finally:
            books.close()
        if scrub is None:
            return stopped_by, None
        engine.case = scrub.case
        notes.add("journal.jsonl and report.html tell of the original model: keep them to yourself")
        return stopped_by, scrub.scrubbed


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM means what Ctrl-C means. Only the main thread may say so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
