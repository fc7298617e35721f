"""Whole reductions with a real browser on one side: by hand, by time, by a second session."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import psutil
import pytest

from onnxreduce.backends import open_backend
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web import dist

CHROMIUM = browsers.find()
pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium, Chrome or Edge is installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
ROOT = Path(__file__).parents[1]
OLD = "web@1.23.2"  # with the bug
NEW = "web@1.30.0"  # with the fix

NET = """<ir_version: 8, opset_import: ["" : 13]>
net (float[1,2,n,n] x) => (float[1,2,a,b] y) {
  a1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1]>(x, w)
  a2 = Relu(a1)
  a3 = Add(a2, x)
  a4 = Sigmoid(a3)
  d1 = Conv<kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2], dilations=[1,1]>(a4, w)
  d2 = Tanh(d1)
  d3 = Mul(d2, d1)
  y = Relu(d3)
}"""


def saved(folder: Path, text: str, **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(text)
    for name, values in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def strided(folder: Path) -> Path:
    random = np.random.default_rng(0)
    np.savez(folder / "inputs.npz", x=random.normal(size=(1, 2, 8, 8)).astype(np.float32))
    return saved(folder, NET, w=random.normal(0, 0.5, (2, 2, 3, 3)).astype(np.float32))


def command(folder: Path, name: str, *arguments: str) -> list[str]:
    line = [sys.executable, "-m", "onnxreduce", str(folder / "net.onnx"), "--timeout", "200"]
    inputs = ["--inputs", str(folder / "inputs.npz")] if (folder / "inputs.npz").is_file() else []
    return [*line, *inputs, "--output", str(folder / name), *arguments]


def reduced(folder: Path, name: str, *arguments: str) -> onnx.ModelProto:
    ran = subprocess.run(
        command(folder, name, *arguments), cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "confirmed in a fresh process" in ran.stderr
    return onnx.load(folder / name / "model.onnx")


@contextlib.contextmanager
def opened_by_hand(url: str, profile: Path) -> Iterator[None]:
    """A browser that is told nothing but where to go."""
    line = [str(CHROMIUM), "--headless", "--no-sandbox", "--no-first-run"]
    process = subprocess.Popen(
        [*line, f"--user-data-dir={profile}", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.Error):
                child.kill()
        process.wait()


@pytest.mark.timeout(400)
def test_an_agent_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    strided(tmp_path)
    trusted = ("--expected", "ort:opt=disable_all", "--actual")
    usual = reduced(tmp_path, "usual", *trusted, f"{OLD}:webgl")
    line = command(tmp_path, "by_hand", *trusted, f"{OLD}:webgl,agent,wait=60")
    reduction = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert reduction.stderr is not None
    said = reduction.stderr
    try:
        asked = (re.search(r"open (http\S+)", text) for text in said)
        url = next(found[1] for found in asked if found)
        journal = tmp_path / "by_hand" / "journal.jsonl"
        rest: list[str] = []
        with opened_by_hand(url, tmp_path / "first"):
            drain = threading.Thread(target=lambda: rest.extend(said))
            drain.start()
            while not journal.is_file() or journal.read_text().count('"asked"') < 12:
                assert reduction.poll() is None, rest
        assert reduction.poll() is None, "it ended before the browser was killed"
        before = journal.read_text().count('"asked"')
        with opened_by_hand(url, tmp_path / "second"):
            assert reduction.wait(200) == 0, rest
        drain.join()
        assert "connected: " in "".join(rest)
        assert journal.read_text().count('"asked"') > before + 10, "it was nearly over"
    finally:
        reduction.kill()
    found = onnx.load(tmp_path / "by_hand" / "model.onnx")
    assert found.SerializeToString() == usual.SerializeToString()
    assert [node.op_type for node in found.graph.node] == ["Conv"]


PLANTED = """
export * from './ort.wasm.min.mjs';
import { InferenceSession as Real, Tensor } from './ort.wasm.min.mjs';

let sessions = 0;
export const InferenceSession = {
  async create(model, options) {
    sessions += 1;
    const spoilt = sessions > 1 && new TextDecoder('latin1').decode(model).includes('Relu');
    const session = await Real.create(model, options);
    return {
      async run(feeds) {
        const outputs = await session.run(feeds);
        if (spoilt) for (const [name, { type, data, dims }] of Object.entries(outputs)) {
          outputs[name] = new Tensor(type, data.map((value) => value + 1), dims);
        }
        return outputs;
      },
      release: () => session.release(),
    };
  },
};
"""


@pytest.mark.timeout(400)
def test_a_second_session_that_is_wrong(tmp_path: Path) -> None:
    """Planted in a bundle of the real runtime: a worker's first session is right, others wrong."""
    bundles = tmp_path / "dist"
    bundles.mkdir()
    for path in dist.fetch("1.30.0").iterdir():
        if path.name.startswith(("ort.wasm.min", "ort-wasm-simd-threaded.")):
            (bundles / path.name).symlink_to(path)
    (bundles / "ort.planted.min.mjs").write_text(PLANTED)
    strided(tmp_path)
    side = f"web:wasm,dist={bundles},bundle=planted,fresh"
    backend = open_backend(f"{side},sessions=2")
    other = open_backend(side)
    x = {"x": np.load(tmp_path / "inputs.npz")["x"]}
    for _ in range(2):
        first, second = (b.run(str(tmp_path / "net.onnx"), x)["y"] for b in (other, backend))
        assert np.allclose(second, first + 1)
    backend.close()
    other.close()
    sides = ("--expected", side, "--actual", f"{side},sessions=2")
    (node,) = reduced(tmp_path, "out", *sides).graph.node
    assert node.op_type == "Relu"


UPSCALE = """<ir_version: 8, opset_import: ["" : 13]>
upscale (float[1,8,24,24] x) => (float[1,4,a,b] y) {
  h = Conv<kernel_shape=[1,1], pads=[0,0,0,0], strides=[1,1], dilations=[1,1], group=1>(x, w)
  r = Relu(h)
  s = Add(r, h)
  y = ConvTranspose<strides=[8,8], kernel_shape=[16,16], pads=[4,4,4,4], dilations=[1,1],
                    group=1>(s, k)
}"""


@pytest.mark.timeout(600)
def test_a_strided_transposed_convolution_is_slower_on_wasm(tmp_path: Path) -> None:
    """Three times slower than the native runtime, with one thread each; in the result too."""
    random = np.random.default_rng(0)
    weights = {"w": (32, 8, 1, 1), "k": (32, 4, 16, 16)}
    saved(tmp_path, UPSCALE, **{
        name: random.normal(0, 0.2, shape).astype(np.float32) for name, shape in weights.items()
    })  # fmt: skip
    settings = {"slow": f"{NEW}:wasm", "fast": "ort:threads=1", "ratio": "1.4"}
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    (node,) = reduced(tmp_path, "out", "--oracle", "slower", *pairs).graph.node
    assert node.op_type == "ConvTranspose"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = re.search(r"([\d.]+) times", summary["verdict"]["detail"])
    assert found is not None
    assert float(found[1]) > 1.4
    strides = next(
        onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == "strides"
    )
    assert max(strides) > 1
