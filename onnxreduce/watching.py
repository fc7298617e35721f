"""A backend that is watched: its runs are counted and told to whoever waits."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TextIO, TypeVar

from tqdm import tqdm

from onnxreduce.backends import Backend, BackendError, Value
from onnxreduce.backends.expose import exposed

T = TypeVar("T")


class Watcher(Protocol):
    """Whoever waits for a location."""

    def ran(self, side: str, runs: int) -> None:
        """A side is about to run something, for the nth time."""

    def each(self, items: Iterable[T], count: int) -> Iterator[T]:
        """The items, while they are gone through."""


class Silent:
    """Nobody waits."""

    def ran(self, side: str, runs: int) -> None:
        del side, runs

    def each(self, items: Iterable[T], count: int) -> Iterator[T]:
        del count
        yield from items


class Bar:
    """One living line on a terminal, a line a run elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def ran(self, side: str, runs: int) -> None:
        text = f"running {side} (run {runs})"
        if self._stream.isatty():
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)

    def each(self, items: Iterable[T], count: int) -> Iterator[T]:
        if self._stream.isatty():
            print("\r\x1b[K", end="", file=self._stream, flush=True)
        yield from tqdm(
            items,
            "comparing",
            count,
            unit=" values",
            file=self._stream,
            leave=False,
            disable=None,
        )


class Watched:
    """A backend of which every run counts; shows its values in some way or other.

    Attributes:
        runs: how often it was asked to run something.
        watcher: who is told.
    """

    def __init__(self, backend: Backend, watcher: Watcher) -> None:
        self.backend = backend
        self.watcher = watcher
        self.runs = 0

    @property
    def name(self) -> str:
        return self.backend.name

    def describe(self) -> str:
        return self.backend.describe()

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        self._count()
        return self.backend.run(model_path, inputs)

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """As `Backend.run_all`; a backend without it runs a copy of the model with more outputs."""
        self._count()
        try:
            return self.backend.run_all(model_path, inputs)
        except BackendError as error:
            if error.kind != "unsupported":
                raise
        with exposed(model_path) as path:
            return self.backend.run(path, inputs)

    def run_rewritten(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        values = self.backend.run_rewritten(model_path, inputs)
        self._count()  # a backend that cannot has not run
        return values

    def rewrite(self, model_path: str, target: str) -> None:
        self.backend.rewrite(model_path, target)

    def _count(self) -> None:
        self.runs += 1
        self.watcher.ran(self.name, self.runs)
