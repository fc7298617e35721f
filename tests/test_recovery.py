"""Whatever happens to a run, nothing is lost: the same result in the end, no question twice."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sqlite3
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from models import parallel_branches

from onnxreduce import history, journal, modelio
from onnxreduce.cli import main
from onnxreduce.oracle import cache

LOGGING = """
import time
from hashlib import sha256
def interesting(case, *, kinds: str = "Relu,Tanh", seconds: float = 0.0):
    time.sleep(seconds)
    with open({log!r}, "a") as log:
        log.write(sha256(case.model_path.read_bytes() + repr(case.inputs).encode()).hexdigest())
        log.write("\\n")
    return set(kinds.split(",")) <= {{node.op_type for node in case.model.graph.node}}
"""

SLOW = [pytest.mark.slow, pytest.mark.timeout(1200)]

Fault = Callable[[], None]


@dataclass
class Site:
    """A folder with a model and an oracle that writes down what it is asked."""

    folder: Path

    def __post_init__(self) -> None:
        self.log = self.folder / "asked"
        self.oracle = self.folder / "oracle.py"
        self.write_oracle(LOGGING.format(log=str(self.log)))
        onnx.save(parallel_branches(), self.folder / "model.onnx")

    def write_oracle(self, source: str) -> None:
        self.oracle.write_text(textwrap.dedent(source))

    def start(self, output: str, *options: object, fault: Fault | None = None) -> int:
        """The pid of a run in a process of its own, into which a fault is built."""
        arguments = [self.folder / "model.onnx", "--oracle", self.oracle]
        arguments += ["--output", self.folder / output, "--quiet", *options]
        said = (self.folder / "said").open("w")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                os.dup2(said.fileno(), 2)
                sys.stderr = said
                if fault:
                    fault()
                status = main([str(argument) for argument in arguments])
            finally:
                said.flush()
                os._exit(status)
        said.close()
        return pid

    def run(self, output: str, *options: object, fault: Fault | None = None) -> int:
        """How a run ended: its exit status, or minus the signal."""
        return ended(self.start(output, *options, fault=fault))

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def digest(self, output: str) -> str:
        return json.loads((self.folder / output / "summary.json").read_text())["digest"]

    def asked(self) -> Counter[str]:
        return Counter(self.log.read_text().splitlines())


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def killed_at_journal_write(number: int, *, before: bool) -> Fault:
    """Kill -9 just before or just after an event is written."""

    def build() -> None:
        write, count = journal.Journal.write, [0]

        def dying(self: journal.Journal, event: str, **fields: object) -> None:
            count[0] += 1
            if count[0] == number and before:
                self._file.write(b'{"event": "acc')  # torn
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, event, **fields)  # type: ignore[arg-type]
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)

        journal.Journal.write = dying  # type: ignore[method-assign, assignment]

    return build


@pytest.mark.parametrize(
    ("step", "jobs"),
    [
        (20, 1),
        pytest.param(1, 1, marks=SLOW),
        pytest.param(1, 2, marks=SLOW),
    ],
)
def test_kill_at_journal_writes(step: int, jobs: int, site: Site) -> None:
    assert site.run("whole", "--jobs", jobs) == 0
    whole, events = site.asked(), (site.folder / "whole" / "journal.jsonl").read_text()
    site.log.unlink()
    kills = 0
    for number in range(1, events.count("\n") + 1, step):
        output = f"killed{number}"
        fault = killed_at_journal_write(number, before=number % 2 == 0)
        site.log.write_text("")
        assert site.run(output, "--jobs", jobs, fault=fault) == -signal.SIGKILL
        kills += 1
        assert site.run(output, "--jobs", jobs, "--resume") == 0, site.said
        assert site.digest(output) == site.digest("whole")
        # Only what was with the oracle when the run was killed may be asked again.
        again = sum((site.asked() - whole).values()) if jobs == 1 else twice(site.asked(), whole)
        assert again <= jobs - 1
    assert kills > 1


def twice(asked: Counter[str], whole: Counter[str]) -> int:
    """How many questions were asked more often than in the run that was not killed, if it asked."""
    return sum(max(0, count - max(1, whole[one])) for one, count in asked.items())


@pytest.mark.parametrize("renamed", [0, 1, pytest.param(2, marks=SLOW)])
def test_kill_while_the_best_is_replaced(renamed: int, site: Site) -> None:
    """Model and inputs of different cases are never taken for one."""

    def killed() -> None:
        replace, count = Path.replace, [0]

        def dying(self: Path, target: Path) -> Path:
            if self.parent.name == "best" and target.exists():
                if count[0] == renamed:
                    os.kill(os.getpid(), signal.SIGKILL)
                count[0] += 1
            return replace(self, target)

        Path.replace = dying  # type: ignore[method-assign, assignment]

    assert site.run("whole", "--jobs", 1) == 0
    assert site.run("out", "--jobs", 1, fault=killed) == -signal.SIGKILL
    # With no question left, what the killed run left behind is the result.
    assert site.run("out", "--jobs", 1, "--resume", "--max-calls", 1) == 3, site.said
    events = list(journal.read(site.folder / "out" / "journal.jsonl"))
    asked = {event["digest"] for event in events if event["event"] == "asked"}
    assert history.load_case(site.folder / "out").digest in asked
    assert not (site.folder / "out" / ".onnxreduce" / "best").exists()
    assert site.run("out", "--jobs", 1, "--resume") == 0, site.said
    assert site.digest("out") == site.digest("whole")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [5, 50])
def test_kill_at_random_moments(count: int, site: Site) -> None:
    rng = random.Random(7)
    assert site.run("whole", "--set", "seconds=0.05") == 0
    whole = site.asked()
    site.log.write_text("")
    kills = 0
    options = ["--set", "seconds=0.05", "--jobs", 2]
    while kills < count:
        resume = ["--resume"] if (site.folder / "killed" / ".onnxreduce").is_dir() else []
        pid = site.start("killed", *options, *resume)
        time.sleep(rng.uniform(0.2, 3.0))
        os.kill(pid, signal.SIGKILL)
        if ended(pid) == 0:  # it was done: the next one starts anew
            assert site.digest("killed") == site.digest("whole")
            assert twice(site.asked(), whole) <= 2 * kills
            (site.folder / "killed").rename(site.folder / f"done{kills}")
            site.log.write_text("")
        kills += 1
    if (site.folder / "killed").is_dir():
        resume = ["--resume"] if (site.folder / "killed" / ".onnxreduce").is_dir() else ["--force"]
        assert site.run("killed", *options, *resume) == 0, site.said
        assert site.digest("killed") == site.digest("whole")
        assert twice(site.asked(), whole) <= 2 * kills


@pytest.mark.slow
def test_workers_are_killed_at_random(site: Site) -> None:
    assert site.run("whole", "--set", "seconds=0.1") == 0
    rng = random.Random(3)
    pid = site.start("killed", "--set", "seconds=0.1", "--jobs", 2)
    done = threading.Event()
    killed = []

    def kill_some() -> None:
        reached = 0
        while not done.wait(rng.uniform(0, 0.3)):
            # The run gets on between two kills: three in a row over a question are an answer.
            if (asked := sum(site.asked().values())) < reached + 3:
                continue
            reached = asked
            try:
                below = psutil.Process(pid).children(recursive=True)
                victim = rng.choice(below)
                victim.kill()
                killed.append(victim.pid)
            except (psutil.Error, IndexError):
                continue

    killer = threading.Thread(target=kill_some)
    killer.start()
    status = ended(pid)
    done.set()
    killer.join()
    assert status == 0, site.said
    assert killed
    assert site.digest("killed") == site.digest("whole")


def full(what: str, number: int, output: Path) -> Fault:
    """A disk that is full from the `number`th write of a kind below `output` on."""
    count = [0]

    def filled() -> None:
        count[0] += 1
        if count[0] >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def build() -> None:
        if what == "candidate":
            write = modelio.write_inline
            modelio.write_inline = lambda *a: (filled(), write(*a))  # type: ignore[assignment]
        elif what == "file":
            folder = str(output)

            def audit(event: str, arguments: tuple[Any, ...]) -> None:
                # Also those that the library opens, for whatever it writes.
                if event == "open" and str(arguments[0]).startswith(folder):
                    flags = arguments[2] or 0
                    if flags & (os.O_WRONLY | os.O_RDWR):
                        filled()
                elif event == "os.mkdir" and str(arguments[0]).startswith(folder):
                    filled()

            sys.addaudithook(audit)
        elif what == "best":
            save = history.save_case
            history.save_case = lambda *a: (filled(), save(*a))  # type: ignore[assignment]
        elif what == "journal":
            fsync = os.fsync
            journal.os = type("os", (), {**vars(os), "fsync": lambda f: (filled(), fsync(f))})  # type: ignore[assignment, misc]
        else:
            insert = cache.Cache._insert

            def insert_if_room(*arguments: Any) -> None:
                try:
                    filled()
                except OSError as error:
                    raise sqlite3.OperationalError("database or disk is full") from error
                insert(*arguments)

            cache.Cache._insert = insert_if_room  # type: ignore[method-assign]

    return build


@pytest.mark.parametrize(
    ("what", "number"),
    [
        pytest.param("candidate", 3, marks=SLOW),
        ("candidate", 11),
        ("file", 60),
        *(pytest.param("file", number, marks=SLOW) for number in (*range(1, 13), 30, 45, 90)),
        pytest.param("best", 1, marks=SLOW),
        pytest.param("best", 3, marks=SLOW),
        pytest.param("journal", 1, marks=SLOW),
        pytest.param("journal", 4, marks=SLOW),
        pytest.param("answers", 1, marks=SLOW),
        pytest.param("answers", 6, marks=SLOW),
    ],
)
def test_full_disk(what: str, number: int, site: Site) -> None:
    assert site.run("whole") == 0
    assert site.run("full", fault=full(what, number, site.folder / "full")) in (2, 3)
    assert "Traceback" not in site.said
    lines = site.said.strip().splitlines()
    assert len(lines) <= 1
    best = site.folder / "full" / "model.onnx"
    if best.exists():
        onnx.checker.check_model(onnx.load(best), full_check=True)
    resume = ["--resume"] if (site.folder / "full" / ".onnxreduce").is_dir() else []
    assert site.run("full", *resume) == 0, site.said
    assert site.digest("full") == site.digest("whole")


@pytest.mark.slow
def test_changed_oracle(site: Site) -> None:
    assert site.run("out", "--max-calls", 7) == 3
    before = onnx.load(site.folder / "out" / "model.onnx")
    site.write_oracle(LOGGING.format(log=str(site.log)).replace("Relu,Tanh", "Tanh"))
    assert site.run("out", "--resume") == 2
    assert "--resume --force" in site.said
    assert len(onnx.load(site.folder / "out" / "model.onnx").graph.node) == len(before.graph.node)
    asked = sum(site.asked().values())
    assert site.run("out", "--resume", "--force", "--max-calls", asked + 2) in (0, 3), site.said
    assert site.run("out", "--resume") == 0, site.said
    reduced = onnx.load(site.folder / "out" / "model.onnx")
    assert [node.op_type for node in reduced.graph.node] == ["Tanh"]
    events = [e["event"] for e in journal.read(site.folder / "out" / "journal.jsonl")]
    assert events.count("rebased") == 1


def test_changed_oracle_that_refuses_the_best(site: Site) -> None:
    assert site.run("out") == 0
    site.write_oracle(LOGGING.format(log=str(site.log)).replace("Relu,Tanh", "Sqrt"))
    assert site.run("out", "--resume", "--force") == 1
    assert "not find" in site.said
    assert len(onnx.load(site.folder / "out" / "model.onnx").graph.node) == 2


@pytest.mark.slow
def test_another_number_of_jobs(site: Site) -> None:
    assert site.run("whole", "--jobs", 1) == 0
    site.log.unlink()
    assert site.run("out", "--jobs", 1, "--max-calls", 6) == 3
    assert site.run("out", "--jobs", 3, "--resume") == 0
    assert site.digest("out") == site.digest("whole")
    assert max((site.asked() - Counter(site.asked().keys())).values(), default=0) <= 1


def test_two_runs_in_one_directory(site: Site) -> None:
    pid = site.start("out", "--set", "seconds=1")
    while not (site.folder / "out" / ".onnxreduce").is_dir():
        time.sleep(0.05)
    time.sleep(0.2)
    assert site.run("out", "--resume") == 2
    assert "another onnxreduce is at work" in site.said
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    assert site.run("out", "--force") == 0  # the lock went with the process


def test_second_interrupt_ends_at_once(site: Site) -> None:
    pid = site.start("out", "--set", "seconds=0.3", "--jobs", 1)
    path = site.folder / "out" / "model.onnx"
    while not path.exists():
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    time.sleep(0.1)
    os.kill(pid, signal.SIGINT)
    began = time.monotonic()
    assert ended(pid) == 3
    assert time.monotonic() - began < 10
    onnx.checker.check_model(onnx.load(path), full_check=True)


@pytest.mark.slow
def test_clock_that_goes_backwards(site: Site) -> None:
    def backwards() -> None:
        now = [2e9]

        def tell() -> float:
            now[0] -= 100
            return now[0]

        time.time = tell

    assert site.run("out", "--max-seconds", 600, fault=backwards) == 0, site.said


@pytest.mark.slow
def test_oracle_that_behaves_badly(site: Site) -> None:
    assert site.run("whole") == 0
    site.write_oracle(
        """
        import os, sys, time
        def interesting(case):
            os.write(2, b"x" * 3_000_000)
            os.chdir("/")
            (case.model_path.parent / "junk").write_text("mine")
            kinds = {node.op_type for node in case.model.graph.node}
            if os.fork() == 0:
                os.setsid()
                time.sleep(300)
            os.closerange(1, 2)
            return {"Relu", "Tanh"} <= kinds
        """
    )
    assert site.run("out", "--jobs", 2) == 0, site.said
    assert site.digest("out") == site.digest("whole")
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(site.folder) in str(p.info)]
    assert not list((site.folder / "out" / ".onnxreduce").rglob("junk"))
