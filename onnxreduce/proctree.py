"""Processes and what they started: found by parent or by token, and killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil

TOKEN_VARIABLE = "ONNXREDUCE_PROCESS_TOKENS"
"""What every descendant of a worker inherits."""


def find(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def descendants(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def bearers(token: str | None) -> list[psutil.Process]:
    """Processes of this user whose environment carries the token."""
    found: list[psutil.Process] = []
    if not token:
        return found
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if token in process.environ().get(TOKEN_VARIABLE, ""):
                found.append(process)
    return found


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [process for process in set(processes) if runs(process)]


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(processes: list[psutil.Process]) -> None:
    """Send SIGKILL and wait until it has taken effect (a zombie is as good as gone)."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
    until = time.monotonic() + 1.0
    while any(runs(process) for process in processes) and time.monotonic() < until:
        time.sleep(0.001)
