"""Suspects: each source names the place of a planted or a real bug, as far as it can see it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxreduce.backends import BackendError, Value, warm_backend
from onnxreduce.compare import Tolerance
from onnxreduce.graph import Index
from onnxreduce.modelio import load_model
from onnxreduce.suspects import (
    FAILURE_SOURCES,
    SOURCES,
    Scene,
    born,
    cut_points,
    every_value,
    first_not_finite,
    names_in_message,
    rarest_rewrite,
    rewritten_model,
    suspects,
)

HEADER = '<ir_version: 8, opset_import: ["": 17]> g '

FUSED = """(int32[3] x, int32[3] y) => (int32[3] z) <int32 o = {1}>
{ p = Abs(x) r = Div(o, p) q = Mul(r, y) z = Neg(q) }"""
"""ONNX Runtime turns 1 / p * y into y / p, which is another number for integers."""

DIAMOND = "(float[2] x) => (float[2] y) { a = Abs(x) b = Neg(a) c = Relu(a) y = Add(b, c) }"


def saved(text: str, folder: Path) -> str:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    return str(path)


@pytest.fixture
def fused(tmp_path: Path) -> Scene:
    inputs = {"x": np.array([2, 3, 1], np.int32), "y": np.array([4, 9, 5], np.int32)}
    sides = warm_backend("ort:opt=disable_all"), warm_backend("ort")
    return Scene(saved(FUSED, tmp_path), inputs, *sides, Tolerance(1e-3, 1e-3))


def test_where_values_stop_being_finite(tmp_path: Path) -> None:
    nodes = "a = Neg(x) b = Log(a) c = Abs(b) d = Relu(x) y = Add(c, d)"
    text = f"(float[2] x) => (float[2] y) {{ {nodes} }}"
    side = warm_backend("ort")
    scene = Scene(saved(text, tmp_path), {"x": np.ones(2, np.float32)}, side, side)
    assert first_not_finite(scene) == ["b"]
    scene = Scene(scene.model_path, {"x": -np.ones(2, np.float32)}, side, side)
    assert suspects(scene, (first_not_finite,)) == []


class Wrong:
    """A side that computes some operators wrongly, and can or cannot show its values."""

    def __init__(self, kinds: set[str], shows: bool = True) -> None:
        self.kinds = kinds
        self.shows = shows
        self._right = warm_backend("reference")

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        model = onnx.load(model_path)
        for node in model.graph.node:
            if node.op_type in self.kinds:
                node.op_type = "Sqrt"
        path = f"{model_path}.wrong"
        onnx.save(model, path)
        return self._right.run(path, inputs)

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        if not self.shows:
            raise BackendError("unsupported", "cannot show them")
        model = onnx.load(model_path)
        for node in model.graph.node:
            if node.output[0] != "y":
                model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
        path = f"{model_path}.all"
        onnx.save(model, path)
        return self.run(path, inputs)

    def run_rewritten(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        raise BackendError("unsupported", "does not rewrite")

    def rewrite(self, model_path: str, target: str) -> None:
        raise BackendError("unsupported", "does not rewrite")


def test_a_wrong_fusion_shows_in_the_rewritten_model(fused: Scene) -> None:
    assert rewritten_model(fused) == ["q", "r"]
    assert suspects(fused) == ["q", "r"]


def test_a_wrong_fusion_survives_between_cut_points(fused: Scene) -> None:
    """Both x and y are alive until q, so that p and r are no cuts."""
    assert cut_points(fused) == ["q", "r", "p"]


def test_a_wrong_fusion_vanishes_when_every_value_is_shown(fused: Scene) -> None:
    assert every_value(fused) == []


def test_the_rewritten_nodes_are_a_group(fused: Scene) -> None:
    assert rarest_rewrite(fused) == ["r", "q"]


@pytest.mark.parametrize("isolate", ["ort", "ort:isolate"])
def test_a_process_of_its_own_shows_its_rewrites_too(fused: Scene, isolate: str) -> None:
    other = Scene(fused.model_path, fused.inputs, fused.expected, warm_backend(isolate))
    assert rewritten_model(other) == ["q", "r"]


@pytest.mark.parametrize(
    ("kinds", "place"),
    [({"Neg"}, ["b"]), ({"Relu"}, ["c"]), ({"Neg", "Relu"}, ["b", "c"]), ({"Add"}, ["y"])],
)
def test_two_runtimes_show_where_it_is_born(
    kinds: set[str], place: list[str], tmp_path: Path
) -> None:
    inputs = {"x": np.float32([4, -9])}
    wrong = Wrong(kinds - {"Add"}) if "Add" not in kinds else WrongSum(set())
    scene = Scene(saved(DIAMOND, tmp_path), inputs, warm_backend("reference"), wrong)
    assert every_value(scene) == place
    assert cut_points(scene) == place


class WrongSum(Wrong):
    """Off by one at the end."""

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        outputs = super().run(model_path, inputs)
        return {**outputs, "y": np.asarray(outputs["y"]) + np.float32(1)}


def test_a_side_that_shows_nothing_is_looked_at_by_cuts(tmp_path: Path) -> None:
    wrong = Wrong({"Neg"}, shows=False)
    inputs = {"x": np.float32([4, -9])}
    scene = Scene(saved(DIAMOND, tmp_path), inputs, warm_backend("reference"), wrong)
    assert suspects(scene) == ["b"]


def test_a_message_names_the_place(tmp_path: Path) -> None:
    path = saved("(float[3] x) => (float[3] y) { a = Abs(x) b = Quux(a) y = Neg(b) }", tmp_path)
    side = warm_backend("ort")
    scene = Scene(path, {"x": np.zeros(3, np.float32)}, side, side)
    assert "b" in names_in_message(scene)
    assert suspects(scene) == suspects(scene, FAILURE_SOURCES) == names_in_message(scene)


def test_nothing_is_suspected_where_nothing_is_wrong(fused: Scene) -> None:
    same = Scene(fused.model_path, fused.inputs, fused.expected, fused.expected)
    assert suspects(same, SOURCES[:4]) == []


def test_born_passes_over_what_only_passes_the_error_on(tmp_path: Path) -> None:
    known = Index(load_model(saved(DIAMOND, tmp_path)))
    assert born(known, {"b", "y"}, {"a", "b", "c", "y"}) == ["b"]
    assert born(known, {"b", "c", "y"}, {"a", "b", "c", "y"}) == ["b", "c"]
    assert born(known, {"y"}, {"a", "y"}) == ["y"]
    assert born(known, set(), {"a", "y"}) == []
