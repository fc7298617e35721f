"""`report.html`: the story of a real reduction, complete, safe, and readable at any width."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from models import Builder, parallel_branches, value
from pages import HOSTILE, Tags, assert_safe

from onnxreduce import Verdict, reduce
from onnxreduce.backends.web import browser
from onnxreduce.case import Case
from onnxreduce.emit import report as report_module
from onnxreduce.emit.charts import LogScale, histogram
from onnxreduce.emit.heat import image_axes, numbers, pair, png, shades
from onnxreduce.emit.layered import place
from onnxreduce.emit.report import report
from onnxreduce.emit.way import Way, read_way
from onnxreduce.lineage import mark, mark_again, survivors
from onnxreduce.result import Result
from onnxreduce.scrub import Scrubbed


def both(case: object) -> Verdict:
    kinds = {node.op_type for node in case.model.graph.node}  # type: ignore[attr-defined]
    if {"Relu", "Tanh"} <= kinds:
        return Verdict.interesting("Relu <meets> Tanh", "both")
    return Verdict.boring("one is gone")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return reduce(parallel_branches(), both, output=tmp_path_factory.mktemp("reduced") / "out")


@pytest.fixture(scope="module")
def way(result: Result) -> Way:
    assert result.directory is not None
    return read_way(result.directory / "journal.jsonl")


def test_report_tells_the_whole_story(result: Result, way: Way) -> None:
    page = report(result, way)
    assert_safe(page)
    text = re.sub(r"<[^>]+>", " ", page)
    assert "7 nodes" in text
    assert "2 nodes" in text
    assert "Relu &lt;meets&gt; Tanh" in text
    assert "1-minimal" in text
    assert "confirmed in a fresh process" in text
    for title in ("What is left", "Its tensors", "The original", "The way down", "Every accepted"):
        assert title in text
    assert f"{result.oracle_calls:,} calls" in text
    assert f"onnx {onnx.__version__}" in text
    assert "prefers-color-scheme: dark" in page


def test_every_accepted_step_is_in_the_table_and_the_chart(result: Result, way: Way) -> None:
    page = report(result, way)
    assert len(way.steps) == result.accepted > 0
    steps = page.split("Every accepted step")[1].split("</section>")[0]
    assert steps.count("<tr") == result.accepted + 1
    dots = [a for tag, a in Tags(page).found if tag == "path" and "dot" in (a.get("class") or "")]
    assert len(dots) == 2 * (result.accepted + 1)
    assert way.steps[-1].nodes == 2
    assert sum(sum(outcomes.values()) for outcomes in way.asked.values()) >= result.oracle_calls - 2


def test_survivors_are_marked_in_the_original(result: Result, way: Way) -> None:
    left = survivors(result.original.model, result.reduced.model)
    operators = {node.outputs[0].name: node.op_type for node in result.original.model.graph}
    assert sorted(operators[key] for key in left) == ["Relu", "Tanh"]
    before = report(result, way).split("<h2>The original")[1].split("</section>")[0]
    assert before.count('<g class="stay">') == 2
    assert before.count('<g class="">') == 5


def test_survivors_without_marks_are_told_by_name() -> None:
    model = ir.from_proto(parallel_branches())
    assert survivors(model, ir.from_proto(parallel_branches())).keys() == {*"arstuvy"}


def test_marks_of_a_resumed_case_outlive_renaming() -> None:
    original, read = (ir.from_proto(parallel_branches()) for _ in range(2))
    mark(original)
    mark_again(original, read)
    renamed = read.clone()
    for node in renamed.graph:
        node.outputs[0].name = f"new_{node.outputs[0].name}"
    assert survivors(original, renamed) == {name: f"new_{name}" for name in "arstuvy"}


def test_marks_reach_into_bodies_and_outlive_renaming() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[1] x) => (float[1] y) {
      y = If (c) <then_branch = t () => (float[1] a) { a = Neg(x) },
                  else_branch = e () => (float[1] b) { b = Abs(x) }> }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    mark(model)
    inner = model.graph[0].attributes["then_branch"].as_graph()[0]
    other = ir.from_proto(onnx.parser.parse_model(text)).clone()
    other.graph[0].outputs[0].name = "z"
    other.graph[0].meta.update(inner.meta)
    assert survivors(model, other) == {"y": "z"}


def test_a_scrubbed_result_tells_nothing_of_the_original(result: Result, way: Way) -> None:
    secret = "very_secret_name"
    steps = tuple(replace(step, edit=f"delete {secret}") for step in way.steps)
    model = result.original.copy_model()
    for node in model.graph:
        node.name = secret
    told = replace(
        result,
        original=Case(model, result.original.inputs),
        scrubbed=Scrubbed(("names",), ()),
    )
    page = report(told, replace(way, steps=steps))
    assert "scrubbed" in page
    assert "The way down" in page
    assert secret not in page


def test_stopped_and_unconfirmed_results_say_so(result: Result, way: Way) -> None:
    page = report(replace(result, stopped_by="max-calls", one_minimal=False, confirmed=False), way)
    assert "stopped by max-calls" in page
    assert "not yet minimal" in page
    assert "1-minimal" not in page
    doubtful = report(replace(result, confirmed=False), way)
    assert "not confirmed in a fresh process" in doubtful


def test_report_without_a_journal(result: Result, tmp_path: Path) -> None:
    report_module.emit(result, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert_safe(page)
    assert "Every accepted step" not in page


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_safe_and_readable(hostile: str, result: Result, way: Way) -> None:
    def spoilt(case: Case) -> Case:
        model = case.copy_model()
        inputs = {f"{name}{hostile}": array for name, array in case.inputs.items()}
        for entry in model.graph.inputs:
            entry.name = f"{entry.name}{hostile}"
        for node in model.graph:
            node.name = f"{hostile}{node.op_type}"
            for output in node.outputs:
                output.name = f"{output.name}{hostile}"
        return Case(model, inputs)

    told = replace(
        result,
        original=spoilt(result.original),
        reduced=spoilt(result.reduced),
        outputs={f"{name}{hostile}": array for name, array in (result.outputs or {}).items()},
        verdict=Verdict.interesting(hostile, hostile),
        notes=(hostile,),
    )
    steps = tuple(replace(step, edit=f"keep {hostile}", detail=hostile) for step in way.steps)
    page = report(told, replace(way, steps=steps))
    assert_safe(page)
    assert len(page) < 250_000
    assert "\u202e" not in page


def deep(count: int) -> onnx.ModelProto:
    b = Builder()
    x = "x"
    for number in range(count // 3):
        y = b.op("Conv", x, b.normal(4, 4, 3, 3), pads=[1, 1, 1, 1])
        z = b.op(("Relu", "Tanh", "Sigmoid")[number % 3], y)
        x = b.op("Add", x, z)
    return b.model([value("x", [1, 4, 8, 8])], [value(x, [1, 4, 8, 8])])


@pytest.fixture(scope="module")
def large(result: Result, way: Way) -> str:
    """The page of a 900-node original, of which two nodes are left."""
    model = ir.from_proto(deep(900))
    mark(model)
    small = model.clone()
    nodes = list(small.graph)
    small.graph.outputs[:] = [nodes[301].outputs[0]]
    small.graph.remove([*nodes[302:][::-1]], safe=False)
    small.graph.remove([*nodes[:300][::-1]], safe=False)
    inputs = {"x": np.ones((1, 4, 8, 8), np.float32)}
    told = replace(result, original=Case(model, inputs), reduced=Case(small, inputs))
    return report(told, way)


def test_a_large_original_is_drawn_small(large: str) -> None:
    assert_safe(large)
    assert len(large) < 600_000
    before = large.split("<h2>The original")[1].split("</section>")[0]
    assert "<svg" not in before
    assert len(re.findall(r"<i class=\"[^\"]*\" title=", before)) == 900
    assert len(re.findall(r"<i class=\"stay", before)) == 2
    assert "node 301" in before


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="no Chromium, Chrome or Edge is installed")
def test_the_page_fits_every_screen_and_asks_for_nothing_else(
    large: str, result: Result, way: Way, tmp_path: Path
) -> None:
    from playwright.sync_api import sync_playwright

    pages = {"large": large, "small": report(result, way)}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.find(), args=["--no-sandbox"])
        for name, text in pages.items():
            (tmp_path / f"{name}.html").write_text(text)
            for width in (360, 768, 1440):
                page = chromium.new_page(viewport={"width": width, "height": 800})
                said: list[str] = []
                page.on("console", lambda message, said=said: said.append(message.text))
                asked: list[str] = []
                page.on("request", lambda request, asked=asked: asked.append(request.url))
                page.goto((tmp_path / f"{name}.html").as_uri())
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (name, width)
                assert said == []
                assert len([url for url in asked if not url.startswith("data:")]) == 1
                page.close()
        chromium.close()


# the drawing


def test_logarithmic_scale() -> None:
    scale = LogScale.around([3, 900, 0, float("nan")], 0.5)
    assert (scale.low, scale.high) == (1, 1000)
    assert scale.ticks() == [1, 10, 100, 1000]
    assert [scale.share(v) for v in (0, 1, 1000, 5000, float("inf"), float("nan"))] == [
        0, 0, 1, 1, 1, 0,
    ]  # fmt: skip
    assert scale.share(100) == pytest.approx(2 / 3)


def test_layers_go_the_way_of_the_data_and_nothing_overlaps() -> None:
    vertices = list("abcdfeg")
    edges = [(a, b) for a, b in ("ab", "ac", "bd", "cd", "ad", "de", "fe", "eg", "ag")]
    placed = place(vertices, edges, dict.fromkeys(vertices, 50.0), gap=10)
    for start, end in edges:
        assert placed.layer[start] < placed.layer[end]
        assert len(placed.paths[start, end]) == placed.layer[end] - placed.layer[start] + 1
    assert placed.layer["f"] == placed.layer["e"] - 1
    for layer in range(max(placed.layer.values()) + 1):
        row = sorted(placed.x[v] for v in vertices if placed.layer[v] == layer)
        assert all(right - left >= 60 - 1e-6 for left, right in pairwise(row))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 8, 8), (2, 3)),
        ((1, 8, 8, 1), (1, 2)),
        ((5, 7), (0, 1)),
        ((9,), None),
        ((), None),
        ((1, 1, 12), None),
        ((2, 1, 100, 2), (0, 2)),
    ],
)
def test_axes_of_an_image(shape: tuple[int, ...], axes: tuple[int, int] | None) -> None:
    assert image_axes(shape) == axes


def test_png_is_what_it_says() -> None:
    import base64
    import struct
    import zlib

    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    content = base64.b64decode(png(pixels).partition(",")[2])
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (3, 2)
    length = struct.unpack(">I", content[33:37])[0]
    rows = zlib.decompress(content[41 : 41 + length])
    assert [rows[0], rows[10]] == [0, 0]
    assert rows[1:10] + rows[11:] == pixels.tobytes()


def test_what_is_not_finite_stands_out() -> None:
    colours = np.array([[0, 0, 0], [100, 100, 100]], np.float64)
    drawn = shades(np.array([[0.0, 1.0, np.nan, np.inf]]), 0.0, 1.0, colours)
    assert drawn.tolist() == [[[0, 0, 0], [100, 100, 100], [255, 0, 128], [255, 0, 128]]]


TENSORS: list[Callable[[], tuple[np.ndarray, np.ndarray]]] = [
    lambda: (np.float32(1.0).reshape(()), np.float32(2.0).reshape(())),
    lambda: (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)),
    lambda: (np.array(["<b>", "x"], object), np.array(["<i>", "x"], object)),
    lambda: (np.full((4, 100), np.nan, np.float32), np.zeros((4, 100), np.float32)),
    lambda: (np.zeros((2, 500), np.float16), np.ones((2, 500), np.float16)),
    lambda: (np.zeros((3, 500, 400), np.int8), np.ones((3, 500, 400), np.int8)),
    lambda: (np.zeros((3, 3), np.float32), np.zeros((9,), np.float64)),
    lambda: (np.array([1e300, -1e300] * 50), np.array([-1e300, 1e300] * 50)),
    lambda: (np.array([True, False]), np.array([False, False])),
]


@pytest.mark.parametrize("make", TENSORS)
@pytest.mark.filterwarnings("error")
def test_any_two_tensors_can_be_shown(
    make: Callable[[], tuple[np.ndarray, np.ndarray]],
) -> None:
    expected, actual = make()
    drawn = pair(expected, actual, None)
    assert drawn
    assert_safe(drawn)


def test_small_tensors_show_their_numbers() -> None:
    shown = numbers(np.array([[0.0, 1.5], [-2.25, 1e-9]], np.float32))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown)
    assert cells == ["0", "1.5", "-2.25", "1e-09"]
    assert histogram(np.zeros(3), np.zeros(3))
