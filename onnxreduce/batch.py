"""Many models, one after the other, each with all the jobs: ``onnxreduce batch``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnxreduce.emit.summary import summary
from onnxreduce.errors import ReduceError, UsageError
from onnxreduce.files import write_atomically
from onnxreduce.result import Result
from onnxreduce.workspace import WORK

WIDTH = 90
"""Columns for what was wrong with a model; all of it is in ``summary.json``."""

Run = Callable[[Path, Path, bool], Result]
"""Reduces a model into a directory; resuming the run that is there, or not."""


@dataclass(frozen=True)
class Row:
    """What became of one model.

    Attributes:
        model: its path below the folder.
        status: the exit status that reducing it alone would have had.
        words: ``reduced``, what stopped it, or what was wrong, in one line.
        before, after: nodes and elements; None when it was not reduced.
        ops: the operators that are left, with their numbers.
        calls, seconds: what it took.
    """

    model: str
    status: int
    words: str
    before: tuple[int, int] | None = None
    after: tuple[int, int] | None = None
    ops: dict[str, int] | None = None
    calls: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, model: str, told: dict[str, Any]) -> Row:
        """From the content of a ``summary.json``."""
        stopped = told["stopped_by"]
        before, after = ((told[k]["nodes"], told[k]["elements"]) for k in ("original", "reduced"))
        words = f"stopped by {stopped}" if stopped else "reduced"
        return cls(
            model,
            3 if stopped else 0,
            words if stopped or told["confirmed"] else "reduced, NOT confirmed",
            before,
            after,
            told["reduced"]["ops"],
            told["oracle_calls"],
            told["seconds"],
        )


def find_models(folder: Path, output: Path) -> list[Path]:
    """The models below a folder, but for those below `output`.

    Raises:
        UsageError: there are none.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: give one with .onnx files in it")
    found = (path for path in sorted(folder.rglob("*.onnx")) if path.is_file())
    models = [path for path in found if not path.resolve().is_relative_to(output.resolve())]
    if not models:
        raise UsageError(f"there is no .onnx file in {folder}")
    return models


def batch(
    folder: Path,
    output: Path,
    resume: bool,
    run: Run,
    begins: Callable[[int, int, str], None] = lambda number, count, name: None,
) -> Iterator[Row]:
    """Reduces every model below a folder; what is wrong with one does not keep the others.

    Args:
        folder: of the models.
        output: gets a directory for each.
        resume: pass over models that are done, and go on with one that is not.
        run: reduces one.
        begins: told the number of a model, how many there are, and its name.
    """
    models = find_models(folder, output)
    for number, path in enumerate(models, 1):
        name = path.relative_to(folder)
        target = output / name.with_suffix("")
        row = _done(str(name), target) if resume else None
        if row is None:
            begins(number, len(models), str(name))
            row = _one(str(name), path, target, resume and (target / WORK).is_dir(), run)
        yield row
        if row.words == "stopped by interrupt":
            return


def _one(name: str, path: Path, target: Path, resume: bool, run: Run) -> Row:
    try:
        return Row.of(name, summary(run(path, target, resume)))
    except ReduceError as error:
        return Row(name, error.exit_status, str(error).splitlines()[0])


def _done(name: str, target: Path) -> Row | None:
    try:
        row = Row.of(name, json.loads((target / "summary.json").read_text()))
    except (OSError, ValueError, KeyError):
        return None
    return None if row.status else row


def table(rows: Sequence[Row]) -> str:
    """For a person."""
    width = max(len(row.model) for row in rows)
    lines = [f"{'model':{width}}  {'nodes':>15}  {'elements':>27}  {'calls':>6}  {'s':>7}"]
    for row in rows:
        if row.before and row.after:
            (nodes, elements), (few, rest) = row.before, row.after
            lines.append(
                f"{row.model:{width}}  {nodes:>6} -> {few:<5}  {elements:>13,} -> {rest:<10,}  "
                f"{row.calls:>6}  {row.seconds:7.1f}  {_operators(row)}"
            )
        else:
            words = textwrap.shorten(row.words, WIDTH, placeholder=" ...")
            lines.append(f"{row.model:{width}}  {words}")
    done = sum(row.words == "reduced" for row in rows)
    lines.append(f"{done} of {len(rows)} reduced; details: summary.json, and each one's directory")
    return "\n".join(lines)


def _operators(row: Row) -> str:
    ops = row.ops or {}
    listed = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in ops.items())
    return listed if row.words == "reduced" else f"{listed} ({row.words})"


def write_summary(rows: Sequence[Row], output: Path) -> None:
    """``summary.json`` in the output directory."""
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)
    write_atomically(output / "summary.json", (text + "\n").encode())


def status(rows: Sequence[Row]) -> int:
    """Of the whole: 0 when every model was reduced or does not show the bug, else the worst."""
    return max((row.status for row in rows if row.status != 1), default=0)
