"""The output directory: claimed without overwriting anything, with a working folder inside."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onnxreduce.errors import UsageError

WORK = ".onnxreduce"


@dataclass(frozen=True)
class Workspace:
    """Where a run keeps its files.

    Attributes:
        output: the artefacts' directory; ``None`` when nothing is to be left.
        work: candidates and recordings, removed at the end, and the cache of answers, which stays
            in `output` for ``--resume``.
        resumed: the output was there before.
    """

    output: Path | None
    work: Path
    resumed: bool

    @property
    def cache(self) -> Path:
        return self.work / "answers.sqlite"

    @property
    def base(self) -> Path:
        """The case from which a run went on when its oracle had changed."""
        return self.work / "base"

    @property
    def candidates(self) -> Path:
        return self.work / "candidates"

    @property
    def recordings(self) -> Path:
        return self.work / "recordings"


@contextmanager
def claim(output: Path | None, resume: bool, force: bool) -> Iterator[Workspace]:
    """The directory, for this process alone until the context ends.

    Raises:
        UsageError: it exists and neither `resume` nor `force` is given, there is nothing to
            resume, it cannot be written to, or another run is using it.
    """
    if output is None:
        with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
            yield _prepared(Workspace(None, Path(folder), False))
        return
    existed = _occupied(output)
    if resume and not (output / WORK).is_dir():
        raise UsageError(f"{output}: nothing to resume there; run without --resume")
    if existed and not (resume or force):
        raise UsageError(
            f"{output} exists and is not empty: go on with that run by --resume, replace it by "
            "--force, or choose another --output"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / WORK).mkdir(exist_ok=True)
        lock = (output / WORK / "lock").open("a")
    except OSError as error:
        raise UsageError(f"{output} cannot be written to: {error.strerror}") from error
    with lock:
        try:
            # The kernel drops the lock with the process, so there are no stale ones.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{output}: another onnxreduce is at work there") from None
        workspace = Workspace(output, (output / WORK).absolute(), resume)
        if not resume:
            _forget(workspace)
        try:
            yield _prepared(workspace)
        finally:
            _tidy(workspace)


def _occupied(output: Path) -> bool:
    try:
        return output.exists() and (not output.is_dir() or any(output.iterdir()))
    except OSError as error:
        raise UsageError(f"{output} cannot be read: {error.strerror}") from error


def _prepared(workspace: Workspace) -> Workspace:
    for folder in (workspace.candidates, workspace.recordings):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
        except OSError as error:
            raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    return workspace


def _forget(workspace: Workspace) -> None:
    """Answers of a run that is being replaced; its result stays until there is another."""
    for path in workspace.work.glob("answers.sqlite*"):
        path.unlink(missing_ok=True)
    for folder in (workspace.base, workspace.work / "best", workspace.work / "next"):
        shutil.rmtree(folder, ignore_errors=True)


def _tidy(workspace: Workspace) -> None:
    """Removes what no resumed run needs; with the directory, when nothing came to be in it."""
    assert workspace.output is not None
    for folder in (workspace.candidates, workspace.recordings):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # an oracle may have removed it all
        if not any(path.name != WORK for path in workspace.output.iterdir()):
            shutil.rmtree(workspace.work, ignore_errors=True)
            workspace.output.rmdir()
