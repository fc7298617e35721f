"""The command line, as a user meets it: results, exit statuses, one clear line for each mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from models import parallel_branches

from onnxreduce.backends.web.dist import DIST_VARIABLE
from onnxreduce.cli import main

BOTH = """
def interesting(case):
    '''Relu and Tanh are both there.'''
    kinds = {node.op_type for node in case.model.graph.node}
    return {"Relu", "Tanh"} <= kinds
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parallel_branches(), path)
    return path


def oracle(tmp_path: Path, source: str = BOTH, name: str = "oracle.py") -> Path:
    path = tmp_path / name
    path.write_text(textwrap.dedent(source))
    return path


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit status, and what is said on stderr."""
    capsys.readouterr()
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as error:  # argparse
        status = int(error.code or 0)
    return status, capsys.readouterr().err


def test_two_parallel_branches_leave_two_nodes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([str(model), "--oracle", str(oracle(tmp_path)), "--json"])
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert status == 0
    assert summary["reduced"]["ops"] == {"Relu": 1, "Tanh": 1}
    assert summary["one_minimal"]
    assert summary["confirmed"]
    assert summary["stopped_by"] is None
    assert "7  ->  2" in err
    output = tmp_path / "model-reduced"
    reduced = onnx.load(output / "model.onnx")
    onnx.checker.check_model(reduced, full_check=True)
    assert len(reduced.graph.node) == 2
    with np.load(output / "inputs.npz") as inputs:
        assert set(inputs) == {value.name for value in reduced.graph.input}
    assert (output / "test_data_set_0" / "input_0.pb").exists()
    assert (output / "test_data_set_0" / "output_0.pb").exists()
    assert "Tanh" in (output / "model.txt").read_text()
    events = [json.loads(line) for line in (output / "journal.jsonl").read_text().splitlines()]
    sizes = [event["size"] for event in events if event["event"] == "accepted"]
    assert sizes == sorted(sizes, reverse=True)
    assert len({json.dumps(size) for size in sizes}) == len(sizes)


def test_model_is_never_touched(model: Path, tmp_path: Path) -> None:
    before = model.read_bytes(), model.stat().st_mtime_ns
    assert main([str(model), "--oracle", str(oracle(tmp_path)), "--quiet"]) == 0
    assert (model.read_bytes(), model.stat().st_mtime_ns) == before


def test_executable_oracle(model: Path, tmp_path: Path) -> None:
    script = oracle(
        tmp_path,
        f"""\
        #!{sys.executable}
        import sys, onnx, numpy
        model = onnx.load(sys.argv[1])
        assert numpy.load(sys.argv[2]).files
        sys.exit(not any(node.op_type == "Neg" for node in model.graph.node))
        """,
        "oracle",
    )
    script.chmod(0o755)
    assert main([str(model), "--oracle", str(script), "--quiet"]) == 0
    reduced = onnx.load("model-reduced/model.onnx")
    assert [node.op_type for node in reduced.graph.node] == ["Neg"]


def test_settings_reach_the_oracle(model: Path, tmp_path: Path) -> None:
    path = oracle(
        tmp_path,
        """
        def interesting(case, *, kind: str = "Nothing"):
            return any(node.op_type == kind for node in case.model.graph.node)
        """,
    )
    assert main([str(model), "--oracle", str(path), "--set", "kind=Tanh", "--quiet"]) == 0
    reduced = onnx.load("model-reduced/model.onnx")
    assert [node.op_type for node in reduced.graph.node] == ["Tanh"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"not a model at all, just text\n" * 20, "ONNX"),
        (b"", "empty"),
    ],
)
def test_bad_model(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    status, said = failure(capsys, path, "--oracle", oracle(tmp_path))
    assert status == 2
    assert words.lower() in said.lower()
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "bad-reduced").exists()


def test_truncated_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model.read_bytes()
    path = tmp_path / "truncated.onnx"
    for length in range(1, len(whole), 17):
        path.write_bytes(whole[:length])
        status, said = failure(capsys, path, "--oracle", oracle(tmp_path))
        assert status in (1, 2), length  # 1: what is left is a model without Relu or Tanh
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("def intresting(case):\n    return True\n", 2, "interesting"),
        ("def interesting(case):\n    return undefined\n", 2, "NameError"),
        ("def interesting(case):\n    return False\n", 1, "not find the original interesting"),
        ("import os\ndef interesting(case):\n    os.abort()\n", 2, "SIGABRT"),
        ("def interesting(case)\n    return True\n", 2, "syntax"),
    ],
    ids=["misspelt", "raises", "never", "aborts", "syntax"],
)
def test_bad_oracle(
    source: str,
    status: int,
    words: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    got, said = failure(capsys, model, "--oracle", oracle(tmp_path, source), "--quiet")
    assert got == status
    assert words.lower() in said.lower()
    assert not (tmp_path / "model-reduced").exists()


def test_hanging_oracle_and_its_child(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"""
    import os, time
    def interesting(case):
        if os.fork() == 0:
            os.setsid()
            open({str(tmp_path / "child")!r}, "w").write(str(os.getpid()))
        time.sleep(600)
    """
    began = time.monotonic()
    status, said = failure(
        capsys, model, "--oracle", oracle(tmp_path, source), "--timeout", 1, "--quiet"
    )
    assert status == 2
    assert "hangs" in said
    assert time.monotonic() - began < 30
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"z": np.zeros((1, 4), np.float32)}, "x"),
        ({"x": np.zeros((1, 4), np.float64)}, "float"),
        ({"x": np.zeros((1, 5), np.float32)}, "5"),
    ],
    ids=["name", "dtype", "shape"],
)
def test_bad_inputs(
    inputs: dict[str, np.ndarray],
    words: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **inputs)
    status, said = failure(capsys, model, "--oracle", oracle(tmp_path), "--inputs", path)
    assert status == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_existing_output_is_refused_and_kept(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model-reduced").mkdir()
    (tmp_path / "model-reduced" / "thesis.txt").write_text("mine")
    status, said = failure(capsys, model, "--oracle", oracle(tmp_path))
    assert status == 2
    assert "--force" in said
    assert [p.name for p in (tmp_path / "model-reduced").iterdir()] == ["thesis.txt"]
    assert main([str(model), "--oracle", str(oracle(tmp_path)), "--force", "--quiet"]) == 0
    assert (tmp_path / "model-reduced" / "thesis.txt").read_text() == "mine"


def test_unwritable_output(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a directory")
    status, said = failure(
        capsys, model, "--oracle", oracle(tmp_path), "--output", tmp_path / "file" / "out"
    )
    assert status == 2
    assert len(said.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_output(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ro").mkdir(mode=0o555)
    status, said = failure(
        capsys, model, "--oracle", oracle(tmp_path), "--output", tmp_path / "ro" / "out"
    )
    assert status == 2
    assert len(said.strip().splitlines()) == 1


def test_budget_gives_a_full_result(model: Path, tmp_path: Path) -> None:
    status = main([str(model), "--oracle", str(oracle(tmp_path)), "--max-calls", "4", "--quiet"])
    assert status == 3
    summary = json.loads(Path("model-reduced/summary.json").read_text())
    assert summary["stopped_by"] == "max-calls"
    assert not summary["one_minimal"]
    assert onnx.load("model-reduced/model.onnx").graph.node


def test_resume_asks_nothing_twice_and_ends_the_same(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    source = f"""
    def interesting(case):
        kinds = {{node.op_type for node in case.model.graph.node}}
        with open({str(log)!r}, "a") as file:
            file.write(case.model.SerializeToString().hex() + "\\n")
        return {{"Relu", "Tanh"}} <= kinds
    """
    path = str(oracle(tmp_path, source))
    common = [str(model), "--oracle", path, "--quiet", "--jobs", "1"]
    assert main([*common, "--output", "whole"]) == 0
    whole = sorted(log.read_text().splitlines())
    log.unlink()
    halves = [*common, "--output", "halves"]
    assert main([*halves, "--max-calls", "6"]) == 3
    first = json.loads(Path("halves/summary.json").read_text())["reduced"]
    assert main([*halves, "--resume"]) == 0
    summaries = [json.loads(Path(d, "summary.json").read_text()) for d in ("whole", "halves")]
    assert summaries[0]["digest"] == summaries[1]["digest"]
    assert first["nodes"] >= summaries[1]["reduced"]["nodes"]
    assert sorted(log.read_text().splitlines()) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_gives_a_full_result(number: int, model: Path, tmp_path: Path) -> None:
    slow = oracle(
        tmp_path, "import time\n" + BOTH.replace("    kinds", "    time.sleep(0.3)\n    kinds")
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxreduce", str(model), "--oracle", str(slow)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "calls)" in line:
            break
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 3, rest
    summary = json.loads((tmp_path / "model-reduced" / "summary.json").read_text())
    assert summary["stopped_by"] == "interrupt"
    assert summary["reduced"]["nodes"] < 7


def test_help_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    assert "exit status" in capsys.readouterr().out
    assert main(["oracles"]) == 0
    assert "differs" in capsys.readouterr().out
    assert main(["backends"]) == 0
    assert "ort" in capsys.readouterr().out


def test_force_keeps_the_old_result_until_there_is_a_new_one(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model), "--oracle", str(oracle(tmp_path)), "--quiet"]) == 0
    before = Path("model-reduced/summary.json").read_text()
    never = oracle(tmp_path, "def interesting(case):\n    return False\n", "never.py")
    assert failure(capsys, model, "--oracle", never, "--force", "--quiet")[0] == 1
    assert Path("model-reduced/summary.json").read_text() == before
    assert onnx.load("model-reduced/model.onnx").graph.node


def test_a_resumed_run_never_makes_the_result_larger(model: Path, tmp_path: Path) -> None:
    arguments = [str(model), "--oracle", str(oracle(tmp_path)), "--quiet"]
    assert main(arguments) == 0
    before = Path("model-reduced/model.onnx").read_bytes()
    assert main([*arguments, "--resume", "--max-calls", "3"]) in (0, 3)
    assert Path("model-reduced/model.onnx").read_bytes() == before
    assert json.loads(Path("model-reduced/summary.json").read_text())["reduced"]["nodes"] == 2


def test_web_dist_reaches_the_backends_of_an_oracle(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DIST_VARIABLE, "")  # so that it is restored
    bundles = tmp_path / "somewhere" / "dist"
    bundles.mkdir(parents=True)
    asks = oracle(
        tmp_path,
        f"""
        from onnxreduce.backends.web import dist

        def interesting(case):
            return str(dist.find("0.0.0", "ort.mine.mjs")[0]) == {str(bundles)!r}
        """,
    )
    command = [str(model), "--oracle", str(asks), "--web-dist", "somewhere", "--max-calls", "3"]
    status, said = failure(capsys, *command)
    assert status == 2
    assert "somewhere: no onnxruntime-web bundle (ort*.mjs) in there" in said
    (bundles / "ort.mine.mjs").touch()
    status, said = failure(capsys, *command)
    assert status == 3, said
    assert "(3 calls)" in said or "3 oracle calls" in said


def test_the_options_of_a_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "web"]) == 0
    listed = capsys.readouterr().out
    assert "preferredLayout of webgpu; one of NCHW, NHWC" in listed
    assert "answer from the N-th run of a session [1]" in listed
    status, said = failure(capsys, "backends", "wab")
    assert status == 2
    assert "did you mean 'web'?" in said
