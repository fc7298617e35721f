"""Runners with real oracles: what they may do to their process, and what it costs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import psutil
import pytest

from onnxreduce.errors import UsageError
from onnxreduce.oracle.loading import find_oracle
from onnxreduce.oracle.runners import (
    ExecutableRunner,
    Interrupted,
    Limits,
    PythonRunner,
    Runner,
    advice,
    explain,
    identity_of,
    last_line,
    reason,
)
from onnxreduce.process import WorkerError
from onnxreduce.verdict import Outcome, Verdict

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bfloat16[2] b) => (float[2] y) { y = Relu (x) }
"""


@pytest.fixture
def question(tmp_path: Path) -> tuple[Path, Path]:
    """A model and inputs on disk."""
    folder = tmp_path / "candidate"
    folder.mkdir()
    onnx.save(onnx.parser.parse_model(MODEL), folder / "model.onnx")
    bits = np.array([0x3F80, 0x4000], np.uint16)
    np.savez(folder / "inputs.npz", x=np.array([1, -1], np.float32), b=bits)
    return folder / "model.onnx", folder / "inputs.npz"


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> object:
    """Write an oracle, and open a runner that is closed after the test."""

    def open_oracle(text: str, name: str = "oracle.py", **settings: str) -> Runner:
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o755)
        runner = find_oracle(str(file), settings).open()
        request.addfinalizer(runner.close)
        return runner

    return open_oracle


def ask(runner: Runner, question: tuple[Path, Path], **limits: float) -> Verdict:
    return runner.ask(*question, Limits(**limits))  # type: ignore[arg-type]


def failure(runner: Runner, question: tuple[Path, Path], **limits: float) -> WorkerError:
    with pytest.raises(WorkerError) as info:
        ask(runner, question, **limits)
    return info.value


def gone(note: Path) -> bool:
    pid = int(note.read_text())
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


DETACHED = """
import os, sys, time
def leave_behind(note):
    if os.fork() == 0:
        os.setsid()
        with open(note + ".tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename(note + ".tmp", note)
        time.sleep(60)
        os._exit(0)
    while not os.path.exists(note):
        time.sleep(0.01)
"""


# Python oracles


def test_python_sees_the_case(opened, question) -> None:
    runner = opened(
        "import numpy as np, onnx\n"
        "from pathlib import Path\n"
        "def interesting(case, *, kind='Relu'):\n"
        "    assert isinstance(case.model_path, Path) and case.model_path.is_absolute()\n"
        "    assert case.inputs['b'].dtype.name == 'bfloat16'\n"
        "    assert case.inputs['b'].astype(np.float32).tolist() == [1, 2]\n"
        "    assert case.inputs['x'].tolist() == [1, -1]\n"
        "    assert isinstance(case.model, onnx.ModelProto)\n"
        "    return any(n.op_type == kind for n in case.model.graph.node)\n"
    )
    assert ask(runner, question) == Verdict.interesting()
    other = opened(
        "def interesting(case, kind):\n    return case.model.graph.node[0].op_type == kind\n",
        "other.py",
        kind="Abs",
    )
    assert ask(other, question) == Verdict.boring()


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("np.bool_(True)", Verdict.interesting()),
        ("np.array([1, 2]).max() > 5", Verdict.boring()),
        ("Verdict.interesting('max abs\\n 3', 'wrong')", Verdict.interesting("max abs 3", "wrong")),
        ("Verdict.skipped('x' * 1000)", Verdict.skipped("x" * 299 + "…")),
    ],
)
def test_python_answers(opened, question, expression: str, verdict: Verdict) -> None:
    head = "import numpy as np\nfrom onnxreduce.verdict import Verdict\n"
    runner = opened(f"{head}def interesting(case):\n    return {expression}\n")
    assert ask(runner, question) == verdict


@pytest.mark.parametrize("expression", ["None", "0", "'yes'"])
def test_python_answer_of_another_type(opened, question, expression: str) -> None:
    runner = opened(f"def interesting(case):\n    return {expression}\n")
    error = failure(runner, question)
    assert "must return a bool or a Verdict" in reason(error)


def test_setup_once_a_process_and_teardown(opened, question, tmp_path: Path) -> None:
    log = tmp_path / "log"
    runner = opened(
        "import os\n"
        f"def note(word): open({str(log)!r}, 'a').write(word + ' ')\n"
        "def setup(): note('setup')\n"
        "def teardown(): note('teardown')\n"
        "def identity(): return 'version 7'\n"
        "def suspects(case): return [n.op_type for n in case.model.graph.node]\n"
        "def interesting(case, *, die=False):\n"
        "    note('ask')\n"
        "    return True\n"
    )
    assert identity_of(runner) == "version 7"
    assert ask(runner, question)
    assert ask(runner, question)
    assert runner.suspects(*question, Limits()) == ["Relu"]
    runner.restart()
    assert ask(runner, question)
    runner.close()
    assert log.read_text() == "setup ask ask teardown setup ask teardown "


def test_setup_again_after_a_crash(opened, question, tmp_path: Path) -> None:
    runner = opened(
        "import os\nready = False\n"
        "def setup():\n    global ready\n    ready = True\n"
        "def interesting(case):\n"
        "    assert ready\n"
        f"    if not os.path.exists({str(tmp_path / 'died')!r}):\n"
        f"        open({str(tmp_path / 'died')!r}, 'w')\n"
        "        os.abort()\n"
        "    return True\n"
    )
    error = failure(runner, question)
    assert (error.kind, reason(error)) == ("crash", "the oracle's process died: SIGABRT")
    assert ask(runner, question)


def test_exception_shows_the_oracle_only(opened, question) -> None:
    runner = opened(
        "def check(x):\n    raise KeyError('lost')\ndef interesting(case):\n    check(1)\n"
    )
    text = explain(failure(runner, question))
    assert text.startswith("the oracle raised KeyError: 'lost'\nTraceback")
    assert "line 4, in interesting" in text
    assert "onnxreduce/" not in text
    assert ask(opened("def interesting(case): return True\n"), question)


def test_an_error_for_people_is_one_line(opened, question) -> None:
    runner = opened(
        "from onnxreduce.backends import open_backend\n"
        "def interesting(case):\n    print('a remark')\n    open_backend('no_such')\n"
    )
    text = explain(failure(runner, question))
    assert text.startswith("the oracle raised UsageError: no backend 'no_such'")
    assert "\n" not in text


def test_oracle_that_does_not_load(opened, question) -> None:
    runner = opened("import no_such_module_at_all\ndef interesting(case): return True\n")
    assert "no_such_module_at_all" in reason(failure(runner, question))
    with pytest.raises(UsageError, match=r"does not start: .*no_such_module_at_all"):
        identity_of(runner)


def test_local_imports(opened, question, tmp_path: Path) -> None:
    (tmp_path / "local_helper_module.py").write_text("def check(): return True\n")
    runner = opened(
        "import local_helper_module\ndef interesting(case): return local_helper_module.check()\n"
    )
    assert ask(runner, question)


def test_hang_with_a_detached_child(opened, question, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    runner = opened(
        f"{DETACHED}\ndef interesting(case):\n    leave_behind({str(note)!r})\n    time.sleep(60)\n"
    )
    error = failure(runner, question, timeout=2)
    assert reason(error) == "no answer within 2 s"
    assert gone(note)


def test_memory(opened, question) -> None:
    runner = opened(
        "import time\ndef interesting(case):\n    x = bytearray(10**9)\n    time.sleep(60)\n"
    )
    error = failure(runner, question, timeout=30, memory=400_000_000)
    assert reason(error).startswith("the oracle used too much memory: ")


def test_processor_time(opened, question) -> None:
    runner = opened("def interesting(case):\n    while True:\n        pass\n")
    error = failure(runner, question, timeout=60, cpu=0.5)
    assert reason(error) == "the oracle took more than 0.5 s of processor time"


def test_bad_manners(opened, question, tmp_path: Path) -> None:
    runner = opened(
        "import os, sys\n"
        "def interesting(case):\n"
        "    here = os.getcwd()\n"
        f"    os.chdir({str(tmp_path)!r})\n"
        "    print('x' * 3_000_000); sys.stderr.write('y' * 3_000_000)\n"
        "    sys.stdout.close(); os.close(1)\n"
        f"    return here != {str(tmp_path)!r}\n"
    )
    assert ask(runner, question, timeout=20)
    error = failure(runner, question, timeout=20)  # it prints to the stream that it closed
    assert "closed file" in error.message
    assert error.kind == "exception"


def test_interrupt(opened, question) -> None:
    runner = opened("import time\ndef interesting(case):\n    time.sleep(60)\n")
    timer = threading.Timer(0.5, runner.interrupt)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(Interrupted):
        ask(runner, question)
    assert time.monotonic() - begin < 20
    timer.join()
    with pytest.raises(Interrupted):
        ask(runner, question)
    runner.resume()
    assert failure(runner, question, timeout=0.2).kind == "timeout"


# Executables


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("exit 0", Verdict.interesting()),
        ("echo 'max abs 3'; echo; exit 0", Verdict.interesting("max abs 3")),
        ("echo out; echo no bug here >&2; exit 1", Verdict.boring("exit status 1: no bug here")),
        ("exit 125", Verdict.skipped("exit status 125")),
        ("echo no GPU; exit 125", Verdict.skipped("no GPU")),
        ("kill -SEGV $$", Verdict.boring("SIGSEGV")),
        ("kill -KILL $$", Verdict.boring("SIGKILL")),
        ("test -f $1 && test -f $2 && test $# = 2", Verdict.interesting()),
        ('test "$(ls | wc -l)" = 0', Verdict.interesting()),
    ],
)
def test_exit_status(opened, question, body: str, verdict: Verdict) -> None:
    assert ask(opened(f"#!/bin/sh\n{body}\n", "check"), question) == verdict


def test_python_script(opened, question) -> None:
    runner = opened(
        "import sys, onnx\nm = onnx.load(sys.argv[1])\nsys.exit(len(m.graph.node) != 1)\n"
    )
    assert ask(runner, question)
    assert runner.suspects(*question, Limits()) == []
    assert identity_of(runner) == ""


def test_working_directory_is_fresh_and_goes_away(opened, question, tmp_path: Path) -> None:
    script = f"#!/bin/sh\ntest -e junk && exit 1\ntouch junk\npwd > {tmp_path}/place\nexit 0\n"
    runner = opened(script, "check")
    assert ask(runner, question)
    assert ask(runner, question)
    place = Path((tmp_path / "place").read_text().strip())
    assert place != Path.cwd()
    assert not place.exists()


def test_leftovers_of_an_executable_die_after_the_question(
    opened, question, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    runner = opened(
        f"{DETACHED}\nleave_behind({str(note)!r})\nprint('done', flush=True)\nos._exit(0)\n"
    )
    assert ask(runner, question, timeout=30) == Verdict.interesting("done")
    assert gone(note)


def test_executable_that_hangs(opened, question, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    runner = opened(f"{DETACHED}\nleave_behind({str(note)!r})\ntime.sleep(60)\n")
    assert failure(runner, question, timeout=2).kind == "timeout"
    assert gone(note)


def test_executable_that_floods(opened, question) -> None:
    script = "#!/bin/sh\nhead -c 5000000 /dev/zero | tr '\\0' x\necho\necho the end\nexit 3\n"
    assert ask(opened(script, "check"), question).detail == "exit status 3: the end"


def test_executable_without_a_first_line(opened, question) -> None:
    error = failure(opened("\x7fnot a program", "check"), question)
    assert "Exec format error" in reason(error)


def test_interrupts_reach_the_programs_of_an_executable(opened, question) -> None:
    script = "#!/bin/sh\nsleep 30 & kill -INT $!; kill -INT $$; sleep 5; exit 0\n"
    verdict = ask(opened(script, "check"), question, timeout=30)
    assert (verdict.outcome, verdict.detail) == (Outcome.BORING, "SIGINT")


def test_no_directories_are_left(opened, question, tmp_path, monkeypatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    ask(opened("#!/bin/sh\ntouch a b c\n", "check"), question)
    failure(opened("#!/bin/sh\ntouch a; sleep 60\n", "slow"), question, timeout=0.5)
    assert os.listdir(temporary) == []  # noqa: PTH208


def test_last_line() -> None:
    assert last_line("a\nb\n \n\n") == "b"
    assert last_line("") == ""
    assert last_line("a\n\x1b[1;31mFAIL\x1b[0m: 3\x1b[K\n\x1b[0m\n") == "FAIL: 3"
    assert last_line("\x1b]0;title\x07said") == "said"


def test_advice_holds_a_call_that_works(tmp_path, question) -> None:
    model, inputs = map(str, question)
    oracle = tmp_path / "it's mine.py"
    oracle.write_text("def interesting(case, least=1):\n    return case.model_path.exists()\n")
    words = advice(PythonRunner(oracle, None, {"least": 2}))
    command = words.partition("by hand: ")[2]
    # The names stand for the files of the person; they are given in the call itself.
    command = command.replace("MODEL.onnx", model).replace("INPUTS.npz", inputs)
    argv = shlex.split(command)
    assert argv[0] == "python"
    said = subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"
    assert advice(ExecutableRunner(["./check", "a b"])).endswith(
        "try it by hand: ./check 'a b' MODEL.onnx INPUTS.npz; echo $?"
    )


def test_advice_on_ready_made_oracles_is_about_their_settings() -> None:
    runners = {name: find_oracle(name, {}).open() for name in ("differs", "fails")}
    words = {name: advice(runner) for name, runner in runners.items()}
    assert all("by hand" not in text and "its settings" in text for text in words.values())
    assert "inner value" in words["differs"]
    assert "inner value" not in words["fails"]


def test_accidents_of_the_first_process_cost_nothing(opened, tmp_path: Path) -> None:
    """As when somebody kills it: setup and identity are asked of a fresh one."""
    runner = opened(
        "import os, pathlib\n"
        f"deaths = pathlib.Path({str(tmp_path)!r})\n"
        "def die_once(where):\n"
        "    if not (deaths / where).exists():\n"
        "        (deaths / where).touch()\n"
        "        os.kill(os.getpid(), 9)\n"
        "def setup():\n    die_once('setup')\n"
        "def identity():\n    die_once('identity')\n    return 'v1'\n"
        "def interesting(case):\n    return True\n"
    )
    assert identity_of(runner) == "v1"
