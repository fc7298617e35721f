"""Helper processes: results, the four ways to fail, and that nothing survives."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import onnxreduce
from onnxreduce.process import Worker, WorkerError, exit_reason, kill_tree

CALLEE = '''
import os, subprocess, sys, time

count = 0

def add(a, b):
    return a + b

def bump():
    global count
    count += 1
    return count

def raises(text):
    def inner():
        raise ValueError(text)
    inner()

def leaves():
    sys.exit("goodbye")

def unpicklable():
    return lambda: None

def hang():
    while True:
        time.sleep(1)

def hang_in_c():
    import re
    re.match("(a+)+$", "a" * 60 + "b")     # holds the interpreter lock for ever

def flood(size):
    print("x" * size)
    print("last words", file=sys.stderr)
    return size

def close_streams():
    os.close(1); os.close(2); sys.stdout.close()
    return "closed"

def move(place):
    os.chdir(place)
    return os.getcwd()

def where():
    return os.getcwd()

def eat(size):
    held = bytearray(size)
    time.sleep(30)

def eat_in_child(size):
    subprocess.run([sys.executable, "-c", f"import time; b = bytearray({size}); time.sleep(30)"])

def burn(seconds=60.0):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def burn_in_child():
    subprocess.run([sys.executable, "-c", "while True: pass"])

def detached(note):
    """A grandchild with a session of its own, whose parent is gone."""
    code = f"import os, time; open({note!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", code], {})
        os._exit(0)
    while not (os.path.exists(note) and open(note).read()):
        time.sleep(0.01)

def detached_then(note, what):
    detached(note)
    if what == "hang":
        hang()
    elif what == "abort":
        os.abort()
    return what

def both_return():
    os.fork()
    return os.getpid()
'''


@pytest.fixture
def callee(tmp_path: Path) -> str:
    file = tmp_path / "callee.py"
    file.write_text(CALLEE)
    return str(file)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_until(condition: object, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def failure(worker: Worker, *call: object, **options: object) -> WorkerError:
    with pytest.raises(WorkerError) as info:
        worker.call(*call, **options)  # type: ignore[arg-type]
    return info.value


def test_results_and_warm_state(worker: Worker, callee: str) -> None:
    assert worker.call("operator:add", "a", "b") == "ab"
    assert [worker.call(f"{callee}:bump") for _ in range(3)] == [1, 2, 3]
    assert worker.starts == 1


def test_large_arguments_and_results(worker: Worker) -> None:
    data = os.urandom(20_000_000)
    assert worker.call("builtins:bytes", data) == data


def test_one_process_answers_every_call(worker: Worker) -> None:
    assert len({worker.call("os:getpid") for _ in range(200)}) == 1


def test_exception_keeps_the_worker_and_shows_the_callee(worker: Worker, callee: str) -> None:
    worker.call(f"{callee}:bump")
    error = failure(worker, f"{callee}:raises", "bad\nworse")
    assert (error.kind, str(error)) == ("exception", "ValueError: bad worse")
    assert "in inner" in error.traceback
    assert error.traceback.count("File ") == 2
    assert "_child" not in error.traceback
    assert worker.call(f"{callee}:bump") == 2


def test_other_exceptions(worker: Worker, callee: str) -> None:
    assert failure(worker, f"{callee}:leaves").message == "SystemExit: goodbye"
    assert failure(worker, f"{callee}:unpicklable").kind == "exception"
    assert "no_such_module" in failure(worker, "no_such_module:f").message
    assert "no_such_function" in failure(worker, f"{callee}:no_such_function").message
    assert worker.starts == 1


def test_worker_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(WorkerError("timeout", "late", "trace", "tail")))
    assert (error.kind, str(error), error.traceback, error.tail) == (
        "timeout",
        "late",
        "trace",
        "tail",
    )


@pytest.mark.parametrize("function", ["hang", "hang_in_c"])
def test_timeout(worker: Worker, callee: str, function: str) -> None:
    pid = worker.call("os:getpid")
    error = failure(worker, f"{callee}:{function}", timeout=0.3)
    assert (error.kind, error.message) == ("timeout", "no answer within 0.3 s")
    assert not alive(pid)
    assert worker.call(f"{callee}:add", 1, 2) == 3
    assert worker.starts == 2


@pytest.mark.parametrize(
    ("target", "args", "reason"),
    [
        ("os:abort", (), "SIGABRT"),
        ("os:_exit", (7,), "exit status 7"),
        ("os:_exit", (0,), "exit status 0"),
        ("signal:raise_signal", (signal.SIGSEGV,), "SIGSEGV"),
        ("signal:raise_signal", (signal.SIGKILL,), "SIGKILL"),
    ],
)
def test_crash(worker: Worker, target: str, args: tuple[int, ...], reason: str) -> None:
    error = failure(worker, target, *args)
    assert (error.kind, error.message) == ("crash", reason)
    assert worker.call("operator:add", 1, 2) == 3


def test_crash_tells_where(worker: Worker) -> None:
    assert "Fatal Python error" in failure(worker, "os:abort").tail


@pytest.mark.parametrize("function", ["eat", "eat_in_child"])
def test_memory(worker: Worker, callee: str, function: str) -> None:
    error = failure(worker, f"{callee}:{function}", 400_000_000, timeout=20, memory=300_000_000)
    assert error.kind == "memory"
    assert "MiB" in error.message
    assert worker.call(f"{callee}:add", 1, 2, memory=300_000_000) == 3


@pytest.mark.parametrize("function", ["burn", "burn_in_child"])
def test_processor_time(worker: Worker, callee: str, function: str) -> None:
    error = failure(worker, f"{callee}:{function}", timeout=60, cpu=0.5)
    assert (error.kind, error.message) == ("cpu", "more than 0.5 s of processor time")
    assert worker.call(f"{callee}:add", 1, 2, cpu=5.0) == 3


def test_processor_time_counts_for_each_call(worker: Worker, callee: str) -> None:
    for _ in range(4):
        assert worker.call(f"{callee}:burn", 0.6, cpu=1.5) is None
    assert worker.starts == 1


def test_flood_of_output(worker: Worker, callee: str) -> None:
    assert worker.call(f"{callee}:flood", 5_000_000) == 5_000_000
    assert worker.output.endswith("last words\n")
    assert len(worker.output) < 100_000
    worker.call(f"{callee}:add", 1, 2)
    assert worker.output == ""


def test_closed_streams_and_changed_directory(worker: Worker, callee: str, tmp_path: Path) -> None:
    assert worker.call(f"{callee}:close_streams") == "closed"
    assert worker.call(f"{callee}:move", str(tmp_path)) == str(tmp_path)
    assert worker.call(f"{callee}:where") == os.getcwd()  # noqa: PTH109
    assert worker.starts == 1


def test_both_sides_of_a_fork_return(worker: Worker, callee: str) -> None:
    first = worker.call(f"{callee}:both_return")
    assert worker.call("os:getpid") == first


@pytest.mark.parametrize("how", ["hang", "abort", "close", "kill"])
def test_no_descendant_survives(worker: Worker, callee: str, tmp_path: Path, how: str) -> None:
    note = tmp_path / "pid"
    if how in ("hang", "abort"):
        error = failure(worker, f"{callee}:detached_then", str(note), how, timeout=2)
        assert error.kind == {"hang": "timeout", "abort": "crash"}[how]
    else:
        worker.call(f"{callee}:detached_then", str(note), how)
        pid = int(note.read_text())
        assert alive(pid)
        getattr(worker, how)()
    assert not alive(int(note.read_text()))


def test_kill_leftovers(worker: Worker, callee: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    worker.call(f"{callee}:detached", str(note))
    worker.call("onnxreduce.process:kill_leftovers")
    assert not alive(int(note.read_text()))
    assert worker.starts == 1


def test_kill_tree_finds_orphans_by_token() -> None:
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code + "; time.sleep(60)"],
        stdout=subprocess.PIPE,
        env={**os.environ, "ONNXREDUCE_PROCESS_TOKENS": "outer,abc123"},
    )
    assert parent.stdout
    orphan = int(parent.stdout.readline())
    parent.wait()
    kill_tree(parent.pid, "other")
    assert alive(orphan)
    kill_tree(parent.pid, "abc123")
    assert not alive(orphan)
    parent.stdout.close()


def test_kill_from_another_thread(worker: Worker, callee: str) -> None:
    worker.start()
    timer = threading.Timer(0.3, worker.kill)
    timer.start()
    assert failure(worker, f"{callee}:hang", timeout=20).kind == "crash"
    timer.join()
    assert worker.call(f"{callee}:add", 1, 2) == 3


def test_a_child_that_died_idle_is_replaced(worker: Worker) -> None:
    os.kill(worker.call("os:getpid"), signal.SIGKILL)
    assert wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE)
    assert worker.call("operator:add", 1, 2) == 3
    assert worker.starts == 2


def test_supervisor_killed(worker: Worker, callee: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = worker.call("os:getpid")
    worker.call(f"{callee}:detached", str(note))
    os.kill(worker.pid or 0, signal.SIGKILL)
    assert wait_until(lambda: not alive(child))
    assert worker.call("operator:add", 1, 2) == 3


def test_everything_dies_with_the_parent(tmp_path: Path, callee: str) -> None:
    note = tmp_path / "pid"
    script = f"""
        from onnxreduce.process import Worker
        worker = Worker()
        print(worker.call("os:getpid"), flush=True)
        worker.call({callee + ":detached_then"!r}, {str(note)!r}, "hang")
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(onnxreduce.__file__).parents[1])},
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert wait_until(lambda: note.exists() and note.read_text())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not alive(child) and not alive(int(note.read_text())))


def test_interrupt_is_ignored_by_the_child_but_not_by_its_programs(
    worker: Worker, callee: str
) -> None:
    pid = worker.call("os:getpid")
    os.kill(pid, signal.SIGINT)
    os.kill(worker.pid or 0, signal.SIGINT)
    assert worker.call("os:getpid") == pid
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert worker.call("subprocess:check_output", [sys.executable, "-c", code]) == b"True\n"


def test_another_interpreter_has_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text("import sys\ndef path(): return sys.path\n")
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    with Worker(link, env={"GREETING": "hello"}, cwd=tmp_path) as worker:
        path = worker.call(f"{tmp_path / 'look.py'}:path")
        assert str(Path(onnxreduce.__file__).parent) not in path
        assert worker.call("os:getenv", "GREETING") == "hello"
        assert worker.call("os:getcwd") == str(tmp_path)


def test_missing_interpreter(tmp_path: Path) -> None:
    error = failure(Worker(tmp_path / "nothing"), "os:getpid")
    assert error.kind == "crash"
    assert "cannot run" in error.message
    assert "No such file" in error.message


def test_exit_reason() -> None:
    assert [exit_reason(status) for status in (0, 3, -11, -77)] == [
        "exit status 0",
        "exit status 3",
        "SIGSEGV",
        "signal 77",
    ]


def test_no_module_of_the_package_hides_a_standard_one() -> None:
    """The child script is run by path: its folder is first on its `sys.path` for a moment."""
    names = {path.stem for path in Path(onnxreduce.__file__).parent.iterdir()}
    assert not names & set(sys.stdlib_module_names)


def test_a_message_for_the_person_is_passed_on_at_once(capsys) -> None:
    text = "print('onnxreduce: open', 'this'); print('a secret'); print('onnxreduce: half', end='')"
    with Worker() as worker:
        worker.call("builtins:exec", text)
        assert capsys.readouterr().err == "onnxreduce: open this\n"
        assert "a secret" in worker.output
