"""Helper processes: the one place that starts, times out and kills them.

A `Worker` is a warm child that runs `module:function` calls. Whatever the callee does (crash,
hang, `os._exit`, fill the memory, flood or close its stdout, fork children with sessions of their
own) costs that one call: the whole tree is killed, and the next call starts a fresh child.

Nothing that a call started may outlive its tree. Three ways of finding it complete each other:
the child's supervisor is the sub-reaper of all its descendants (`_child`); psutil lists the
descendants of a process, whatever their session; and every descendant inherits an environment
token, by which those are found whose parents are gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import psutil

from onnxreduce.proctree import (
    TOKEN_VARIABLE,
    alive,
    bearers,
    descendants,
    find,
    kill,
)

Kind = Literal["exception", "timeout", "cpu", "memory", "crash"]

TAIL_BYTES = 32_768
POLL_SECONDS = 0.05
_LENGTH = struct.Struct("!Q")
_CHILD = Path(__file__).with_name("_child.py")
_PICKLE_PROTOCOL = 4  # the child may be an older Python


MESSAGE = b"onnxreduce: "
"""What begins a line that a worker prints for the person at the terminal."""
LONGEST_MESSAGE = 4096


class WorkerError(Exception):
    """A call that gave no result.

    Attributes:
        kind: ``exception`` (the callee raised; the worker lives on), ``timeout``, ``cpu``,
            ``memory`` or ``crash`` (the whole process tree is dead).
        message: one line: ``ValueError: bad``, ``no answer within 10 s``, ``SIGABRT``.
        traceback: for an exception, its text from the callee's first frame on; else empty.
        tail: the end of what the child printed.
    """

    def __init__(self, kind: Kind, message: str, traceback: str = "", tail: str = "") -> None:
        super().__init__(kind, message, traceback, tail)  # all of them, to survive pickling
        self.kind: Kind = kind
        self.message = message
        self.traceback = traceback
        self.tail = tail

    def __str__(self) -> str:
        return self.message


def kill_tree(pid: int | None, token: str | None = None) -> None:
    """Kill a process and all its descendants, also those in other sessions or process groups.

    Args:
        pid: the root; may be gone already. `None`: only the token counts.
        token: kill also every process whose environment carries this token.
    """
    root = find(pid) if pid else None
    for _ in range(50):  # a process may fork between the listing and the signal
        below = descendants(root) if root else []
        doomed = alive([*below, *bearers(token)])
        if not doomed:
            break
        kill(doomed)
    if root:
        kill([root])


def kill_leftovers() -> None:
    """Called inside a worker: kill every process that its callees started, orphans too."""
    supervisor = os.getppid()
    # Usually there are none, and asking two processes costs 0.1 ms where listing all costs 10.
    if _children(supervisor) == {os.getpid()} and _children(os.getpid()) == set():
        return
    keep = {os.getpid(), supervisor}
    for _ in range(50):
        root = find(supervisor)
        below = descendants(root) if root else []
        doomed = alive(process for process in below if process.pid not in keep)
        if not doomed:
            break
        kill(doomed)


def _children(pid: int) -> set[int] | None:
    """The children of a process, from Linux; `None` where it does not tell."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # a thread ended meanwhile
        return None
    return {int(child) for text in lists for child in text.split()} if lists else None


def exit_reason(status: int) -> str:
    """In words, the `returncode` of a `subprocess.Popen`: ``SIGSEGV`` or ``exit status 3``."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class Worker:
    """A warm child process that runs functions by name, one call at a time.

    Starting is lazy: the first call does it. One thread calls at a time; `kill` may be called
    from any thread, and makes a running call end with a ``crash``.

    Args:
        python: the interpreter. The one running now gets this process's `sys.path`; another one
            has its own, and any Python from 3.8 on will do.
        env: environment variables to set on top of the current ones.
        cwd: where the child starts, and where every call starts.
    """

    def __init__(
        self,
        python: str | os.PathLike[str] = sys.executable,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.starts = 0
        """How many children have been started: a change means that warm state is lost."""
        self._python = os.fspath(python)
        self._env = dict(env or {})
        self._cwd = cwd
        self._child: _Child | None = None
        self._lock = threading.Lock()
        self._caller: int | None = None
        self._tail = bytearray()

    @property
    def pid(self) -> int | None:
        """The root of the running process tree."""
        return self._child.process.pid if self._child else None

    @property
    def output(self) -> str:
        """The end of what the child printed during the last call, on stdout and stderr."""
        return self._tail.decode(errors="replace")

    def start(self) -> None:
        """Start the child if none is running.

        Raises:
            WorkerError: the interpreter cannot be run.
        """
        if self._child and self._child.process.poll() is None:
            return
        self._discard()
        try:
            child = _Child(self._python, self._env, self._cwd)
        except OSError as error:
            message = f"cannot run {self._python}: {error.strerror}"
            raise WorkerError("crash", message) from error
        with self._lock:
            self._child = child
            self.starts += 1

    def call(
        self,
        target: str,
        *args: Any,
        timeout: float | None = None,
        cpu: float | None = None,
        memory: int | None = None,
    ) -> Any:
        """Run ``module:function`` or ``/path/to/file.py:function`` in the child.

        Args:
            target: the function.
            args: its arguments; they are pickled, like the result.
            timeout: seconds, with the time to start a child.
            cpu: seconds of processor time that the process tree may take together.
            memory: bytes that it may have resident together.

        Raises:
            WorkerError: see there.
        """
        request = pickle.dumps((target, args), _PICKLE_PROTOCOL)
        self._tail.clear()
        with self._lock:
            self._caller = threading.get_ident()
        try:
            kind, value = self._exchange(request, timeout, cpu, memory)
        finally:
            with self._lock:
                self._caller = None
        if kind == "error":
            message = " ".join(f"{value['type']}: {value['message']}".split())
            raise WorkerError("exception", message, value["traceback"], self.output)
        return value

    def _exchange(
        self, request: bytes, timeout: float | None, cpu: float | None, memory: int | None
    ) -> Any:
        """Send a request and wait for its reply; whatever goes wrong, no child is left behind."""
        until = None if timeout is None else time.monotonic() + timeout
        self.start()
        child = self._child
        if child is None:
            raise WorkerError("crash", "killed")
        try:
            child.limit(cpu, memory)
            child.send(request, until)
            reply = child.wait(until, self._tail)
        except _Timeout:
            self._discard()
            message = f"no answer within {timeout:g} s"
            raise WorkerError("timeout", message, tail=self.output) from None
        except _TooMuch as error:
            self._discard()
            raise WorkerError(error.kind, str(error), tail=self.output) from None
        except OSError:
            message = exit_reason(child.status())
            child.drain(self._tail)
            self._discard()
            raise WorkerError("crash", message, tail=self.output) from None
        except BaseException:  # Ctrl-C: the child must not answer a later call with this one
            self._discard()
            raise
        try:
            return pickle.loads(reply)
        except Exception as error:
            message = f"cannot read the result: {error}"
            raise WorkerError("exception", message, tail=self.output) from error

    def kill(self) -> None:
        """Kill the whole process tree at once. Does nothing if none is running."""
        with self._lock:
            child = self._child
            if child and self._caller not in (None, threading.get_ident()):
                child.kill()  # the calling thread still uses its descriptors
                return
        self._discard()

    def _discard(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child:
            child.kill()
            child.close()

    def close(self, grace: float = 5.0) -> None:
        """Let the child end in its own way (`atexit`), for `grace` seconds; then kill."""
        if self._child and self._child.process.poll() is None:
            until = time.monotonic() + grace
            with contextlib.suppress(OSError, _Timeout):
                self._child.send(b"", until)
                self._child.wait(until, self._tail)
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Timeout(Exception):
    pass


class _TooMuch(Exception):
    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind


class _Child:
    """One process tree with its channel and the pipe that its stdout and stderr share."""

    def __init__(
        self, python: str, env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        self._token = uuid.uuid4().hex
        outer = os.environ.get(TOKEN_VARIABLE, "")
        tokens = f"{outer},{self._token}".lstrip(",")
        self.channel, theirs = socket.socketpair()
        self._output, printed = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self.process = subprocess.Popen(
                [python, str(_CHILD), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **env, TOKEN_VARIABLE: tokens},
                cwd=cwd,
                start_new_session=True,  # Ctrl-C is for the reducer
            )
        except OSError:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(printed)
        self._poller = select.poll()
        self._poller.register(self.channel, select.POLLIN)
        self._poller.register(self._output, select.POLLIN)
        self._output_open = True
        self._line = b""
        self._watch = _Watch(self.process.pid)
        path = [os.path.abspath(entry) for entry in sys.path] if python == sys.executable else None  # noqa: PTH100
        with contextlib.suppress(OSError):  # dead already: the first call will tell
            self.send(pickle.dumps(path, _PICKLE_PROTOCOL), None)

    def limit(self, cpu: float | None, memory: int | None) -> None:
        """What the next call may take; see `Worker.call`."""
        self._watch.begin(cpu, memory)

    def send(self, frame: bytes, until: float | None) -> None:
        """Raises OSError when the child is gone, _Timeout."""
        self.channel.settimeout(_left(until))
        try:
            self.channel.sendall(_LENGTH.pack(len(frame)))
            self.channel.sendall(frame)
        except TimeoutError:
            raise _Timeout from None

    def wait(self, until: float | None, tail: bytearray) -> bytearray:
        """The next frame. Raises OSError when the child is gone, _Timeout, _TooMuch."""
        self.channel.setblocking(False)
        header = bytearray(_LENGTH.size)
        frame, filled = header, 0
        while True:
            ready = self._poll(until)
            if self._output in ready:
                self.drain(tail)
            if self.channel.fileno() in ready:
                received = self.channel.recv_into(memoryview(frame)[filled:])
                if not received:
                    raise ConnectionResetError
                filled += received
                if frame is header and filled == len(header):
                    frame, filled = bytearray(_LENGTH.unpack(header)[0]), 0
                elif filled == len(frame):
                    self.drain(tail)
                    return frame
            elif self.process.poll() is not None:
                raise ConnectionResetError  # although a descendant holds the channel open
            self._watch.check()

    def _poll(self, until: float | None) -> set[int]:
        left = _left(until)
        seconds = POLL_SECONDS if left is None else min(left, POLL_SECONDS)
        return {descriptor for descriptor, _ in self._poller.poll(seconds * 1000)}

    def drain(self, tail: bytearray) -> None:
        """Read what was printed; not for ever: a flood must not hold up the answer."""
        for _ in range(16 if self._output_open else 0):
            try:
                data = os.read(self._output, 65_536)
            except BlockingIOError:
                return
            if not data:
                self._poller.unregister(self._output)
                self._output_open = False
                return
            tail += data
            del tail[:-TAIL_BYTES]
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        """Show the lines that are for the person at the terminal."""
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[:LONGEST_MESSAGE]
        for line in lines:
            if line.startswith(MESSAGE):
                print(line.decode(errors="replace"), file=sys.stderr, flush=True)

    def status(self) -> int:
        """How the child ended; killed if it has not (it closed its channel only)."""
        try:
            return self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        # The pid of a process that has been waited for may be another one's by now.
        running = self.process.poll() is None
        kill_tree(self.process.pid if running else None, self._token)
        self.process.wait()

    def close(self) -> None:
        self.channel.close()
        os.close(self._output)


class _Watch:
    """Adds up what a process tree takes, at a small share of the time."""

    SHARE = 20  # listing all processes takes no more than 1/20 of the time

    def __init__(self, pid: int) -> None:
        self._root = find(pid)
        self._cpu: float | None = None
        self._memory: int | None = None
        self._spent = 0.0
        self._tree: list[psutil.Process] = []
        self._next_listing = 0.0
        # Outlives the single call: many short ones are not checked each, but together.
        self._next_check = time.monotonic() + POLL_SECONDS

    def begin(self, cpu: float | None, memory: int | None) -> None:
        """A call begins: what it may take."""
        self._cpu, self._memory = cpu, memory
        if cpu is not None:
            self._list()
            self._spent = self._sum(_seconds)

    def check(self) -> None:
        """Raises _TooMuch."""
        now = time.monotonic()
        if now < self._next_check or (self._cpu is None and self._memory is None):
            return
        if now >= self._next_listing:
            self._list()
        if self._memory is not None:
            used = self._sum(_resident)
            if used > self._memory:
                raise _TooMuch("memory", f"{used / 2**20:.0f} MiB of memory in use")
        if self._cpu is not None and self._sum(_seconds) - self._spent > self._cpu:
            raise _TooMuch("cpu", f"more than {self._cpu:g} s of processor time")
        self._next_check = now + POLL_SECONDS

    def _list(self) -> None:
        began = time.monotonic()
        self._tree = [self._root, *descendants(self._root)] if self._root else []
        self._next_listing = began + self.SHARE * (time.monotonic() - began)

    def _sum(self, measure: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        for process in self._tree:
            with contextlib.suppress(psutil.Error):
                total += measure(process)
        return total


def _resident(process: psutil.Process) -> float:
    return process.memory_info().rss


def _seconds(process: psutil.Process) -> float:
    """Of processor time, with that of children that have ended and been waited for."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _left(until: float | None) -> float | None:
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise _Timeout
    return left
