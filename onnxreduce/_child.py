"""The other side of `process.Worker`: run as a script, by any Python from 3.8 on.

It uses the standard library alone, because the interpreter may belong to an environment in which
this package is not installed. The process that the parent starts is only a *supervisor*: it
forks the worker proper and then waits for one of two things. When the worker ends, it kills what
the worker left behind and ends the same way (same exit status, same signal). When the parent
ends, however suddenly, its end of the channel closes, and the supervisor kills everything. On
Linux it is the sub-reaper of all its descendants, so that a child which detached itself (double
fork, `setsid`) is still found. No foreign code runs in the supervisor, so none can block it.

Frames on the channel: eight bytes of length, then a pickle. Stdin and stdout are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple  # noqa: UP035

LENGTH = struct.Struct("!Q")
PICKLE_PROTOCOL = 4
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TRACEBACK_LIMIT = 8000
LINUX = sys.platform == "linux"
PACKAGE = Path(__file__).resolve().parent
MACHINERY = (str(Path(__file__).resolve()), str(PACKAGE / "oracle") + os.sep)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    # A handler rather than SIG_IGN, which programs started by the oracle would inherit.
    signal.signal(signal.SIGINT, _do_nothing)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    supervisor = os.getpid()
    worker = os.fork()
    if worker:
        _supervise(worker, channel, wake_read)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(wake_read)
    os.close(wake_write)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    _serve(channel)


def _do_nothing(signum: int, frame: Optional[FrameType]) -> None:  # noqa: UP045
    pass


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# The supervisor.


def _supervise(worker: int, channel: socket.socket, wake: int) -> None:
    """Wait for the end of the worker or of the parent; never returns."""
    poller = select.poll()
    poller.register(channel.fileno(), 0)  # hang-up is always reported, and data is not ours
    poller.register(wake, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if channel.fileno() in ready:
            _kill_descendants(worker)
            os._exit(0)
        os.read(wake, 4096)
        for pid, status in _reap():
            if pid == worker:
                _kill_descendants(worker)
                _end_like(status)


def _reap() -> List[Tuple[int, int]]:  # noqa: UP006
    ended = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended.append((pid, status))
    return ended


def _kill_descendants(worker: int) -> None:
    """Kill until none is left: a process may fork between the listing and the signal."""
    if not LINUX:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        return
    for attempt in range(200):
        doomed = _descendants(os.getpid())
        if not doomed:
            return
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(min(0.001 * (attempt + 1), 0.02))
        _reap()


def _descendants(root: int) -> Set[int]:  # noqa: UP006
    """Living processes below `root`, from /proc (zombies are as good as gone)."""
    children: Dict[int, List[int]] = {}  # noqa: UP006
    zombies = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_bytes()
                state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
                children.setdefault(int(parent), []).append(int(entry.name))
                if state in (b"Z", b"X"):
                    zombies.add(int(entry.name))
    found: Set[int] = set()  # noqa: UP006
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending.extend(below)
    return found - zombies


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    os._exit(os.WEXITSTATUS(status))


# The worker.


def _serve(channel: socket.socket) -> None:
    """Answer calls until the parent asks for the end."""
    pid = os.getpid()
    home = Path.cwd()
    faulthandler.enable(os.dup(2))
    path = pickle.loads(_receive(channel))
    if path is None:
        del sys.path[0]  # the folder of this script: its modules would hide others
    else:
        sys.path[:] = path
    while True:
        request = _receive(channel)
        if request is None:
            break
        reply = _answer(request)
        if os.getpid() != pid:  # the callee forked, and both came back
            os._exit(0)
        _flush()
        with contextlib.suppress(OSError):
            os.chdir(home)
        _send(channel, reply)
        del request, reply
    _flush()
    sys.exit(0)


def _answer(request: memoryview) -> bytes:
    try:
        target, args = pickle.loads(request)
        result = _resolve(target)(*args)
        return pickle.dumps(("result", result), PICKLE_PROTOCOL)
    # SystemExit and KeyboardInterrupt too: the callee's way out is not the worker's.
    except BaseException as error:
        return pickle.dumps(("error", _report(error)), PICKLE_PROTOCOL)


def _report(error: BaseException) -> Dict[str, str]:  # noqa: UP006
    kind = type(error)
    # An error that is written for people says all in its one line.
    if any(f"{c.__module__}.{c.__name__}" == "onnxreduce.errors.ReduceError" for c in kind.__mro__):
        return {"type": kind.__qualname__, "message": str(error), "traceback": ""}
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    shown = _user_frames(error.__traceback__)
    text = "".join(traceback.format_exception(kind, error, shown))
    return {
        "type": module + kind.__qualname__,
        "message": str(error),
        "traceback": text[-TRACEBACK_LIMIT:].rstrip(),
    }


def _user_frames(trace: Optional[TracebackType]) -> Optional[TracebackType]:  # noqa: UP045
    """Drop the leading frames that belong to the machinery rather than to the callee."""
    shown = trace
    while shown is not None:
        name = shown.tb_frame.f_code.co_filename
        if not name.startswith(("<frozen importlib", *MACHINERY)):
            return shown
        shown = shown.tb_next
    return None


def _resolve(target: str) -> Callable[..., Any]:
    """The function that `module:function` or `/path/to/file.py:function` names."""
    place, _, name = target.rpartition(":")
    module = _from_file(place) if place.endswith(".py") else importlib.import_module(place)
    function: Callable[..., Any] = getattr(module, name)
    return function


def _from_file(place: str) -> ModuleType:
    name = "_onnxreduce_file_" + "".join(c if c.isalnum() else "_" for c in place)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, place)
        if spec is None or spec.loader is None:
            raise ImportError("cannot load " + place)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _flush() -> None:
    """Show what was printed. The callee may have closed or replaced the streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _receive(channel: socket.socket) -> Any:
    """The next frame: a request as raw bytes, or `None` for "end"."""
    (length,) = LENGTH.unpack(_exactly(channel, LENGTH.size))
    return memoryview(_exactly(channel, length)) if length else None


def _exactly(channel: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    filled = 0
    while filled < count:
        received = channel.recv_into(view[filled:])
        if not received:
            os._exit(0)  # the parent is gone
        filled += received
    return data


def _send(channel: socket.socket, frame: bytes) -> None:
    channel.sendall(LENGTH.pack(len(frame)))
    channel.sendall(frame)


if __name__ == "__main__":
    main()
