"""Progress on stderr: one living line in a terminal, a line a step in a log file."""

from __future__ import annotations

import sys
import time
from typing import Never, Protocol, TextIO

from tqdm import tqdm

from onnxreduce.size import Size


class Listener(Protocol):
    """What the engine tells whoever watches."""

    def started(self, size: Size) -> None: ...
    def stage(self, name: str) -> None: ...
    def asked(self, calls: int) -> None: ...
    def accepted(self, size: Size, calls: int, edit: str) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class Silent:
    """For library use and ``--quiet``: notes that matter still reach the summary."""

    def started(self, size: Size) -> None:
        del size

    def stage(self, name: str) -> None:
        del name

    def asked(self, calls: int) -> None:
        del calls

    def accepted(self, size: Size, calls: int, edit: str) -> None:
        del size, calls, edit

    def note(self, text: str) -> None:
        del text

    def close(self) -> None:
        return


class Terminal:
    """The pass, a tqdm bar of what has gone, nodes, elements, calls, steps, time, calls/s."""

    FORMAT = "{desc:<10} |{bar}| "
    """What every line begins with; the bar gets what the rest leaves of its length."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self._bar: tqdm[Never] | None = None
        self._accepted = 0
        self._began = time.monotonic()
        self._first = self._now = None  # type: Size | None

    def started(self, size: Size) -> None:
        self._first = self._now = size
        self._bar = tqdm(
            total=size.nodes,
            desc="starting",
            bar_format=f"{self.FORMAT}{size.nodes} nodes, {{elapsed}}",
            file=self.stream,
            dynamic_ncols=True,
            mininterval=0.2,
            leave=False,
        )

    def stage(self, name: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(name, refresh=True)

    def asked(self, calls: int) -> None:
        self._refresh(calls)

    def accepted(self, size: Size, calls: int, edit: str) -> None:
        del edit
        self._accepted += 1
        self._now = size
        self._refresh(calls)

    def note(self, text: str) -> None:
        tqdm.write(text, file=self.stream)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _refresh(self, calls: int) -> None:
        if self._bar is None or self._now is None or self._first is None:
            return
        rate = calls / max(time.monotonic() - self._began, 1.0)
        self._bar.n = self._first.nodes - self._now.nodes
        steps = f"{self._accepted} step{'' if self._accepted == 1 else 's'}"
        self._bar.bar_format = (
            f"{self.FORMAT}{self._now.nodes}/{self._first.nodes} nodes, "
            f"{_short(self._now.elements)} elements, {calls} calls, {steps}, "
            f"{{elapsed}}, {rate:.1f}/s"
        )
        self._bar.refresh()


def _short(number: int) -> str:
    """Three digits and a unit where it is large: the line has to fit 80 columns."""
    return tqdm.format_sizeof(number) if number >= 10_000 else str(number)


class Log:
    """Plain lines for a file or a pipe: each stage once, and each accepted step."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self._stage = ""

    def started(self, size: Size) -> None:
        self._print(f"original: {size.nodes} nodes, {size.elements:,} elements")

    def stage(self, name: str) -> None:
        self._stage = name

    def asked(self, calls: int) -> None:
        del calls

    def accepted(self, size: Size, calls: int, edit: str) -> None:
        self._print(
            f"{self._stage}: {edit} -> {size.nodes} nodes, {size.elements:,} elements "
            f"({calls} calls)"
        )

    def note(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        return

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


def listener(quiet: bool, stream: TextIO | None = None) -> Listener:
    """The right one for where stderr goes."""
    stream = stream or sys.stderr
    if quiet:
        return Silent()
    return Terminal(stream) if stream.isatty() else Log(stream)
