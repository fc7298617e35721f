"""The living line in a terminal: what it says, and that it fits."""

import fcntl
import os
import pty
import select
import struct
import termios

import pytest

from onnxreduce.progress import Terminal
from onnxreduce.size import Size


def size(nodes: int, elements: int) -> Size:
    return Size(nodes, 2, elements, 0, 0, 0, 0, 0)


@pytest.fixture
def drawn() -> list[str]:
    """The lines of a run, as a terminal of 80 columns shows them one after the other."""
    screen, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(keyboard, "w", encoding="utf-8") as stream:
        shown = Terminal(stream)
        shown.started(size(1746, 25_557_032))
        shown.stage("attributes")
        shown.asked(9)
        shown.accepted(size(51, 542_072), 10, "keep 51 nodes")
        shown.accepted(size(1, 5), 11, "delete conv")
        held = os.dup(keyboard)  # what is written stays readable while one end is open
        shown.close()
    text = ""
    while select.select([screen], [], [], 0)[0]:
        text += os.read(screen, 65_536).decode()
    os.close(held)
    os.close(screen)
    return [line.strip() for line in text.split("\r") if line.strip()]


def test_the_line_tells_how_far_it_is(drawn: list[str]) -> None:
    assert "51/1746 nodes, 542k elements, 10 calls, 1 step, 00:0" in drawn[-2]
    assert "1/1746 nodes, 5 elements, 11 calls, 2 steps, 00:0" in drawn[-1]
    assert drawn[-1].startswith("attributes |")


def test_the_line_fits_a_terminal(drawn: list[str]) -> None:
    assert max(map(len, drawn)) <= 80
    assert all(line.endswith("/s") for line in drawn[-2:])
