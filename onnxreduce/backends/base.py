"""What a backend is: something that runs a model on inputs, or says in one of five ways why not."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from onnxreduce.backends.spec import Option, Spec
from onnxreduce.errors import ReduceError
from onnxreduce.tensors import Array

Value = Array | list[Any] | None
"""A tensor; a list for a sequence; ``None`` for an empty optional."""

Kind = Literal["load", "run", "crash", "timeout", "unsupported"]


class BackendError(ReduceError):
    """A backend gave no result.

    Attributes:
        kind: ``load`` (the model was refused), ``run`` (it failed while it ran), ``crash`` (the
            process died; the message begins with the signal), ``timeout``, or ``unsupported``
            (the backend cannot be used here, or has no such facility: nothing about the model).
        message: what the runtime said.
        log: all that it printed before it died, where that is known: for people and patterns.
    """

    def __init__(self, kind: Kind, message: str, log: str = "") -> None:
        super().__init__(kind, message, log)
        self.kind: Kind = kind
        self.message = message
        self.log = log

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Unreliable(ReduceError):
    """A backend failed for reasons of its own, however often it was started anew.

    No `BackendError` on purpose: many oracles take one for an answer, and nothing was learnt about
    the model. An oracle that lets this pass has skipped the candidate.
    """


@dataclass(frozen=True)
class Info:
    """One line of `onnxreduce backends`.

    Attributes:
        spec: how to name it.
        version: of the runtime; empty when it is not there.
        device: the device, adapter or execution provider found.
        reason: empty when usable, else why it is not.
        fix: what to do about it, a command where there is one.
    """

    spec: str
    version: str = ""
    device: str = ""
    reason: str = ""
    fix: str = ""

    @property
    def usable(self) -> bool:
        return not self.reason


Job = tuple[str, Mapping[str, Value]]
"""The path of a model and its inputs by name."""


class Backend(ABC):
    """Runs models. Subclasses live one in a file and list their options in `OPTIONS`.

    An instance is warm: it may keep a process, a browser or a device open between runs, until
    `close`. It is used by one thread at a time.
    """

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    notes: tuple[str, ...] = ()
    """What the runtime complained of during the last run, beside its result or error."""

    def __init__(self, spec: Spec) -> None:
        spec.check(self.OPTIONS)
        self.spec = spec

    @property
    def name(self) -> str:
        return str(self.spec)

    def option(self, key: str) -> str:
        """The text given for an option, or its default."""
        return self.spec.options.get(key, self.OPTIONS[key].default)

    def describe(self) -> str:
        """One line for a person: the spec and the version behind it."""
        return f"{self.name} ({self.version()})"

    @abstractmethod
    def version(self) -> str:
        """Of the runtime, such as ``onnxruntime 1.23.2``: verdicts are cached under it."""

    @abstractmethod
    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs of the model by name.

        Raises:
            BackendError: there are none.
        """

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs and every intermediate value of the main graph by name.

        Asking for them may change what an optimising runtime computes.

        Raises:
            BackendError: as `run`; ``unsupported`` where the backend cannot show them.
        """
        raise BackendError("unsupported", f"{self.name} does not show intermediate values")

    def run_rewritten(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """Every value that is left after the runtime's rewrites of the model, computed without
        any further ones: where these differ from `run_all` elsewhere, a rewrite is wrong.

        Raises:
            BackendError: as `run`; ``unsupported`` where the backend does not show its rewrites.
        """
        raise BackendError("unsupported", f"{self.name} does not show how it rewrites models")

    def rewrite(self, model_path: str, target: str) -> None:
        """Write the model to `target` as the runtime holds it after its rewrites.

        Raises:
            BackendError: the model is refused before it is rewritten; ``unsupported`` where the
                backend does not show its rewrites.
        """
        raise BackendError("unsupported", f"{self.name} does not show how it rewrites models")

    def run_batch(self, jobs: Sequence[Job]) -> list[dict[str, Value] | BackendError]:
        """Several runs, each with its result or its error; neighbours may share a session."""
        results: list[dict[str, Value] | BackendError] = []
        for model_path, inputs in jobs:
            try:
                results.append(self.run(model_path, inputs))
            except BackendError as error:
                results.append(error)
        return results

    def run_timed(
        self, model_path: str, inputs: Mapping[str, Value], repeats: int = 1
    ) -> list[float]:
        """Seconds of each of `repeats` runs, after a first one that is not counted.

        A backend that can keep the session open should count the run alone; this one counts all.
        """
        self.run(model_path, inputs)
        return [_seconds(self, model_path, inputs) for _ in range(repeats)]

    def close(self) -> None:  # noqa: B027
        """Let go of processes and devices. May be called twice."""

    @classmethod
    def probe(cls) -> list[Info]:
        """What of this backend is here, for `onnxreduce backends`. Must not take long."""
        return []


def _seconds(backend: Backend, model_path: str, inputs: Mapping[str, Value]) -> float:
    start = time.perf_counter()
    backend.run(model_path, inputs)
    return time.perf_counter() - start
