"""What happened in a run, on disk: the journal, and the best case so far from its first step on.

A resumed run walks the same way again with the answers of the first, which costs no question.
Until it gets beyond what is on disk it writes nothing, so that nothing on disk ever gets larger.
"""

from __future__ import annotations

import shutil
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from onnxreduce import journal
from onnxreduce.case import Case
from onnxreduce.emit.model import save_case
from onnxreduce.engine import Question
from onnxreduce.errors import Unwritable, UsageError
from onnxreduce.inputs import load_inputs
from onnxreduce.modelio import load_model
from onnxreduce.modelread import SOURCE
from onnxreduce.result import Result, describe
from onnxreduce.size import Size
from onnxreduce.verdict import Verdict
from onnxreduce.workspace import Workspace

REPLACED = ("journal.jsonl", "model.onnx", "model.onnx.data", "inputs.npz", "summary.json")
"""Files of an earlier run that would look like this one's if it were killed."""


class History:
    """Events of a run; does nothing where no output directory is wanted.

    Args:
        workspace: where they go.
        original: the case that is reduced.
        fingerprint: of the oracle.
        rebase: may a resumed run go on with another oracle, from the best case so far?

    Raises:
        UsageError: the run to resume was one of another model, inputs or oracle.
    """

    def __init__(
        self, workspace: Workspace, original: Case, fingerprint: str, *, rebase: bool = False
    ) -> None:
        self._workspace = workspace
        self._rebase = rebase
        self.base: Case | None = None
        """The case from which a resumed run goes on, where that is not the original."""
        self.best: Case | None = None
        """What this run has brought to safety."""
        self._directory = workspace.output
        self._journal: journal.Journal | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._saving: Future[None] | None = None
        self._reached: Size | None = None
        if self._directory is None:
            return
        self._path = self._directory / "journal.jsonl"
        self._changed = False
        self._begun = workspace.resumed and self._path.exists()
        if self._begun:
            self._look_back(self._path, original, fingerprint)
        self._first = {"digest": original.digest, "oracle": fingerprint}

    def begin(self, original: Case) -> None:
        """The oracle finds the original interesting: from now on there is something to tell."""
        if self._directory is None:
            return
        if not self._begun:
            for name in REPLACED:
                (self._directory / name).unlink(missing_ok=True)
        self._journal = journal.Journal(self._path)
        event = "rebased" if self._changed else "resumed" if self._begun else "started"
        self._write(event, durable=True, **self._first, original=describe(original))

    def asked(self, question: Question, verdict: Verdict, calls: int) -> None:
        """A candidate has its verdict.

        Raises:
            Unwritable: the case that was accepted before could not be brought to safety.
        """
        self._settle()
        if self._is_new(question.case):
            self._write(
                "asked",
                stage=question.stage,
                edit=question.edit,
                digest=question.case.digest,
                outcome=verdict.outcome.value,
                detail=verdict.detail,
                calls=calls,
            )

    def accepted(self, question: Question, verdict: Verdict, calls: int) -> None:
        """A candidate has become the current case: from now on it is the result, come what may.

        It is written while the oracle is asked the next question, and is safe before the answer is
        noted.
        """
        self._settle()
        if self._directory is None or not self._is_new(question.case):
            return
        self._reached = None
        write = (question, verdict, calls, self._directory)
        self._saving = self._writer.submit(self._write_accepted, *write)

    def _write_accepted(
        self, question: Question, verdict: Verdict, calls: int, directory: Path
    ) -> None:
        self._save(question.case, directory)
        self._write(
            "accepted",
            durable=True,
            stage=question.stage,
            edit=question.edit,
            digest=question.case.digest,
            size=list(question.case.size),
            nodes=question.case.size.nodes,
            elements=question.case.size.elements,
            detail=verdict.detail,
            calls=calls,
        )
        self.best = question.case

    def furthest(self, case: Case) -> Case:
        """The case, or what an earlier run left on the disk when a resumed one was stopped before
        it had come as far again."""
        if self._directory is None or self._reached is None or case.size <= self._reached:
            return case
        return load_case(self._directory)

    def finished(self, result: Result) -> None:
        """The artefacts are written."""
        self._settle()
        self._write(
            "finished",
            durable=True,
            digest=result.reduced.digest,
            calls=result.oracle_calls,
            stopped_by=result.stopped_by,
        )

    def broken(self, stage: str, error: Exception) -> None:
        """A pass failed by a mistake of its own."""
        self._settle()
        self._write("broken", stage=stage, traceback="".join(traceback.format_exception(error)))

    def unwritable(self, error: OSError | Unwritable) -> UsageError:
        """What to tell the user of a disk that takes no more."""
        if self.best is None:
            return UsageError(str(error))
        return UsageError(
            f"{error}; the best so far, {self.best.size.nodes} nodes, is in {self._directory}: "
            "make room, then go on by --resume"
        )

    def close(self) -> None:
        self._writer.shutdown(wait=True)
        if self._journal is not None:
            self._journal.close()

    def _settle(self) -> None:
        """Waits until what is accepted is safe."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def _look_back(self, path: Path, original: Case, fingerprint: str) -> None:
        self._publish(path.parent)
        events = list(journal.read(path))
        first = next((event for event in events if event["event"] == "started"), None)
        if first is not None:
            if first["digest"] != original.digest:
                raise UsageError(
                    f"{path.parent} holds the reduction of another model or other inputs: "
                    "choose another --output, or replace it by --force without --resume"
                )
            self._find_base(events, fingerprint)
        sizes = [event["size"] for event in events if event["event"] == "accepted"]
        self._reached = Size._make(_tuples(sizes[-1])) if sizes else None

    def _find_base(self, events: list[journal.Event], fingerprint: str) -> None:
        """Where to go on from, when the oracle is not what it was at first."""
        begins = [event for event in events if event["event"] in ("started", "rebased")]
        self._changed = begins[-1]["oracle"] != fingerprint
        if self._changed and not self._rebase:
            raise UsageError(
                f"{self._directory}: the oracle, its settings or its versions have changed since, "
                "so its answers no longer count: let it verify the best so far and go on from "
                "there by --resume --force, or start again by --force alone"
            )
        if self._changed and any(event["event"] == "accepted" for event in events):
            assert self._directory is not None
            best = (self._directory / "model.onnx", self._directory / "inputs.npz")
            self._workspace.base.mkdir(exist_ok=True)
            for path in best:
                shutil.copyfile(path, self._workspace.base / path.name)
            for path in self._directory.glob("model.onnx.data"):
                shutil.copyfile(path, self._workspace.base / path.name)
        if (self._workspace.base / "model.onnx").exists():
            self.base = load_case(self._workspace.base)

    def _save(self, case: Case, directory: Path) -> None:
        """Replaces the best so far as one, although it is several files.

        They are written into a folder, whose renaming is the moment at which the case counts.
        Should the run be killed while they are brought from there to their places, the next one
        goes on with that: model and inputs of different cases are never taken for one.
        """
        staging = self._workspace.work / "next"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            staging.mkdir()
            save_case(case, staging)
            self._publish(directory)  # what a full disk has held up
            staging.rename(self._workspace.work / "best")
            self._publish(directory)
        except OSError as error:
            raise Unwritable(f"{directory} cannot be written to: {error.strerror}") from error

    def _publish(self, directory: Path) -> None:
        """Brings the files of the best case to their places, those that are not there yet."""
        best = self._workspace.work / "best"
        if best.is_dir():
            for path in sorted(best.iterdir()):
                path.replace(directory / path.name)
            best.rmdir()

    def _is_new(self, case: Case) -> bool:
        return self._reached is None or case.size < self._reached

    def _write(self, event: str, *, durable: bool = False, **fields: object) -> None:
        if self._journal is not None:
            self._journal.write(event, durable=durable, **fields)


def load_case(directory: Path) -> Case:
    """What `save_case` wrote. It is no input model: it may be replaced."""
    model = load_model(directory / "model.onnx")
    model.graph.meta.pop(SOURCE)
    return Case(model, load_inputs(directory / "inputs.npz", model))


def _tuples(value: list[object]) -> list[object]:
    """JSON has no tuples, and parts of a size may be some."""
    return [tuple(part) if isinstance(part, list) else part for part in value]
