"""``repro.py`` is run, as a maintainer would run it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emitting import case_of, differs, outputs_of, result_of, run_script, side, strided, written

from onnxreduce.emit import repro
from onnxreduce.used import OracleUsed
from onnxreduce.verdict import Verdict

WRONG_RUNTIME = """
import numpy as np
from onnx.reference import ReferenceEvaluator

def run(model_path, inputs, *, by=1.0):
    evaluator = ReferenceEvaluator(model_path)
    outputs = evaluator.run(None, inputs)
    return {name: value + np.float32(by) for name, value in zip(evaluator.output_names, outputs)}
"""


def test_two_sides_that_differ(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(WRONG_RUNTIME)
    specs = ("ort:opt=disable_all", f"plugin:{plugin},by=0.5")
    sides = (side("expected", specs[0]), side("actual", specs[1]))
    result = result_of(strided(), sides=sides, **differs(*specs))
    written(result, tmp_path / "out")
    plugin.unlink()  # the copy beside the script is what counts
    done = run_script(tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "max abs difference 0.5" in done.stdout
    assert "the bug shows" in done.stdout


def test_a_fixed_bug_gives_status_1(tmp_path: Path) -> None:
    sides = (side("expected", "reference"), side("actual", "ort:opt=all,threads=2"))
    written(result_of(strided(), sides=sides, **differs("reference", "ort")), tmp_path)
    done = run_script(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the bug does not show" in done.stdout


def test_a_missing_provider_gives_status_2(tmp_path: Path) -> None:
    sides = (side("expected", "ort"), side("actual", "ort:ep=cuda,session.intra=1"))
    written(result_of(strided(), sides=sides, **differs("ort", "ort:ep=cuda")), tmp_path)
    done = run_script(tmp_path)
    assert done.returncode == 2
    assert "CUDAExecutionProvider" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_side_that_fails(tmp_path: Path) -> None:
    case = case_of(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[?] y) <int64[1] s = {3}> { y = Reshape(x, s) }""",
        x=[1, 2],
    )
    sides = (side("backend", "ort"),)
    used = OracleUsed(
        "fails", ready_made=True, parameters={"backend": "ort", "message": "cannot be reshaped"}
    )
    written(result_of(case, sides=sides, oracle=used), tmp_path)
    done = run_script(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot be reshaped" in done.stdout
    other = OracleUsed("fails", ready_made=True, parameters={"message": "something else"})
    written(result_of(case, sides=sides, oracle=other), tmp_path)
    assert run_script(tmp_path).returncode == 1


CRASHING = "import os\n\ndef run(model_path, inputs):\n    os.abort()\n"


def test_a_crash_does_not_take_the_script_with_it(tmp_path: Path) -> None:
    plugin = tmp_path / "dies.py"
    plugin.write_text(CRASHING)
    sides = (side("backend", f"plugin:{plugin}"),)
    used = OracleUsed("crashes", ready_made=True, parameters={"backend": f"plugin:{plugin}"})
    written(result_of(strided(), sides=sides, oracle=used), tmp_path / "out")
    done = run_script(tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit status -6" in done.stdout


def test_nan(tmp_path: Path) -> None:
    case = case_of(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { y = Log(x) }""",
        x=[1, -1],
    )
    used = OracleUsed("nan", ready_made=True, parameters={"backend": "ort"})
    written(result_of(case, sides=(side("backend", "ort"),), oracle=used), tmp_path)
    done = run_script(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "y: 1 of 2 elements are not finite" in done.stdout


ORACLE = """
from kinds import KINDS

def interesting(case, *, factor: float = 2.0):
    '''A Conv with a stride.'''
    nodes = [node for node in case.model.graph.node if node.op_type in KINDS]
    return bool(nodes) and case.inputs["x"].max() * factor > 5
"""


@pytest.mark.parametrize(("factor", "status"), [(2.0, 0), (1.0, 1)])
def test_a_user_s_oracle_with_its_modules(tmp_path: Path, factor: float, status: int) -> None:
    oracle, helper = tmp_path / "o.py", tmp_path / "kinds.py"
    oracle.write_text(ORACLE)
    helper.write_text("KINDS = {'Conv'}\n")
    used = OracleUsed("o.py", "A Conv.", (oracle, helper), parameters={"factor": factor})
    written(result_of(strided(), oracle=used), tmp_path / "out")
    oracle.unlink()
    helper.unlink()
    done = run_script(tmp_path / "out")
    assert done.returncode == status, done.stdout + done.stderr


def test_what_an_oracle_imports_is_to_be_installed(tmp_path: Path) -> None:
    oracle = tmp_path / "o.py"
    oracle.write_text("def interesting(case):\n    return True\n")
    packages = ("onnx_ir", "nowhere_to_be_found", "numpy", "onnxruntime", "onnxreduce", "os")
    used = OracleUsed("o.py", "", (oracle,), packages=packages)
    text = repro.script(result_of(strided(), oracle=used))
    (install,) = [line for line in text.splitlines() if line.startswith("    pip install")]
    assert f"onnxruntime=={onnxruntime.__version__}" in install
    assert " onnxreduce" in install
    assert "onnx-ir==" in install.replace("_", "-")
    assert "nowhere" not in install
    assert " os" not in install.split("onnx")[0]


def test_an_executable(tmp_path: Path) -> None:
    oracle = tmp_path / "check.sh"
    oracle.write_text('#!/bin/sh\ntest -s "$1" && test -s "$2"\n')
    oracle.chmod(0o755)
    used = OracleUsed("./check.sh", files=(oracle,), executable=True)
    written(result_of(strided(), oracle=used), tmp_path / "out")
    assert run_script(tmp_path / "out").returncode == 0
    (tmp_path / "out" / "oracle" / "check.sh").write_text("#!/bin/sh\nexit 125\n")
    assert run_script(tmp_path / "out").returncode == 2


def test_a_function_cannot_be_told(tmp_path: Path) -> None:
    written(result_of(strided()), tmp_path)
    done = run_script(tmp_path)
    assert done.returncode == 2
    assert done.stdout.startswith("y ")


def test_large_weights_and_inputs_are_read_from_beside(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((30, 40), np.float32), "w")
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[20,30] x) => (float[20,40] y) <float[30,40] w> { y = MatMul(x, w) }"""
    )
    model.graph.initializer.append(weights)
    case = case_of(model, x=np.ones((20, 30), np.float32))
    sides = (side("expected", "reference"), side("actual", "ort"))
    written(result_of(case, sides=sides, **differs("reference", "ort")), tmp_path)
    text = (tmp_path / "repro.py").read_text()
    assert "float[30,40] w" in text
    assert len(text) < 8_000
    assert run_script(tmp_path).returncode == 1
    (tmp_path / "inputs.npz").unlink()
    done = run_script(tmp_path)
    assert done.returncode == 2
    assert "inputs.npz is missing" in done.stderr


def test_the_pinned_versions_are_those_that_ran() -> None:
    result = result_of(
        strided(),
        sides=(side("expected", "reference"), side("actual", "ort@1.20.1")),
        **differs("reference", "ort@1.20.1"),
    )
    text = repro.script(result)
    assert f"onnx=={onnx.__version__}" in text
    assert 'environment("onnxruntime==1.20.1", "numpy")' in text
    ast.parse(text)


def test_a_signature_that_one_side_fails() -> None:
    sides = (side("expected", "ort:opt=disable_all"), side("actual", "ort"))
    verdict = Verdict.interesting("actual fails", "actual fails: crash: SIGSEGV")
    result = result_of(strided(), sides=sides, verdict=verdict, **differs("ort", "ort"))
    assert repro.kind(result) == "actual fails"
    assert '"actual": lambda: sys.executable' in repro.script(result)


@pytest.mark.slow
def test_in_a_fresh_environment(tmp_path: Path) -> None:
    """With nothing installed but what the script's first lines ask for."""
    sides = (side("expected", "ort:opt=disable_all"), side("actual", "ort"))
    outputs = outputs_of(strided())
    written(result_of(strided(), sides=sides, outputs=outputs, **differs("ort", "ort")), tmp_path)
    text = (tmp_path / "repro.py").read_text()
    install = next(line for line in text.splitlines() if line.strip().startswith("pip install"))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *install.split()[2:]], check=True)
    done = run_script(tmp_path, python)
    assert done.returncode == 1, done.stdout + done.stderr
