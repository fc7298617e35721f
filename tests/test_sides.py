"""The backends behind an oracle, run once more on the result; and what a run was made with."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emitting import STRIDED, run_script, strided

from onnxreduce import reduce
from onnxreduce.backends.spec import parse_spec
from onnxreduce.modelio import save_model
from onnxreduce.oracle.loading import find_oracle
from onnxreduce.sides import backend_specs, measure
from onnxreduce.used import OracleUsed, oracle_used


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save_model(strided(), path)
    return path


def test_which_parameters_name_backends() -> None:
    specs = backend_specs(
        "mine", {"expected": "ort:opt=disable_all", "actual": "no such: thing", "fast": "reference"}
    )
    assert {role: str(spec) for role, spec in specs.items()} == {
        "expected": "ort:opt=disable_all",
        "fast": "reference",
    }
    pair = backend_specs("webgpu_vs_wasm", {"version": "1.23.2", "gpu": "webgl", "atol": 1.0})
    assert [str(spec) for spec in pair.values()] == ["web@1.23.2:wasm", "web@1.23.2:webgl"]


def test_each_side_has_outputs_or_an_error(model: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "dies.py"
    plugin.write_text("import os\n\ndef run(model_path, inputs):\n    os.abort()\n")
    specs = {
        "expected": parse_spec("ort"),
        "actual": parse_spec(f"plugin:{plugin}"),
        "backend": parse_spec("ort:ep=cuda"),
        "slow": parse_spec("web:webgpu,agent"),
    }
    right, dead, failing = measure(specs, model, strided().inputs)
    assert right.version == f"onnxruntime {onnxruntime.__version__}"
    assert right.outputs is not None
    assert isinstance(right.outputs["y"], np.ndarray)
    assert dead.outputs is None
    assert "SIGABRT" in dead.error
    assert failing.outputs is None
    assert "CUDA" in failing.error


def test_what_a_ready_made_oracle_is() -> None:
    used = oracle_used(find_oracle("differs", {"actual": "reference", "atol": "0.5"}), "versions")
    assert used.ready_made
    assert used.parameters["expected"] == "ort:opt=disable_all"
    assert used.parameters["actual"] == "reference"
    assert used.parameters["atol"] == 0.5
    assert used.summary == "Two backends give different results."
    assert used.identity == "versions"


def test_what_a_user_s_oracle_is(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import numpy\n")
    oracle = tmp_path / "o.py"
    oracle.write_text(
        "import helper\n\n"
        'def interesting(case, *, a=1, b=len("x"), c: str = "z"):\n    return True\n'
    )
    used = oracle_used(find_oracle(str(oracle)), "")
    assert [file.name for file in used.files] == ["o.py", "helper.py"]
    assert used.parameters == {"a": 1, "c": "z"}
    assert used.packages == ("numpy",)
    assert not used.ready_made
    assert not used.executable


TOOL = """
def rewrite(model):
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "auto_pad":
                attribute.s = b"SAME_LOWER"
"""


def test_a_tool_beside_the_oracle_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rewrites` with a function of a file: the script needs the file, and finds it."""
    tool = tmp_path / "elsewhere" / "tool.py"
    tool.parent.mkdir()
    tool.write_text(textwrap.dedent(TOOL))
    out = tmp_path / "out"
    case = strided()
    result = reduce(case, "rewrites", settings={"tool": f"{tool}:rewrite"}, output=out)
    tool.unlink()
    assert isinstance(result.oracle, OracleUsed)
    assert [side.role for side in result.sides] == ["backend"]
    root = str(Path(onnx.__file__).parent.parent)
    package = str(Path(__file__).parent.parent)
    done = run_script(out, PYTHONPATH=f"{package}:{root}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SAME_UPPER" in STRIDED
