"""Backends in a child process: a crash of the runtime is an answer, not the end."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from onnxreduce.backends.base import Backend, BackendError, Job, Kind, Value
from onnxreduce.backends.spec import Spec
from onnxreduce.process import Worker, WorkerError

LAST_WORDS = re.compile(
    r"panicked at|terminate called|what\(\):|assert|check failed|fatal error|corrupt|free\(\)"
    r"|stack overflow|sanitizer",
    re.IGNORECASE,
)
"""What a runtime that gives up says before the signal; warnings look otherwise."""


class Child:
    """A `Worker` whose ends are `BackendError`s.

    Args:
        python: the interpreter.
        timeout: seconds for one call.
    """

    def __init__(self, python: str = sys.executable, timeout: float | None = None) -> None:
        self.python = python
        self._timeout = timeout
        self._worker = Worker(python)

    def call(self, target: str, *args: Any) -> Any:
        """`Worker.call`.

        Raises:
            BackendError: ``crash`` (the message begins with the signal), ``timeout``, or
                ``unsupported`` when the callee itself raised: what it needs is not there.
        """
        try:
            return self._worker.call(target, *args, timeout=self._timeout)
        except WorkerError as error:
            if error.kind == "exception":
                message = f"{self.python}: {error.message}"
                raise BackendError("unsupported", message) from error
            if error.kind == "timeout":
                raise BackendError("timeout", error.message) from error
            cause = crash_cause(error.tail)
            message = f"{error.message}: {cause}" if cause else error.message
            raise BackendError("crash", message, error.tail) from error

    def close(self) -> None:
        self._worker.close()


def crash_cause(tail: str) -> str:
    """The two lines of a dead process's output that say why it died; often there are none.

    The first such line is the cause; what follows it are consequences.
    """
    own = tail.partition("Fatal Python error")[0]  # from there on it is this package's stack
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if LAST_WORDS.search(line):
            return " ".join(lines[index : index + 2])[:400]
    return ""


class IsolatedBackend(Backend):
    """Any backend of this process in a child of its own: the option ``isolate``."""

    def __init__(self, spec: Spec, timeout: float | None = None) -> None:
        # The inner backend checks its own options, in the child.
        self.spec = spec
        self._child = Child(timeout=timeout)

    def version(self) -> str:
        return str(self._call("version"))

    def describe(self) -> str:
        return f"{self._call('describe')} in a process of its own"

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        return dict(self._call("run", model_path, dict(inputs)))

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        return dict(self._call("run_all", model_path, dict(inputs)))

    def run_rewritten(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        return dict(self._call("run_rewritten", model_path, dict(inputs)))

    def rewrite(self, model_path: str, target: str) -> None:
        self._call("rewrite", model_path, target)

    def run_batch(self, jobs: list[Job]) -> list[dict[str, Value] | BackendError]:  # type: ignore[override]
        plain = [(path, dict(inputs)) for path, inputs in jobs]
        try:
            return list(self._call("run_batch", plain))
        except BackendError as error:
            # Whichever run it was that took the process down, the batch has no other result.
            return [error for _ in plain]

    def run_timed(
        self, model_path: str, inputs: Mapping[str, Value], repeats: int = 1
    ) -> list[float]:
        return list(self._call("run_timed", model_path, dict(inputs), repeats))

    def close(self) -> None:
        self._child.close()

    def _call(self, method: str, *args: Any) -> Any:
        reply = self._child.call("onnxreduce.backends.child:answer", str(self.spec), method, *args)
        if reply[0] == "failure":
            raise BackendError(*reply[1:])
        return reply[1]


Reply = tuple[str, Any] | tuple[str, Kind, str, str]


def answer(spec: str, method: str, *args: Any) -> Reply:
    """The other side of `IsolatedBackend`: called in the child."""
    from onnxreduce.backends.registry import warm_backend

    try:
        return "result", getattr(warm_backend(spec), method)(*args)
    except BackendError as error:
        return "failure", error.kind, error.message, error.log
