"""Reductions in a browser that is killed all the time end as those in one that is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxreduce.backends.web import browser as browsers

pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(browsers.find() is None, reason="no Chromium, Chrome or Edge is installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
ROOT = Path(__file__).parents[1]

NET = """<ir_version: 8, opset_import: ["" : 13]>
net (float[1,2,n,n] x) => (float[1,2,a,b] y) {
  a1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1]>(x, w)
  a2 = Relu(a1)
  a3 = Add(a2, x)
  d1 = Conv<kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2], dilations=[1,1]>(a3, w)
  d2 = Tanh(d1)
  y = Add(d2, d1)
}"""

ORACLE = '''
"""Does a GPU disagree with wasm? Whenever its turn comes, a job's browser is sabotaged."""

import contextlib
import os
import threading

import numpy as np
import psutil

from onnxreduce.backends import BackendError, close_backends, warm_backend
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web.channel import Channel

EVERY, LOG = int(os.environ["SABOTAGE_EVERY"]), os.environ["SABOTAGE_LOG"]
TRAP = """() => {
    const bytes = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0,
        0, 10, 5, 1, 3, 0, 0, 11];
    const { f } = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes))).exports;
    setTimeout(f);
}"""
jobs = 0
plain = Channel.send


def kill(kind):
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if f"--type={kind}" in process.cmdline():
                process.kill()


def evaluate(channel, script):
    """In the worker that has the job."""
    def work():
        with contextlib.suppress(Exception):
            for browser in list(browsers._shared.values()):
                for page in browser._running._context.pages:
                    for worker in page.workers:
                        browsers._call(worker.evaluate(script), 1)
    threading.Thread(target=work, daemon=True).start()


FAULTS = {
    "gpu": lambda channel: kill("gpu-process"),
    "renderer": lambda channel: kill("renderer"),
    "abort": lambda channel: evaluate(channel, TRAP),
    "hang": lambda channel: evaluate(channel, "() => { for (;;); }"),
}


def send(channel, order):
    global jobs
    plain(channel, order)
    if order["op"] == "run":
        jobs += 1
        with open(LOG, "a+") as log:  # counts on over processes
            log.seek(0)
            done = log.read().split()
            if EVERY and jobs % EVERY == 0:
                fault = list(FAULTS)[len(done) % len(FAULTS)]
                log.write(fault + "\\n")
                log.flush()
                FAULTS[fault](channel)


Channel.send = send


def interesting(case, *, provider="webgl"):
    try:
        wasm, gpu = (
            warm_backend(f"web@1.23.2:{name},timeout=10").run(str(case.model_path), case.inputs)
            for name in ("wasm", provider)
        )
    except BackendError:
        return False
    return any(not np.allclose(gpu[name], wasm[name], atol=1e-3) for name in wasm)


teardown = close_backends
'''


def reduce(folder: Path, provider: str, every: int, name: str) -> bytes:
    """The model that a reduction ends with."""
    command = [sys.executable, "-m", "onnxreduce", folder / "net.onnx", "--quiet", "--timeout=200"]
    command += ["--oracle", folder / "oracle.py", "--set", f"provider={provider}"]
    command += ["--inputs", folder / "inputs.npz", "--output", folder / name]
    environment = {"SABOTAGE_EVERY": str(every), "SABOTAGE_LOG": str(folder / f"{name}.log")}
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **environment})
    return (folder / name / "model.onnx").read_bytes()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("provider", ["webgpu", pytest.param("webgl", marks=pytest.mark.slow)])
def test_sabotage_changes_nothing(tmp_path: Path, provider: str) -> None:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(NET)
    weight = random.normal(0, 0.5, (2, 2, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "inputs.npz", x=random.normal(size=(1, 2, 8, 8)).astype(np.float32))
    (tmp_path / "oracle.py").write_text(ORACLE)
    left_alone = reduce(tmp_path, provider, 0, "quiet")
    sabotaged = reduce(tmp_path, provider, 4, "sabotaged")
    faults = Counter((tmp_path / "sabotaged.log").read_text().split())
    assert faults.total() >= 20
    assert len(faults) == 4
    assert sabotaged == left_alone
    (node,) = onnx.load_from_string(sabotaged).graph.node
    assert node.op_type == "Conv"
