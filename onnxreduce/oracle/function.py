"""An oracle that is a function of this process: for use as a library."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from onnxreduce.oracle.contract import Candidate, as_verdict
from onnxreduce.oracle.runners import Limits
from onnxreduce.process import WorkerError
from onnxreduce.verdict import Verdict

Judged = Callable[[Candidate], bool | Verdict]


@dataclass(frozen=True)
class FunctionSource:
    """Like `loading.OracleSource`, for a function. What a function's answers depend on cannot be
    known, so they are never reused by another run."""

    function: Judged
    jobs: ClassVar[int] = 1
    """Unless the user says so, a function need not bear being called from several threads."""

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    def open(self) -> FunctionRunner:
        return FunctionRunner(self.function)

    def holding(self, held: Mapping[str, Any]) -> FunctionSource:
        """A function measures nothing."""
        del held
        return self

    def fingerprint(self, identity: str = "") -> str:
        return f"function {self.name} {identity} {uuid.uuid4()}"


class FunctionRunner:
    """Calls the function where it is: limits do not hold, and an `Exception` is no answer."""

    def __init__(self, function: Judged) -> None:
        self._function = function

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        del limits
        try:
            said = self._function(Candidate(model_path, inputs_path))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise WorkerError("exception", message, traceback.format_exc()) from error
        return as_verdict(said)

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        del model_path, inputs_path, limits
        return []

    def hold(self, model_path: Path, inputs_path: Path, limits: Limits) -> dict[str, Any]:
        del model_path, inputs_path, limits
        return {}

    def identity(self) -> str:
        return ""

    def restart(self) -> None:
        """There is no process to start again."""

    def interrupt(self) -> None:
        """A function cannot be stopped from outside: it ends when it ends."""

    def resume(self) -> None:
        """Nothing was interrupted."""

    def close(self) -> None:
        """Nothing was opened."""
