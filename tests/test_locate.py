"""`locate`: planted bugs are named first, also those that hide while one looks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import Builder, value
from pages import HOSTILE, Tags, assert_safe

from onnxreduce.backends import Backend, open_backend
from onnxreduce.cli import main
from onnxreduce.compare import Tolerance
from onnxreduce.emit.locate_page import location_page
from onnxreduce.emit.location import words
from onnxreduce.errors import UsageError
from onnxreduce.locate import Location, locate

PLANTED = '''
import numpy as np, onnx
from onnx import helper, numpy_helper
import onnxruntime as ort

def run(model_path, inputs, wrong="", fused="", kind="scale", log=""):
    """Spoils what `wrong` makes; or what `fused` makes, unless what it reads is shown."""
    if log:
        open(log, "a").write("run\\\\n")
    model = onnx.load(model_path)
    graph = model.graph
    shown = {output.name for output in graph.output}
    made = {name for node in graph.node for name in node.output}
    for place, node in enumerate(graph.node):
        inside = [name for name in node.input if name in made]
        hides = fused in node.output and inside and not shown.intersection(inside)
        if wrong in node.output or (fused and hides):
            spoil(graph, place, node, kind)
            break
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs))))

def spoil(graph, place, node, kind):
    name = node.output[0]
    node.output[0] = "spoilt"
    by = np.float32({"scale": 1.5, "nan": np.nan}[kind])
    graph.initializer.append(numpy_helper.from_array(by, "spoil_by"))
    graph.node.insert(place + 1, helper.make_node("Mul", ["spoilt", "spoil_by"], [name]))

def version():
    return "planted 1"
'''.replace("\\\\n", "\\n")


def resnet(blocks: int = 6, seed: int = 0) -> onnx.ModelProto:
    """Convolutions with batch normalisation and skip connections."""
    b = Builder(seed)

    def conv(x: str, into: int, out: int, relu: bool = True) -> str:
        y = b.op("Conv", x, b.normal(out, into, 3, 3), pads=[1, 1, 1, 1])
        ones, zeros = np.ones(out, np.float32), np.zeros(out, np.float32)
        args = [b.weight(a) for a in (ones, zeros, zeros, ones)]
        y = b.op("BatchNormalization", y, *args)
        return b.op("Relu", y) if relu else y

    x = conv("x", 3, 8)
    for _ in range(blocks):
        y = conv(conv(x, 8, 8), 8, 8, relu=False)
        x = b.op("Relu", b.op("Add", x, y))
    out = b.op("Flatten", b.op("GlobalAveragePool", x))
    out = b.op("MatMul", out, b.normal(8, 4))
    return b.model([value("x", [1, 3, 12, 12])], [value(out, [1, 4])])


def densenet(layers: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Every layer reads all before it."""
    b = Builder(seed)
    x, channels = "x", 3
    for _ in range(layers):
        y = b.op("Relu", x)
        y = b.op("Conv", y, b.normal(4, channels, 3, 3), pads=[1, 1, 1, 1])
        x = b.op("Concat", x, y, axis=1)
        channels += 4
    out = b.op("GlobalAveragePool", x)
    return b.model([value("x", [1, 3, 10, 10])], [value(out, [1, channels, 1, 1])])


NETS = {"resnet": resnet, "densenet": densenet}


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    return path


@pytest.fixture
def right() -> Iterator[Backend]:
    backend = open_backend("ort:opt=disable_all")
    yield backend
    backend.close()


def places(model: onnx.ModelProto, kind: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def run_locate(
    model: onnx.ModelProto, right: Backend, plugin: Path, room: int | None = None, **options: str
) -> Location:
    spec = f"plugin:{plugin}," + ",".join(f"{key}={text}" for key, text in options.items())
    wrong = open_backend(spec)
    return locate(model, right, wrong, tolerance=Tolerance(1e-4, 1e-3), room=room)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_wrong_operator_is_named_in_two_runs(
    net: str, share: float, right: Backend, plugin: Path
) -> None:
    model = NETS[net]()
    convs = places(model, "Conv")
    node = convs[int(share * len(convs))]
    found = run_locate(model, right, plugin, wrong=node.output[0])
    assert found.how == "values"
    assert found.first is not None
    assert found.first.name == node.output[0]
    assert found.born == (node.output[0],)
    assert found.runs == (1, 1)
    assert not found.vanishes
    names = [v.name for v in found.values]
    passed = {v.name for v in found.passed_on}
    assert passed
    assert all(names.index(name) > names.index(node.output[0]) for name in passed)


def test_two_wrong_operators_are_both_born(right: Backend, tmp_path: Path) -> None:
    """Side by side, so that neither passes on the other's error."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
          a = Abs(x) b = Exp(a) c = Tanh(a) d = Add(b, c) y = Neg(d) }"""
    )
    (tmp_path / "two.py").write_text(
        "import numpy as np\n"
        "def run(model_path, inputs):\n"
        "    a = np.abs(inputs['x']); b = np.exp(a) + 1; c = np.tanh(a) - 2\n"
        "    return {'a': a, 'b': b, 'c': c, 'd': b + c, 'y': -b - c}\n"
    )
    found = locate(model, right, open_backend(f"plugin:{tmp_path / 'two.py'}"))
    assert found.born == ("b", "c")
    assert [v.name for v in found.passed_on] == ["d", "y"]


@pytest.mark.parametrize(
    ("net", "kind", "number"),
    [("resnet", "Relu", 0), ("resnet", "Relu", 5), ("resnet", "Add", 3), ("densenet", "Conv", 4)],
)
def test_a_bug_that_vanishes_when_looked_at_is_found_by_cuts(
    net: str, kind: str, number: int, right: Backend, plugin: Path
) -> None:
    model = NETS[net]()
    node = places(model, kind)[number]
    makers = {name: n.output[0] for n in model.graph.node for name in n.output}
    before = [makers[name] for name in node.input if name in makers]
    found = run_locate(model, right, plugin, fused=node.output[0])
    assert found.how == "cuts"
    assert found.vanishes
    assert "vanishes when every value is shown" in location_page(found, "model.onnx")
    assert any("agree when every intermediate value is shown" in note for note in found.notes)
    assert found.born == (node.output[0],)
    assert set(found.region) <= {*before, node.output[0]}
    assert len(found.region) >= 2
    assert max(found.runs) <= 4 + 2 * len(model.graph.node).bit_length() + 2
    assert "goes wrong together with" in words(found)


def test_a_real_wrong_fusion_is_found_in_the_rewritten_model(right: Backend) -> None:
    """ONNX Runtime turns 1 / p * y into y / p, which is another number for integers."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (int32[3] x, int32[3] y) => (int32[3] z)
        <int32 o = {1}> { p = Abs(x) r = Div(o, p) q = Mul(r, y) z = Neg(q) }"""
    )
    inputs = {"x": np.array([2, 3, 1], np.int32), "y": np.array([4, 9, 5], np.int32)}
    found = locate(model, right, open_backend("ort"), inputs=inputs)
    assert found.how == "rewritten"
    assert found.born == ("q",)
    assert found.region == ("r", "q")


@pytest.mark.parametrize("net", NETS)
def test_a_model_too_large_for_all_values_is_narrowed_first(
    net: str, right: Backend, plugin: Path
) -> None:
    model = NETS[net]()
    node = places(model, "Conv")[4]
    found = run_locate(model, right, plugin, room=1000, wrong=node.output[0])
    assert found.born == (node.output[0],)
    assert found.how == "values"
    assert found.runs == (3, 3)
    assert any("more than there is room for" in note for note in found.notes)
    assert sum(v.state == "hidden" for v in found.values) > len(found.values) / 3


def test_a_backend_that_shows_nothing_is_cut(right: Backend, plugin: Path, tmp_path: Path) -> None:
    model = resnet()
    node = places(model, "Conv")[7]
    (tmp_path / "shy.py").write_text(
        PLANTED.replace(
            "    graph = model.graph\n",
            "    graph = model.graph\n"
            "    if len(graph.output) > 3: raise RuntimeError('too many outputs')\n",
        )
    )
    found = run_locate(model, right, tmp_path / "shy.py", wrong=node.output[0])
    assert found.how == "cuts"
    assert found.region == (node.output[0],)
    assert any("too many outputs" in note for note in found.notes)


def test_nan_is_told(right: Backend, plugin: Path) -> None:
    model = resnet(2)
    node = places(model, "Conv")[2]
    found = run_locate(model, right, plugin, wrong=node.output[0], kind="nan")
    assert found.born == (node.output[0],)
    assert found.first is not None
    assert found.first.actual.nan == 8 * 12 * 12
    assert found.first.expected.nan == 0
    assert "1152 NaN" in words(found)


def test_sides_that_agree(right: Backend) -> None:
    found = locate(resnet(1), right, right)
    assert found.how == "nowhere"
    assert found.first is None
    assert "agree" in words(found)
    assert "The two sides agree" in location_page(found, "model.onnx")


def test_an_error_that_does_not_reach_the_outputs_is_told(tmp_path: Path, right: Backend) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        <float[2] z = {0, 0}> { a = Abs(x) b = Exp(a) y = Mul(b, z) }"""
    )
    (tmp_path / "masked.py").write_text(
        "import numpy as np\n"
        "def run(model_path, inputs):\n"
        "    a = np.abs(inputs['x'])\n"
        "    return {'a': a, 'b': np.exp(a) + 1, 'y': a * 0}\n"
    )
    found = locate(model, right, open_backend(f"plugin:{tmp_path / 'masked.py'}"))
    assert found.born == ("b",)
    assert any("does not reach them" in note for note in found.notes)


def test_a_side_that_fails_is_an_error_with_advice(right: Backend, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def run(model_path, inputs):\n    raise ValueError('no')\n")
    bad = open_backend(f"plugin:{tmp_path / 'bad.py'}")
    with pytest.raises(UsageError, match=r"fails on the model .*--oracle fails --set backend="):
        locate(resnet(1), right, bad)
    with pytest.raises(UsageError, match="cannot tell what is right"):
        locate(resnet(1), bad, right)


# the command line


def command(model: Path, plugin: Path, *more: str, **options: str) -> list[str]:
    spec = f"plugin:{plugin}," + ",".join(f"{key}={text}" for key, text in options.items())
    return ["locate", str(model), "--expected", "ort:opt=disable_all", "--actual", spec, *more]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(resnet(), tmp_path / "resnet.onnx")
    return tmp_path / "resnet.onnx"


def test_command_prints_a_table_and_writes_a_page(
    saved: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = places(onnx.load(saved), "Conv")[3]
    log = saved.parent / "log"
    assert main(command(saved, plugin, wrong=node.output[0], log=str(log))) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"the first diverging node: Conv '{node.name}'")
    assert re.search(rf"^>> +\d+ +{node.output[0]} +Conv +1x8x12x12 ", out, re.MULTILINE)
    assert "passed on by" in out
    assert "run 1" in err
    assert log.read_text().count("run") == 1
    assert "Conv" in Path("locate.html").read_text()


def test_command_prints_json(saved: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = places(onnx.load(saved), "Conv")[3]
    assert main(command(saved, plugin, "--json", "--quiet", wrong=node.output[0])) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert found["first"] == node.output[0]
    assert found["born"] == [node.output[0]]
    assert found["runs"] == {"expected": 1, "actual": 1}
    entry = next(v for v in found["values"] if v["name"] == node.output[0])
    assert entry["state"] == "born"
    assert entry["max_abs"] > 0.1
    assert entry["shape"] == [1, 8, 12, 12]
    assert len(found["values"]) == len(onnx.load(saved).graph.node)


def test_command_exits_with_1_where_both_agree(
    saved: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(saved, plugin, "--quiet", wrong="nothing")) == 1
    assert "agree within atol=0.001" in capsys.readouterr().out


def test_command_replaces_its_own_page_only(
    saved: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(saved, plugin, "--quiet", "--output", "here", wrong="relu_2")
    assert main(arguments) == 0
    assert main(arguments) == 0
    Path("here/locate.html").write_text("my notes")
    assert main(arguments) == 2
    assert "choose another --output" in capsys.readouterr().err
    assert Path("here/locate.html").read_text() == "my notes"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--expected", "ort"], "--actual"),
        (["--expected", "ort", "--actual", "nosuch"], "no backend 'nosuch'"),
        (["--expected", "ort", "--actual", "ort", "--atol", "-1"], "at least 0"),
        (["--expected", "ort", "--actual", "ort", "--inputs", "none.npz"], "none.npz"),
    ],
)
def test_bad_usage(
    arguments: list[str], said: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: Any = main(["locate", str(saved), *arguments])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert said in capsys.readouterr().err


# the page


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_safe_and_readable(hostile: str, right: Backend, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,6,6] x) => (float[1,1,6,6] y) {
          a = Abs(x) b = Exp(a) y = Neg(b) }"""
    )
    names = {name: f"{name}{hostile}" for name in "abxy"}
    for node in model.graph.node:
        node.input[0], node.output[0] = names[node.input[0]], names[node.output[0]]
        node.name = hostile + node.op_type
    model.graph.input[0].name, model.graph.output[0].name = names["x"], names["y"]
    (tmp_path / "off.py").write_text(
        "import numpy as np\n"
        "def run(model_path, inputs):\n"
        "    (name, x), = inputs.items(); a = np.abs(x); b = np.exp(a) + 1; tail = name[1:]\n"
        "    return {'a' + tail: a, 'b' + tail: b, 'y' + tail: -b}\n"
    )
    found = locate(model, right, open_backend(f"plugin:{tmp_path / 'off.py'}"))
    assert found.born == (names["b"],)
    page = location_page(found, hostile)
    assert_safe(page)
    assert len(page) < 200_000
    assert all(len(line) < 300 and line.isprintable() for line in words(found).splitlines())


def test_page_shows_graph_chart_and_pictures(right: Backend, plugin: Path) -> None:
    model = resnet()
    node = places(model, "Conv")[3]
    found = run_locate(model, right, plugin, wrong=node.output[0])
    page = location_page(found, "resnet.onnx")
    assert_safe(page)
    tags = Tags(page).found
    pictures = [a["alt"] for tag, a in tags if tag == "img"]
    assert pictures[:3] == [f"{s} as a heat map" for s in ("expected", "actual", "difference")]
    dots = [a for tag, a in tags if tag == "path" and "dot" in (a.get("class") or "")]
    assert len(dots) == len(model.graph.node)
    assert page.count('class="dot born"') == 1
    assert "prefers-color-scheme: dark" in page
