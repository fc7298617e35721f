"""The main job: wires case, oracle, passes and artefacts, and runs them to a result."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import onnx_ir as ir

from onnxreduce import emit
from onnxreduce.candidates import Candidates
from onnxreduce.case import Case, InputValue
from onnxreduce.desk import Desk
from onnxreduce.engine import Engine, Question
from onnxreduce.errors import Unwritable, UsageError
from onnxreduce.history import History
from onnxreduce.lineage import mark
from onnxreduce.modelio import Store, is_external
from onnxreduce.nearmiss import NearMisses
from onnxreduce.options import Options
from onnxreduce.oracle.cache import Cache
from onnxreduce.oracle.executor import Panel
from onnxreduce.oracle.function import FunctionSource, Judged
from onnxreduce.oracle.judge import Judge
from onnxreduce.oracle.loading import OracleSource, find_oracle
from onnxreduce.oracle.runners import Runner, identity_of
from onnxreduce.progress import Listener, Silent
from onnxreduce.result import Result
from onnxreduce.schedule import stages
from onnxreduce.scrub import Scrub, Scrubbed
from onnxreduce.sides import Side, backend_specs, measure
from onnxreduce.speculate import SPARE, Overdue, Speculation, Spent, ask_alone
from onnxreduce.start import Start, control, first_case, other_sizes
from onnxreduce.trusted import Trusted
from onnxreduce.used import oracle_used
from onnxreduce.verdict import Outcome, Verdict
from onnxreduce.walk import Recorder, Walk
from onnxreduce.workspace import Workspace, claim

OFTEN = 0.2
"""A share of skipped questions that the user should hear of."""

Source = OracleSource | FunctionSource


class Stopped(Exception):
    """A budget is used up; the best so far is the result."""


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
    source = _source(oracle, settled)
    start = first_case(model, inputs, settled)
    with ExitStack() as stack:
        workspace = stack.enter_context(claim(settled.output, settled.resume, settled.force))
        candidates = Candidates(Store(workspace.candidates, is_external(start.case.model)))
        stack.enter_context(_terminable())
        trusted = Trusted(candidates, workspace.recordings)
        stack.callback(trusted.close)
        start = _examined(start, settled, trusted)
        mark(start.case.model)
        run = Reduction(start, source, settled, workspace, candidates, trusted, listener)
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


class Reduction:
    """One run: answers the engine's questions, keeps the books, writes the result."""

    def __init__(
        self,
        start: Start,
        source: Source,
        options: Options,
        workspace: Workspace,
        candidates: Candidates,
        trusted: Trusted,
        listener: Listener | None,
    ) -> None:
        self.original = start.case
        self.listener = listener or Silent()
        self._source = source
        self._options = options
        self._workspace = workspace
        self._candidates = candidates
        self._trusted = trusted
        self._notes: list[str] = []
        self._began = time.monotonic()
        self._invalid = self._accepted = self._refused = 0
        self._broken = False
        self._ahead: Speculation | None = None
        self._verdict = Verdict.interesting()
        self._near = NearMisses(start.case)
        self._scrubbed: Scrubbed | None = None
        self._made_up = start.made_up
        self._note(f"inputs: {start.origin}")

    def run(self) -> Result:
        """To the fixpoint, or as far as the budgets and the user allow.

        Raises:
            ReduceError: see `reduce`.
        """
        with ExitStack() as stack:
            open_runner, jobs = self._runners(stack)
            runner = open_runner(self._source)
            stack.callback(runner.close)
            identity = identity_of(runner)
            self._used = oracle_used(self._source, identity)
            fingerprint = self._source.fingerprint(identity)
            answers = self._workspace.cache if self._options.output else None
            self._cache = Cache(answers, fingerprint)
            stack.callback(self._cache.close)
            self._history = History(
                self._workspace, self.original, fingerprint, rebase=self._options.force
            )
            stack.callback(self._history.close)
            self._earlier_calls, self._earlier_seconds = self._cache.totals()
            self._judge = self._make_judge(runner)
            self.listener.started(self.original.size)
            stack.callback(self.listener.close)
            first = self._history.base or self.original
            if self._options.error is not None:
                self._note(str(self._judge.plan(first, control(first), self._options.error)))
            self._verdict = self._judge.original(first)
            held = self._source.holding(self._judge.hold(first))
            self._history.begin(self.original)
            most = jobs + SPARE if jobs > 1 else 1
            shared = runner if most == 1 else None
            panel = Panel(self._judge, partial(open_runner, held), most, shared)
            stack.enter_context(panel)
            self._desk = Desk(self._trusted, panel, self._candidates, jobs)
            stack.enter_context(self._desk)
            engine = Engine(first, self, self._look_ahead)
            stopped_by = self._drive(engine)
            try:
                return self._finish(engine.case, stopped_by)
            except (OSError, Unwritable) as error:
                raise self._unwritable(error) from error

    def _runners(self, stack: ExitStack) -> tuple[Callable[[Any], Runner], int]:
        """What opens a runner of an oracle, and how many there should be."""
        options = self._options
        if options.dask is None:
            return lambda source: source.open(), options.jobs or self._source.jobs
        if not isinstance(self._source, OracleSource):
            raise UsageError("a function of this process cannot be asked on a cluster: give a file")
        from onnxreduce.oracle.cluster import Cluster, RemoteRunner

        cluster = stack.enter_context(Cluster(options.dask))
        return partial(RemoteRunner, cluster), options.jobs or cluster.jobs

    def _look_ahead(self, walk: Walk, recorded: Recorder) -> Speculation:
        self._ahead = Speculation(walk, recorded, self._desk, self._room)
        return self._ahead

    def _make_judge(self, runner: Any) -> Judge:
        options = self._options
        return Judge(
            runner,
            self._cache,
            self._candidates,
            timeout=options.timeout,
            tries=options.tries,
            confirm=options.confirm,
            memory=options.memory,
        )

    def _drive(self, engine: Engine) -> str | None:
        """What stopped the engine; ``None``: it came to the fixpoint."""
        schedule = stages(cuts=self._options.cuts, suspects=self._judge.suspects)
        try:
            engine.run(schedule)
            if self._options.scrub:
                self._scrub(engine)
        except Stopped as stop:
            return str(stop)
        except (OSError, Unwritable) as error:
            self._note(f"stopped: {error}")
            return "disk"
        except KeyboardInterrupt:
            self._note("interrupted: writing the best so far")
            return "interrupt"
        finally:
            if self._ahead is not None:
                self._ahead.close()
        return None

    def _scrub(self, engine: Engine) -> None:
        scrub = Scrub(engine.case, self)
        try:
            scrub.run()
        finally:
            engine.case, self._scrubbed = scrub.case, scrub.scrubbed
        self._note(
            "journal.jsonl and report.html tell of the original model: keep them to yourself"
        )

    # --- what the engine asks and tells ---

    def stage(self, name: str) -> None:
        self.listener.stage(name)

    def recorded(self, case: Case) -> Case:
        recorded = self._trusted.recorded(case)
        notice = getattr(recorded.recording, "notice", "")
        if notice:
            self._note(notice)
        return recorded

    def ask(self, question: Question) -> Verdict:
        self._check_budget()
        try:
            if self._ahead is not None and self._ahead.question() is question:
                verdict = self._ahead.verdict(self._seconds_left)
            else:
                verdict = ask_alone(self._desk, question.case, self._seconds_left())
        except Overdue:
            raise Stopped("max-seconds") from None
        except Spent:
            raise Stopped("max-calls") from None
        invalid = verdict.outcome is Outcome.INVALID
        self._invalid += invalid
        self._refused = 0 if verdict else self._refused + (not invalid)
        self._near.asked(question, verdict)
        self._history.asked(question, verdict, self._calls)
        self.listener.asked(self._calls)
        return verdict

    def accepted(self, question: Question, verdict: Verdict) -> None:
        self._accepted += 1
        self._verdict = verdict
        self._near.accepted(question.case)
        self._history.accepted(question, verdict, self._calls)
        self.listener.accepted(question.case.size, self._calls, question.edit)

    def broken(self, stage: str, error: Exception) -> None:
        self._broken = True
        self._history.broken(stage, error)
        self._note(
            f"the pass {stage} failed and was left out ({type(error).__name__}: {error}); "
            "please report it with the journal"
        )

    def _unwritable(self, error: OSError | Unwritable) -> UsageError:
        best = self._history.best
        if best is None:
            return UsageError(str(error))
        return UsageError(
            f"{error}; the best so far, {best.size.nodes} nodes, is in {self._workspace.output}: "
            "make room, then go on by --resume"
        )

    def _check_budget(self) -> None:
        left = self._seconds_left()
        if left is not None and left <= 0:
            raise Stopped("max-seconds")
        if self._options.max_calls is not None and self._calls >= self._options.max_calls:
            raise Stopped("max-calls")
        if self._options.patience is not None and self._refused >= self._options.patience:
            raise Stopped("patience")

    def _room(self) -> int | None:
        """How many questions the budget still allows."""
        most = self._options.max_calls
        return None if most is None else most - self._calls

    def _seconds_left(self) -> float | None:
        if self._options.max_seconds is None:
            return None
        return self._options.max_seconds - (time.monotonic() - self._began)

    @property
    def _calls(self) -> int:
        return self._earlier_calls + self._judge.calls

    # --- the end ---

    def _finish(self, case: Case, stopped_by: str | None) -> Result:
        case = self._history.furthest(case)
        confirmed = stopped_by is None and self._confirm(case)
        self._count_skips()
        sides = self._sides(case)
        result = Result(
            original=self.original,
            reduced=case,
            verdict=self._verdict,
            outputs=_outputs(sides) or self._trusted.outputs(case),
            oracle_calls=self._calls,
            cache_hits=self._judge.cache_hits,
            invalid=self._invalid,
            skipped=self._judge.skipped,
            accepted=self._accepted,
            seconds=time.monotonic() - self._began,
            oracle_seconds=self._earlier_seconds + self._judge.oracle_seconds,
            one_minimal=stopped_by is None and not self._broken,
            confirmed=confirmed,
            stopped_by=stopped_by,
            notes=tuple(self._notes),
            settings=self._settings(),
            directory=self._workspace.output,
            oracle=self._used,
            sides=sides,
            near_miss=self._near.best,
            inputs_made_up=self._made_up,
            scrubbed=self._scrubbed,
        )
        if self._workspace.output is not None:
            result = _write(result, self._workspace.output)
            for note in result.notes[len(self._notes) :]:
                self._note(note)
        self._history.finished(result)
        return result

    def _sides(self, case: Case) -> tuple[Side, ...]:
        specs = backend_specs(self._used.name, self._used.parameters)
        if self._workspace.output is None or not specs:
            return ()
        path = self._candidates.write(case)
        try:
            return measure(specs, path, case.inputs)
        finally:
            self._candidates.discard(path)

    def _confirm(self, case: Case) -> bool:
        verdict = self._judge.final(case)
        if verdict:
            self._verdict = verdict
            return True
        self._note(
            "in a fresh process the oracle does not find the result interesting "
            f"({verdict.detail or verdict.outcome.value}): its answers depend on what ran before"
        )
        return False

    def _count_skips(self) -> None:
        often = self._judge.often_skipped
        if often and self._judge.skipped >= max(3, OFTEN * self._judge.calls):
            reason, count = often
            self._note(
                f"{self._judge.skipped} of {self._judge.calls} questions had no answer, "
                f"{count} of them: {reason}"
            )

    def _settings(self) -> dict[str, Any]:
        options = self._options
        return {
            "oracle": self._source.name,
            "set": dict(options.settings),
            "tries": self._judge.tries,
            "confirm": self._judge.confirm,
            "timeout": self._judge.timeout,
            "cuts": options.cuts,
        }

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
            self.listener.note(text)


def _outputs(sides: tuple[Side, ...]) -> Mapping[str, InputValue] | None:
    """What the side that the oracle trusts computes; `None` when it names none, or that fails."""
    return next((side.outputs for side in sides if side.role == "expected"), None)


def _write(result: Result, directory: Path) -> Result:
    try:
        return emit.write_all(result, directory)
    except OSError as error:
        raise Unwritable(f"{directory} cannot be written to: {error.strerror}") from error


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
