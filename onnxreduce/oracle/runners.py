"""Runners put questions to an oracle, each in a worker process of its own."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import onnxreduce
from onnxreduce.errors import UsageError
from onnxreduce.process import Worker, WorkerError, exit_reason
from onnxreduce.verdict import Verdict

_SIDE = "onnxreduce.oracle.in_worker"
SETUP_SECONDS = 300.0
"""Loading an oracle and its `setup`: imports of large packages, the start of a browser."""
TEARDOWN_SECONDS = 10.0
DEATHS = 3
"""So many processes may die over a question before that is taken for an answer."""
SKIP_STATUS = 125
"""As in `git bisect run`: this candidate cannot be judged."""

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Of one question.

    Attributes:
        timeout: seconds.
        memory: bytes that the oracle's whole process tree may have resident.
        cpu: seconds of processor time that it may take.
    """

    timeout: float | None = None
    memory: int | None = None
    cpu: float | None = None


class Interrupted(Exception):
    """Another thread gave up the question that this one was asking."""


class Runner(Protocol):
    """Asks an oracle. One question at a time; `interrupt` may come from any thread.

    All methods that ask raise `WorkerError` when the oracle gives no answer, and `Interrupted`.
    """

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        """Does the model in this file, with these inputs, still show the bug?"""

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        """Names of values or nodes to look at first."""

    def hold(self, model_path: Path, inputs_path: Path, limits: Limits) -> dict[str, Any]:
        """Settings measured on the original, to be held from now on; adopted by this runner."""

    def identity(self) -> str:
        """Versions that the answers depend on."""

    def restart(self) -> None:
        """Put the next question to a fresh process."""

    def interrupt(self) -> None:
        """Kill the oracle's processes; a running question raises `Interrupted`."""

    def resume(self) -> None:
        """Allow questions again after `interrupt`."""

    def close(self) -> None:
        """End the oracle's processes."""


class _WorkerRunner:
    """What both runners share: a worker that may be killed from another thread."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._interrupted = threading.Event()
        self._busy = threading.Lock()

    def _call(self, function: str, *args: Any, limits: Limits) -> Any:
        try:
            with self._busy:
                if self._interrupted.is_set():
                    raise Interrupted
                return self._worker.call(f"{_SIDE}:{function}", *args, **asdict(limits))
        except WorkerError:
            if self._interrupted.is_set():
                raise Interrupted from None
            raise

    def restart(self) -> None:
        self._worker.close()

    def interrupt(self) -> None:
        self._interrupted.set()
        self._worker.kill()

    def resume(self) -> None:
        self._interrupted.clear()

    def close(self) -> None:
        self._worker.close()


class PythonRunner(_WorkerRunner):
    """A Python oracle in a warm process.

    Args:
        path: the file that defines `interesting`.
        module: its module name, if it must be imported by that.
        settings: keyword arguments for `interesting`.
    """

    def __init__(self, path: Path, module: str | None, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._path = path
        self._module = module
        self._settings = dict(settings)
        self._prepared = 0

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        self._prepare()
        verdict = self._call("ask", self._settings, model_path, inputs_path, limits=limits)
        if not isinstance(verdict, Verdict):
            raise WorkerError("exception", f"not a verdict: {verdict!r}")
        signature = verdict.signature and writable(str(verdict.signature))
        return Verdict(verdict.outcome, writable(one_line(str(verdict.detail))), signature)

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        self._prepare()
        names: list[str] = self._call(
            "suspects", self._settings, model_path, inputs_path, limits=limits
        )
        return names

    def hold(self, model_path: Path, inputs_path: Path, limits: Limits) -> dict[str, Any]:
        self._prepare()
        held = dict(self._call("hold", self._settings, model_path, inputs_path, limits=limits))
        self._settings.update(held)
        return held

    def identity(self) -> str:
        self._prepare()
        return str(self._call("identity", self._settings, limits=Limits(SETUP_SECONDS)))

    def restart(self) -> None:
        self._teardown()
        super().restart()

    def close(self) -> None:
        self._teardown()
        super().close()

    def _prepare(self) -> None:
        """Load the oracle if the process is a fresh one."""
        self._worker.start()
        if self._worker.starts != self._prepared:
            self._call("prepare", str(self._path), self._module, limits=Limits(SETUP_SECONDS))
            self._prepared = self._worker.starts

    def _teardown(self) -> None:
        if self._worker.pid is None or self._worker.starts != self._prepared:
            return
        # The oracle has answered; whether it can also tidy up changes nothing.
        with contextlib.suppress(WorkerError, Interrupted):
            self._call("teardown", limits=Limits(TEARDOWN_SECONDS))


class ExecutableRunner(_WorkerRunner):
    """``COMMAND model.onnx inputs.npz``, each time in an empty directory of its own.

    Exit status 0: interesting; 125: skipped; anything else, a signal too: boring. The last line
    that it printed is the verdict's detail.
    """

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__()
        self._command = tuple(command)

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        command = [*self._command, str(model_path), str(inputs_path)]
        directory = tempfile.mkdtemp(prefix="oracle-")
        try:
            status = self._call("run", command, directory, limits=limits)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        said = last_line(self._worker.output)
        if status == 0:
            return Verdict.interesting(said)
        if status == SKIP_STATUS:
            return Verdict.skipped(said or f"exit status {SKIP_STATUS}")
        reason = exit_reason(status)
        return Verdict.boring(f"{reason}: {said}" if said else reason)

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        return []

    def hold(self, model_path: Path, inputs_path: Path, limits: Limits) -> dict[str, Any]:
        return {}

    def identity(self) -> str:
        return ""


def persistently(ask: Callable[[], T]) -> T:
    """What a call of a runner gives. Its process may die by accident: then a fresh one is asked.

    Raises:
        WorkerError: also the last of many that died.
    """
    for left in reversed(range(DEATHS)):
        try:
            return ask()
        except WorkerError as error:
            if error.kind != "crash" or not left:
                raise
    raise AssertionError


def identity_of(runner: Runner) -> str:
    """`Runner.identity`, for people.

    Raises:
        UsageError: the oracle cannot be loaded, its `setup` fails, or its `identity` does.
    """
    try:
        return persistently(runner.identity)
    except WorkerError as error:
        raise UsageError(f"the oracle does not start: {explain(error)}") from error


_CALL = (
    "import runpy; from pathlib import Path; from onnxreduce.oracle.contract import Candidate; "
    "print(runpy.run_path({path!r})['interesting']"
    "(Candidate(Path('MODEL.onnx'), Path('INPUTS.npz')){settings}))"
)


COMPARING = frozenset({"differs", "nan", "nondeterministic", "rewrites", "webgpu_vs_wasm"})
"""Ready-made oracles that look at the outputs of the model."""


def _ours(path: Path) -> bool:
    package = Path(onnxreduce.__file__).resolve().parent
    return path.resolve().parent in (package / "_oracles", package.parent / "oracles")


def advice(runner: Runner) -> str:
    """What to check when the original is not interesting, to follow the word 'check'."""
    if isinstance(runner, ExecutableRunner):
        call = f"{shlex.join(runner._command)} MODEL.onnx INPUTS.npz; echo $?"
    elif isinstance(runner, PythonRunner) and runner._module is None and not _ours(runner._path):
        settings = f", **{runner._settings!r}" if runner._settings else ""
        code = _CALL.format(path=str(runner._path), settings=settings)
        call = f"python -c {shlex.quote(code)}"
    else:
        words = "its settings, the versions and the inputs (--inputs gives others)"
        compares = isinstance(runner, PythonRunner) and runner._path.stem in COMPARING
        inner = "; if only an inner value is wrong, make it an output of the model"
        return words + inner if compares else words
    return f"the versions and the inputs (--inputs gives others), or try it by hand: {call}"


def explain(error: WorkerError) -> str:
    """One line, then the traceback or, of a process that died, the end of what it printed."""
    evidence = error.traceback if error.kind == "exception" else error.tail.rstrip()
    return f"{reason(error)}\n{evidence}".rstrip()


def reason(error: WorkerError) -> str:
    """One line that says why a question has no answer."""
    words = {
        "exception": "the oracle raised ",
        "crash": "the oracle's process died: ",
        "cpu": "the oracle took ",
        "memory": "the oracle used too much memory: ",
        "timeout": "",
    }
    return one_line(words[error.kind] + error.message)


def writable(text: str) -> str:
    """The text without lone surrogates, which no file and no database takes."""
    return text.encode("utf-8", "replace").decode()


def one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def last_line(text: str) -> str:
    """The last line that says something, without colours and other codes for terminals."""
    lines = _ANSI.sub("", text).split("\n")
    return next((one_line(line) for line in reversed(lines) if line.strip()), "")
