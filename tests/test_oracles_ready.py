"""The ready-made oracles, each on a planted bug, on a healthy case and on what they must not take
for the bug."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxreduce
from onnxreduce.backends import base, close_backends
from onnxreduce.verdict import Outcome, Verdict

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
WRONG_RELU = """
import numpy as np
from onnxreduce.backends import BackendError, open_backend
ort = open_backend("ort:opt=disable_all")

def run(model_path, inputs, mode="add"):
    import onnx
    outputs = ort.run(model_path, inputs)
    if not any(node.op_type == "Relu" for node in onnx.load(model_path).graph.node):
        return outputs
    if mode == "fail":
        raise BackendError("run", "Relu of x_17 went wrong at 3")
    change = {
        "add": lambda y: y + 1,
        "nan": lambda y: y * np.nan,
        "reshape": lambda y: y.reshape(-1),
        "double": lambda y: y.astype(np.float64),
    }[mode]
    return {name: np.asarray(change(value)) for name, value in outputs.items()}
"""


class Candidate:
    """What an oracle is given."""

    def __init__(self, path: Path, text: str, **inputs: Any) -> None:
        onnx.save(parser.parse_model(text if text.startswith("<") else HEAD + text), path)
        self.model_path = path
        self.inputs = inputs

    @cached_property
    def model(self) -> onnx.ModelProto:
        return onnx.load(self.model_path)


def oracle(name: str) -> ModuleType:
    package = Path(onnxreduce.__file__).parent
    places = [package / "_oracles", package.parent / "oracles"]
    path = next(place for place in places if place.is_dir()) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"ready_made_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(name: str, case: Candidate, **settings: Any) -> Verdict:
    verdict = oracle(name).interesting(case, **settings)
    assert isinstance(verdict, Verdict)
    assert "\n" not in verdict.detail
    return verdict


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_backends()


@pytest.fixture
def relu(tmp_path: Path) -> Candidate:
    text = "(float[3] x) => (float[3] y) { h = Neg(x) y = Relu(h) }"
    return Candidate(tmp_path / "relu.onnx", text, x=np.float32([0.3, -1.7, 2.1]))


@pytest.fixture
def fused(tmp_path: Path) -> Candidate:
    text = (
        "(int32[3] x, int32[3] y) => (int32[3] z) <int32 o = {1}> { r = Div(o, x) z = Mul(r, y) }"
    )
    x, y = np.array([2, 3, 1], np.int32), np.array([4, 9, 5], np.int32)
    return Candidate(tmp_path / "fused.onnx", text, x=x, y=y)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    (tmp_path / "wrong.py").write_text(WRONG_RELU)
    return f"plugin:{tmp_path / 'wrong.py'}"


# differs


def test_differs_finds_a_wrong_fusion(fused: Candidate) -> None:
    verdict = ask("differs", fused, referee="reference")
    assert verdict
    assert verdict.detail == (
        "max abs 3 at z[1] (expected 0, actual 3); reference: actual is wrong"
    )
    assert verdict.signature == "values, actual is wrong"
    swapped = ask("differs", fused, expected="ort", actual="reference", referee="reference")
    assert swapped.signature == "values, expected is wrong"
    assert ask("differs", fused, atol=5.0).outcome is Outcome.BORING


@pytest.mark.parametrize(
    ("mode", "signature"),
    [
        ("add", "values"),
        ("nan", "non-finite actual"),
        ("double", "dtype"),
        ("fail", "actual fails: run: Relu went wrong"),
    ],
)
def test_differs_holds_the_kind(relu: Candidate, wrong: str, mode: str, signature: str) -> None:
    verdict = ask("differs", relu, actual=f"{wrong},mode={mode}")
    assert verdict
    assert verdict.signature == signature
    loose = ask("differs", relu, actual=f"{wrong},mode={mode}", loose=True)
    assert loose.signature == (signature if mode == "fail" else "other results")


def test_differs_holds_the_side_of_the_nan(relu: Candidate, wrong: str) -> None:
    spec = f"{wrong},mode=nan"
    assert ask("differs", relu, expected=spec, actual="ort").signature == "non-finite expected"


def test_differs_says_how_close_two_sides_are(relu: Candidate, wrong: str) -> None:
    same = ask("differs", relu)
    assert same.outcome is Outcome.BORING
    assert "agree within atol=0.001, rtol=0.001, to the last bit; try other inputs" in same.detail
    near = ask("differs", relu, actual=wrong, atol=1.5)
    assert "max abs 1 at y[" in near.detail
    assert "--set atol=0.5 --set rtol=0" in near.detail


def test_differs_when_both_sides_fail(tmp_path: Path) -> None:
    case = Candidate(tmp_path / "m.onnx", "(float[3] x) => (float[3] y) { y = Quux(x) }", x=0)
    verdict = ask("differs", case)
    assert verdict.outcome is Outcome.BORING
    assert verdict.detail.startswith("both sides fail")


CHAOS = (
    "(float[4] x) => (float[4] y) <float[4] k = {1e6, 3e6, 2e6, 5e6}> { t = Mul(x, k) y = Sin(t) }"
)


def test_noise_is_no_difference(tmp_path: Path) -> None:
    """Sin(x * 1e6) in two widths: an input that moves by one ulp moves the output as much."""
    (tmp_path / "wide.py").write_text(
        "import numpy as np\n"
        "def run(model_path, inputs):\n"
        "    k = np.float64([1e6, 3e6, 2e6, 5e6])\n"
        "    return {'y': np.sin(inputs['x'].astype(np.float64) * k).astype(np.float32)}\n"
    )
    x = np.float32([0.123, 0.71, 1.3, 0.9])
    case = Candidate(tmp_path / "chaos.onnx", CHAOS, x=x)
    actual = f"plugin:{tmp_path / 'wide.py'}"
    verdict = ask("differs", case, actual=actual)
    assert verdict.outcome is Outcome.BORING
    assert "numerical noise" in verdict.detail
    assert ask("differs", case, actual=actual, noise=False)


WEIGHTS = """(int32[4] i) => (float[4] y)
<float[4] w = {0.123, 0.71, 1.3, 0.9}, float[4] k = {1e6, 3e6, 2e6, 5e6}> {
  f = Cast<to = 1>(i) h = Add(f, w) r = Relu(h) t = Mul(r, k) y = Sin(t)
}"""


def test_noise_in_weights_when_no_input_is_a_float(tmp_path: Path, wrong: str) -> None:
    zeros = np.zeros(4, np.int32)
    noisy = Candidate(tmp_path / "noisy.onnx", WEIGHTS, i=zeros)
    verdict = ask("differs", noisy, actual=wrong)
    assert verdict.outcome is Outcome.BORING
    assert "numerical noise" in verdict.detail
    calm = WEIGHTS.replace("1e6, 3e6, 2e6, 5e6", "1, 2, 3, 4")
    assert ask("differs", Candidate(tmp_path / "calm.onnx", calm, i=zeros), actual=wrong)


def test_a_wrong_value_that_noise_does_not_explain_counts(relu: Candidate, wrong: str) -> None:
    assert ask("differs", relu, actual=wrong, noise=True)


def test_magnitudes_beyond_the_original_are_boring(relu: Candidate, wrong: str) -> None:
    held = oracle("differs").hold(relu)
    assert held == {"largest": pytest.approx(2.1)}
    assert ask("differs", relu, actual=wrong, **held)
    relu.inputs = {"x": np.float32([-5e6, 1, 2])}
    verdict = ask("differs", relu, actual=wrong, atol=0.1, rtol=0.0, **held)
    assert verdict.outcome is Outcome.BORING
    assert "out of the original's range of 2.1" in verdict.detail


def test_non_finite_values_on_both_sides_are_another_bug(tmp_path: Path, wrong: str) -> None:
    text = "(float[3] x) => (float[3] y) { h = Log(x) y = Relu(h) }"
    case = Candidate(tmp_path / "log.onnx", text, x=np.float32([-1, 2, 3]))
    assert ask("differs", case, actual=wrong).signature == "values beside non-finite ones"


def test_suspects_are_where_the_difference_is_born(tmp_path: Path) -> None:
    (tmp_path / "all.py").write_text(
        "from onnxreduce.backends import open_backend\n"
        "ort = open_backend('ort')\n"
        "run = ort.run\n"
        "def run_all(model_path, inputs):\n"
        "    values = ort.run_all(model_path, inputs)\n"
        "    return {n: v + 1 if n in ('b', 'c') else v for n, v in values.items()}\n"
    )
    text = "(float[3] x) => (float[3] d) { a = Neg(x) b = Exp(a) c = Relu(b) d = Abs(a) }"
    case = Candidate(tmp_path / "m.onnx", text, x=np.float32([1, 2, 3]))
    module = oracle("differs")
    assert module.suspects(case, actual=f"plugin:{tmp_path / 'all.py'}") == ["b"]
    assert module.suspects(case, actual="ort") == []


def test_suspects_are_exact_for_a_wrong_rewrite(tmp_path: Path) -> None:
    """With all values exposed the two nodes would not be fused, and nothing would be wrong. Both
    are named, the one that comes out wrong first: neither alone shows the bug."""
    text = """(int32[3] x, int32[3] y) => (int32[3] e) <int32 o = {1}> {
      a = Add(x, y) r = Div(o, x) z = Mul(r, a) d = Sub(z, x) e = Abs(d) }"""
    x, y = np.array([2, 3, 1], np.int32), np.array([4, 9, 5], np.int32)
    case = Candidate(tmp_path / "m.onnx", text, x=x, y=y)
    assert ask("differs", case)
    assert oracle("differs").suspects(case) == ["z", "r"]


# fails, crashes


def test_fails_holds_the_cause(tmp_path: Path) -> None:
    text = "(float[2,3] data) => (float[a,b] y) <int64[2] s = {4, 2}> { y = Reshape(data, s) }"
    case = Candidate(tmp_path / "m.onnx", text, data=np.zeros((2, 3), np.float32))
    verdict = ask("fails", case, message="cannot be reshaped")
    assert verdict
    renamed = text.replace("data", "x").replace("[2,3]", "[1,5]").replace("y", "weird_name")
    case = Candidate(tmp_path / "r.onnx", renamed, x=np.zeros((1, 5), np.float32))
    assert ask("fails", case).signature == verdict.signature
    case = Candidate(tmp_path / "o.onnx", text.replace("Reshape", "Tile"), data=case.inputs["x"])
    other = ask("fails", case)
    assert other
    assert other.signature != verdict.signature
    assert ask("fails", case, message="cannot be reshaped").outcome is Outcome.BORING


def test_fails_needs_a_failure(relu: Candidate, wrong: str) -> None:
    assert ask("fails", relu).detail == "ort runs it"
    failing = f"{wrong},mode=fail"
    assert ask("fails", relu, backend=failing, healthy="ort")
    sick = ask("fails", relu, backend=failing, healthy=failing)
    assert sick.outcome is Outcome.BORING
    assert oracle("fails").suspects(relu, backend="ort") == []


def test_fails_suspects_what_the_message_names(tmp_path: Path) -> None:
    text = "(float[2] x) => (float[2] y) <int64[2] w = {1, 2}> { inner = Neg(x) y = Add(inner, w) }"
    case = Candidate(tmp_path / "m.onnx", text, x=np.zeros(2, np.float32))
    case.model.graph.node[1].name = "the_add"
    onnx.save(case.model, case.model_path)
    assert oracle("fails").suspects(case) == ["the_add"]


def test_crashes_holds_the_signal(relu: Candidate, tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text(
        "import os, signal\n"
        "def run(model_path, inputs, signum=6, says='free(): invalid pointer'):\n"
        "    os.write(2, says.encode() + b'\\n')\n"
        "    os.kill(os.getpid(), signum)\n"
    )
    abort = ask("crashes", relu, backend=f"plugin:{path}")
    assert abort.signature == "crash: SIGABRT free invalid pointer"
    segv = ask("crashes", relu, backend=f"plugin:{path},signum=11")
    assert segv
    assert segv.signature != abort.signature
    assert ask("crashes", relu, backend=f"plugin:{path}", message="pointer", healthy="ort")
    other = ask("crashes", relu, backend=f"plugin:{path}", message="heap")
    assert other.outcome is Outcome.BORING
    assert ask("crashes", relu).detail == "ort runs it"


# slower


# Runs take the time that a clock of their own says: the load of the machine changes nothing.
CLOCK = """
import types
from onnxreduce.backends import base
if not hasattr(base.time, "now"):
    base.time = types.SimpleNamespace(now=0.0, perf_counter=lambda: base.time.now)
"""
SLOW = f"""{CLOCK}
import onnx
from onnxreduce.backends import open_backend
ort = open_backend("ort")

def run(model_path, inputs, seconds=0.0):
    outputs = ort.run_all(model_path, inputs)
    base.time.now += 1e-3
    for node in onnx.load(model_path).graph.node:
        if node.op_type == "Exp":
            base.time.now += seconds * outputs[node.output[0]].size
    return outputs
"""


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plugin puts in place of the clock is taken back."""
    monkeypatch.setattr(base, "time", base.time)


def test_slower_wants_a_ratio_that_holds(tmp_path: Path, own_clock: None) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    text = "(float[N] x) => (float[N] y) { h = Exp(x) y = Neg(h) }"
    case = Candidate(tmp_path / "m.onnx", text, x=np.zeros(1000, np.float32))
    fast = f"plugin:{tmp_path / 'slow.py'}"
    sides = {"slow": f"{fast},seconds=2e-5", "fast": fast, "runs": 1}
    verdict = ask("slower", case, **sides)
    assert verdict
    assert verdict.signature == "slower"
    assert verdict.detail == "21 ms against 1 ms, 21 times (from 21 to 21 in 3 turns)"
    held = oracle("slower").hold(case, **sides)
    assert held["least"] == pytest.approx(0.0021)
    # Without the slow operator, and on too little work, it is gone.
    other = Candidate(tmp_path / "o.onnx", text.replace("Exp", "Abs"), **case.inputs)
    assert ask("slower", other, **sides).outcome is Outcome.BORING
    case.inputs = {"x": np.zeros(54, np.float32)}
    assert "too quick to matter" in ask("slower", case, **sides, **held).detail
    case.inputs = {"x": np.zeros(56, np.float32)}
    assert ask("slower", case, **sides, **held)


def test_slower_judges_new_work_with_a_margin_and_known_work_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.ones(2, np.float32)
    text = "(float[N] x) => (float[N] y) <float[1] k = {0.5}> { y = Mul(x, k) }"
    case = Candidate(tmp_path / "m.onnx", text, x=x)
    sides = {"slow": "ort:opt=disable_all", "fast": "ort", "ratio": 1.9}
    module = oracle("slower")
    monkeypatch.setattr(module, "turns", lambda *_: itertools.repeat((0.022, 0.01)))
    assert all(module.interesting(case, **sides) for _ in range(3))
    # Other floats and other names are the same work, another operator or size is new.
    same = Candidate(tmp_path / "s.onnx", text.replace("0.5", "0").replace("k", "w"), x=x * 2)
    assert module.interesting(same, **sides)
    for index, (change, size) in enumerate([(("Mul", "Add"), 2), ((" ", " "), 3)]):
        path = tmp_path / f"{index}.onnx"
        new = Candidate(path, text.replace(*change), x=np.ones(size, np.float32))
        for words in ("not 2.375 times slower", "the same work"):
            verdict = module.interesting(new, **sides)
            assert verdict.outcome is Outcome.BORING
            assert words in verdict.detail


def test_slower_takes_no_more_turns_than_it_needs() -> None:
    module = oracle("slower")
    shown, missed, clear = (0.021, 0.01), (0.019, 0.01), (0.09, 0.01)
    for turns, ratio, least, outcome in (
        ([clear] * 3, 2.0, 0.01, Outcome.INTERESTING),
        ([shown] * 10, 2.0, 0.01, Outcome.INTERESTING),
        ([clear] * 10, 2.0, 0.08, Outcome.INTERESTING),  # not twice the least
        ([missed] * 2 + [shown] * 14, 2.0, 0.01, Outcome.INTERESTING),
        ([missed, shown] * 9 + [missed], 2.0, 0.01, Outcome.BORING),
        ([missed] * 6, 2.0, 0.01, Outcome.BORING),
        ([(0.009, 0.01)] * 3, 2.0, 0.01, Outcome.BORING),  # not half of it
        ([clear] * 6, 2.0, 0.1, Outcome.BORING),
    ):
        rest = iter([*turns, *turns])
        assert module.measured(rest, ratio, least).outcome is outcome
        assert len(list(rest)) == len(turns)
    assert "too quick to matter" in module.measured([clear] * 6, 2.0, 0.1).detail


def test_slower_is_rarely_wrong_about_noise() -> None:
    """Of a thousand cases exactly at the limit about one of a hundred passes; spoilt turns do."""
    module = oracle("slower")
    random = np.random.default_rng(0)

    def share(showing: float) -> float:
        said = [
            module.measured(
                ((0.021 if random.random() < showing else 0.019, 0.01) for _ in range(40)), 2, 0.01
            )
            for _ in range(1000)
        ]
        return sum(map(bool, said)) / len(said)

    assert share(0.5) < 0.02
    assert share(0.85) > 0.97


def test_slower_ends_at_the_slow_operator(tmp_path: Path) -> None:
    """The ratio still holds at the end, in a fresh process."""
    (tmp_path / "slow.py").write_text(SLOW)
    text = """(float[N] x) => (float[N] y) <float[1] k = {0.5}> {
      a = Mul(x, k) b = Relu(a) c = Tanh(b) d = Exp(c) e = Sub(d, a) f = Sigmoid(e)
      h = Add(f, b) y = Neg(h) }"""
    random = np.random.default_rng(0)
    x = random.normal(size=400).astype(np.float32)
    Candidate(tmp_path / "m.onnx", text, x=x)
    np.savez(tmp_path / "inputs.npz", x=x)
    fast = f"plugin:{tmp_path / 'slow.py'}"
    settings = {"slow": f"{fast},seconds=5e-5", "fast": fast, "runs": "1"}
    command = [sys.executable, "-m", "onnxreduce", tmp_path / "m.onnx", "--oracle", "slower"]
    command += ["--inputs", tmp_path / "inputs.npz", "--output", tmp_path / "out"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    root = Path(onnxreduce.__file__).parents[1]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "confirmed in a fresh process" in ran.stderr
    (node,) = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    assert node.op_type == "Exp"


def test_slower_is_not_fooled_by_a_disturbance(tmp_path: Path, own_clock: None) -> None:
    """A side that stalls in every third run has the larger mean, but not the larger median."""
    (tmp_path / "stalls.py").write_text(
        f"{CLOCK}\n"
        "count = 0\n"
        "def run(model_path, inputs, stall=0.0):\n"
        "    global count\n"
        "    count += 1\n"
        "    base.time.now += 0.004 + (stall if count % 3 == 0 else 0)\n"
        "    return {}\n"
    )
    case = Candidate(tmp_path / "m.onnx", "(float[1] x) => (float[1] y) { y = Neg(x) }", x=0)
    path = f"plugin:{tmp_path / 'stalls.py'}"
    verdict = ask("slower", case, slow=f"{path},stall=0.05", fast=path, ratio=2)
    assert verdict.outcome is Outcome.BORING
    assert "not 2 times slower" in verdict.detail


# nondeterministic, nan


def test_nondeterministic(relu: Candidate, tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(
        "import numpy as np\n"
        "count = 0\n"
        "def run(model_path, inputs, every=1000):\n"
        "    global count\n"
        "    count += 1\n"
        "    return {'y': inputs['x'] + (count % every == 0)}\n"
    )
    path = f"plugin:{tmp_path / 'dice.py'}"
    verdict = ask("nondeterministic", relu, backend=f"{path},every=4")
    assert verdict.signature == "values"
    assert verdict.detail.startswith("1 of 6 runs: max abs 1 at y[")
    assert "7 runs on" in ask("nondeterministic", relu, backend=path).detail
    assert ask("nondeterministic", relu).outcome is Outcome.BORING


def test_nan(tmp_path: Path, relu: Candidate, wrong: str) -> None:
    text = "(float[3] x) => (float[3] y) { y = Log(x) }"
    case = Candidate(tmp_path / "log.onnx", text, x=np.float32([1, -1, 2]))
    verdict = ask("nan", case)
    assert verdict
    assert verdict.signature == "nan"
    assert verdict.detail.startswith("nan at y[1] ")
    assert ask("nan", case, healthy="reference").outcome is Outcome.BORING
    case.inputs = {"x": np.float32([1, 0, 2])}
    assert ask("nan", case).signature == "inf"
    case.inputs = {"x": np.float32([1, np.nan, 2])}
    assert ask("nan", case).outcome is Outcome.BORING
    assert ask("nan", relu).detail == "all outputs of ort are finite"
    assert ask("nan", relu, backend=f"{wrong},mode=nan", healthy="ort")


# rewrites


REWRITE = """
import sys
import onnx

def rewrite(model):
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Abs"

def rename(model):
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            if name == "y":
                node.output[i] = "z"
    model.graph.output[0].name = "z"
    return model

def refuse(model):
    raise ValueError(f"no rule for {model.graph.node[0].output[0]}")

def spoil(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
    return model

if __name__ == "__main__":
    model = onnx.load(sys.argv[1])
    rewrite(model)
    onnx.save(model, sys.argv[2])
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    (tmp_path / "tool.py").write_text(REWRITE)
    return tmp_path / "tool.py"


def test_rewrites_compares_before_and_after(relu: Candidate, tool: Path) -> None:
    command = f"{sys.executable} {tool} {{model}} {{output}}"
    verdicts = [ask("rewrites", relu, tool=name) for name in (f"{tool}:rewrite", command)]
    for verdict in verdicts:
        assert verdict.signature == "other results"
        assert verdict.detail == "max abs 2.1 at y[2] (expected 0, actual 2.1)"
    harmless = ask("rewrites", relu, tool=f"{tool}:rename")
    assert harmless.outcome is Outcome.BORING
    assert harmless.detail.startswith("the model before and after agree within")


def test_rewrites_takes_a_wrong_shape_for_wrong_values(tmp_path: Path) -> None:
    """The same wrong Reshape, before an operator along an axis and without it."""
    (tmp_path / "tool.py").write_text(
        "import onnx\n"
        "def swap(model):\n"
        "    dims = model.graph.initializer[0]\n"
        "    dims.CopyFrom(onnx.numpy_helper.from_array("
        "onnx.numpy_helper.to_array(dims)[::-1].copy(), dims.name))\n"
    )
    x = np.arange(6, dtype=np.float32)
    head = "(float[6] x) => (float[?,?] y) <int64[2] s = {2,3}, int64[1] f = {6}>"
    short = Candidate(tmp_path / "short.onnx", f"{head} {{ y = Reshape(x, s) }}", x=x)
    text = f"{head} {{ a = Reshape(x, s) b = Softmax(a) y = Reshape(b, f) }}".replace("?,?", "?")
    long = Candidate(tmp_path / "long.onnx", text, x=x)
    tool = f"{tmp_path / 'tool.py'}:swap"
    found = [ask("rewrites", case, tool=tool) for case in (long, short)]
    assert "max abs" in found[0].detail
    assert "shape of y" in found[1].detail
    assert found[0].signature == found[1].signature
    strict = [ask("rewrites", case, tool=tool, loose=False) for case in (long, short)]
    assert strict[0].signature != strict[1].signature


def test_rewrites_suspects_what_the_tool_spoilt(tmp_path: Path, tool: Path) -> None:
    text = "(float[3] x) => (float[3] y) { a = Neg(x) b = Relu(a) y = Exp(b) }"
    case = Candidate(tmp_path / "m.onnx", text, x=np.float32([0.3, -1.7, 2.1]))
    assert oracle("rewrites").suspects(case, tool=f"{tool}:rewrite") == ["b"]


def test_rewrites_holds_how_the_tool_fails(relu: Candidate, tool: Path) -> None:
    verdict = ask("rewrites", relu, tool=f"{tool}:refuse")
    assert verdict.signature == "tool: ValueError rule"
    spoilt = ask("rewrites", relu, tool=f"{tool}:spoil")
    assert spoilt.signature is not None
    assert spoilt.signature.startswith("rewritten fails: ")
    status = ask("rewrites", relu, tool="false {model} {output}")
    assert status.detail == "the tool fails: status 1: nothing said"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("onnxsim", "write a command with {model} and {output}"),
        ("no_such_module:f", "cannot import no_such_module"),
        ("onnx:no_such_function", "onnx has no function no_such_function"),
        ("nowhere.py:f", "no file nowhere.py"),
        ("/no/such/program {model} {output}", "cannot run /no/such/program"),
    ],
)
def test_rewrites_names_a_bad_tool(relu: Candidate, name: str, said: str) -> None:
    from onnxreduce.errors import UsageError

    with pytest.raises(UsageError, match=said):
        ask("rewrites", relu, tool=name)


def test_every_oracle_has_a_line_and_versions() -> None:
    for name in ("differs", "fails", "crashes", "nondeterministic", "nan", "rewrites"):
        module = oracle(name)
        assert module.interesting.__doc__
        assert "onnxruntime" in module.identity()
        assert "onnx 1." in module.identity(expected="reference", backend="reference")
        module.teardown()
    for name in ("slower", "webgpu_vs_wasm"):
        assert oracle(name).interesting.__doc__
