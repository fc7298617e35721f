"""ONNX Runtime Web in a real browser: right and wrong results, faults, and who may ask."""

from __future__ import annotations

import contextlib
import http.client
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import psutil
import pytest

from onnxreduce.backends import BackendError, Unreliable, open_backend
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web.backend import WebBackend

CHROMIUM = browsers.find()
pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium, Chrome or Edge is installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
OLD = "web@1.23.2"  # with the bug
NEW = "web@1.30.0"  # with the fix

CONV = """<ir_version: 8, opset_import: ["" : 13]>
strided (float[1,1,n,n] x, float[1,1,3,3] w) => (float[1,1,m,m] y) {
  y = Conv<auto_pad="SAME_UPPER", strides=[2,2], dilations=[1,1]>(x, w)
}"""
ENDLESS = """<ir_version: 8, opset_import: ["" : 13]>
endless (float[1] x, int64 n, bool go) => (float[1] y) {
  y = Loop(n, go, x) <body = once (int64 i, bool before, float[1] a) => (bool after, float[1] b) {
    after = Identity(before)
    b = Add(a, a)
  }>
}"""
HUGE = """<ir_version: 8, opset_import: ["" : 13]>
huge (int64[1] n) => (float[m] y) { z = ConstantOfShape(n)  y = Add(z, z) }"""
REFUSED = """<ir_version: 8, opset_import: ["" : 13, "nowhere" : 1]>
refused (float[1] x) => (float[1] y) { y = nowhere.Nothing(x) }"""

random = np.random.default_rng(3)
INPUTS = {
    "x": random.normal(size=(1, 1, 8, 8)).astype(np.float32),
    "w": random.normal(size=(1, 1, 3, 3)).astype(np.float32),
}
ENDLESS_INPUTS = {"x": np.ones(1, np.float32), "n": np.int64(1 << 60), "go": np.bool_(True)}


def written(folder: Path, text: str) -> str:
    model = onnx.parser.parse_model(text)
    path = folder / f"{model.graph.name}.onnx"
    onnx.save(model, path)
    return str(path)


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("conv"), CONV)


@pytest.fixture(scope="module")
def right(conv: str) -> np.ndarray:
    backend = open_backend("ort:opt=disable_all")
    return backend.run(conv, INPUTS)["y"]


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], WebBackend]]:
    """Backends by spec, kept warm over the tests of this file; they share one browser."""
    warm: dict[str, WebBackend] = {}

    def get(spec: str) -> WebBackend:
        if spec not in warm:
            warm[spec] = open_backend(spec)
        return warm[spec]

    yield get
    for backend in warm.values():
        backend.close()


@pytest.fixture
def webnn() -> str:
    """The browser with WebNN, from npm."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the package carries a program for Linux on x86-64")
    return "browser=sparticuz"


def error(found: object, right: np.ndarray) -> float:
    return float(np.abs(np.asarray(found) - right).max())


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (f"{OLD}:wasm", False),
        (f"{OLD}:webgpu", True),
        (f"{OLD}:webgl", True),
        (f"{OLD}:webgpu,main", True),
        (f"{NEW}:wasm", False),
        (f"{NEW}:webgpu", False),
        (f"{NEW}:webgl", False),
        (f"{NEW}:webgpu,bundle=webgpu", False),
    ],
)
def test_strided_same_upper_conv(opened, conv, right, spec, wrong):
    found = opened(spec).run(conv, INPUTS)["y"]
    assert found.shape == right.shape
    assert (error(found, right) > 1) == wrong


@pytest.mark.slow
def test_webnn_is_offered_only_where_it_makes_a_context(webnn, tmp_path, conv, right):
    """Most builds have `navigator.ml` and fail to make a context; the one from npm does."""
    backend = open_backend(f"{OLD}:webnn-cpu,{webnn}")
    found = backend.run(conv, INPUTS)["y"]
    assert 0 < error(found, right) < 1e-5, "to the last bit: it ran on wasm"
    assert "context" in backend.describe()
    backend.close()
    infos = {info.spec: info for info in WebBackend.probe()}
    assert infos["web:wasm"].usable
    plain = infos["web:webnn-cpu"]
    assert plain.usable or f"web:webnn-cpu,{webnn}" in plain.fix
    assert plain.usable or infos[f"web:webnn-cpu,{webnn}"].usable


@pytest.mark.slow
def test_unet_agrees_on_webnn(webnn, tmp_path):
    """The command says so, with figures."""
    builder = Path(__file__).parents[1] / "examples" / "webgpu_unet" / "make_model.py"
    subprocess.run([sys.executable, builder, tmp_path], check=True)
    sides = [f"{OLD}:{provider},{webnn}" for provider in ("wasm", "webnn-cpu")]
    command = [sys.executable, "-m", "onnxreduce", tmp_path / "unet.onnx", "--quiet"]
    command += ["--expected", sides[0], "--actual", sides[1], "--output", tmp_path / "out"]
    ran = subprocess.run(command, cwd=builder.parents[2], capture_output=True, text=True)
    assert ran.returncode == 1
    assert re.search(r"agree within .*: max abs [1-9.]+e-0[5-8] at mask\[", ran.stderr)


def test_version_names_runtime_bundle_and_browser(opened, conv):
    backend = opened(f"{OLD}:webgpu")
    assert "onnxruntime-web 1.23.2 ort.all.min.mjs" in backend.version()
    assert "Chrome/" in backend.version()
    assert "swiftshader" in backend.describe() or "(" in backend.describe()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("float16", np.array([1.5, -0.0, 65504, np.inf], np.float16)),
        ("double", np.array([0.1, -1e300])),
        ("int64", np.array([-(2**63), 2**53 + 1, 7])),
        ("uint64", np.array([2**64 - 1], np.uint64)),
        ("int8", np.array([-128, 127], np.int8)),
        ("uint8", np.array([[0, 255]], np.uint8)),
        ("bool", np.array([True, False, True])),
        ("string", np.array(["", "ä", "two words"], object)),
        ("float", np.zeros((0, 3), np.float32)),
        ("float", np.float32(2.5)),
    ],
)
def test_tensors_arrive_bit_for_bit(opened, tmp_path, kind, values):
    dims = ",".join(map(str, np.shape(values)))
    typed = f"{kind}[{dims}]"
    header = '<ir_version: 8, opset_import: ["" : 16]>'
    model = written(tmp_path, f"{header} g ({typed} x) => ({typed} y) {{ y = Identity(x) }}")
    found = opened(f"{NEW}:wasm").run(model, {"x": values})["y"]
    expected = np.asarray(values)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


def test_bfloat16_is_unsupported(opened, tmp_path):
    header = '<ir_version: 8, opset_import: ["" : 16]>'
    model = written(
        tmp_path, f"{header} g (bfloat16[1] x) => (bfloat16[1] y) {{ y = Identity(x) }}"
    )
    with pytest.raises(BackendError, match="bfloat16") as caught:
        opened(f"{NEW}:wasm").run(model, {"x": np.ones(1, ml_dtypes.bfloat16)})
    assert caught.value.kind == "unsupported"


def test_external_data(opened, tmp_path):
    weight = np.arange(4096, dtype=np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 16]> g (float[4096] x) => (float[4096] y)'
        " { y = Add(x, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "big.onnx"
    onnx.save(model, path, save_as_external_data=True, location="my weights.bin")
    found = opened(f"{NEW}:wasm").run(str(path), {"x": weight})["y"]
    assert found.tolist() == (2 * weight).tolist()


def test_every_value(opened, tmp_path):
    header = '<ir_version: 8, opset_import: ["" : 13]>'
    body = "{ a = Relu(x)  b = Neg(a)  y = Exp(b) }"
    model = written(tmp_path, f"{header} g (float[n] x) => (float[n] y) {body}")
    x = np.array([-1, 2], np.float32)
    for provider in ("wasm", "webgl"):
        found = opened(f"{OLD}:{provider}").run_all(model, {"x": x})
        assert sorted(found) == ["a", "b", "y"]
        assert found["b"].tolist() == [0, -2]


def test_refusals_have_a_kind(opened, tmp_path, conv):
    wasm = opened(f"{NEW}:wasm")
    with pytest.raises(BackendError, match="nowhere") as caught:
        wasm.run(written(tmp_path, REFUSED), {"x": np.ones(1, np.float32)})
    assert caught.value.kind == "load"
    with pytest.raises(BackendError) as caught:
        wasm.run(conv, {"x": INPUTS["x"]})
    assert caught.value.kind == "run"
    (tmp_path / "torn.onnx").write_bytes(b"\x08\x07nonsense")
    with pytest.raises(BackendError) as caught:
        wasm.run(str(tmp_path / "torn.onnx"), {})
    assert caught.value.kind == "load"


def test_a_bundle_without_the_provider(opened, conv):
    with pytest.raises(BackendError, match="backend") as caught:
        opened(f"{NEW}:webgl,bundle=ort.wasm").run(conv, INPUTS)
    assert caught.value.kind == "unsupported"


def test_timing_counts_the_run_alone(opened, tmp_path):
    header = '<ir_version: 8, opset_import: ["" : 13]>'
    text = f"{header} g (float[n,n] x) => (float[n,n] y) {{ y = MatMul(x, x) }}"
    model, backend = written(tmp_path, text), opened(f"{NEW}:wasm")
    small, large = (
        backend.run_timed(model, {"x": np.ones((n, n), np.float32)}, repeats=3) for n in (8, 512)
    )
    assert len(small) == len(large) == 3
    assert min(large) > min(small)  # 250,000 times as many products


def test_sessions_runs_and_fresh(opened, conv, right):
    backend = opened(f"{NEW}:wasm,sessions=2,runs=3,opt=disable_all,threads=2")
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5
    assert error(backend.run(conv, INPUTS, fresh=True)["y"], right) < 1e-5


# Faults. Whatever dies, the case that ran is asked again and the next one is unaffected.


def kill(kind: str) -> int:
    """Kill the browser's processes of one kind; how many there were."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if f"--type={kind}" in process.cmdline():
                process.kill()
                killed += 1
    return killed


@pytest.mark.parametrize(
    "spec", [f"{OLD}:webgpu", pytest.param(f"{NEW}:webgl", marks=pytest.mark.slow)]
)
def test_gpu_process_killed(opened, conv, right, spec):
    wrong = spec.startswith(OLD)
    for _ in range(4):  # a browser that is not replaced has no adapter after the third
        opened(spec).run(conv, INPUTS)
        assert kill("gpu-process")
        assert (error(opened(spec).run(conv, INPUTS)["y"], right) > 1) == wrong


def test_renderer_killed(opened, conv, right):
    backend = opened(f"{NEW}:wasm")
    backend.run(conv, INPUTS)
    assert kill("renderer")
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


def test_chrome_crash(opened, conv, right):
    """The page is sent to the address that crashes its renderer."""
    backend = opened(f"{NEW}:wasm")
    backend.run(conv, INPUTS)
    page = backend._link._tab._page  # type: ignore[union-attr]
    crash = page.goto("chrome://crash", timeout=2000)
    with contextlib.suppress(Exception):
        browsers._call(crash, 5)
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


@pytest.mark.slow
def test_crash_while_a_case_runs(opened, conv, right, tmp_path):
    backend = opened(f"{NEW}:wasm,timeout=4")
    backend.run(conv, INPUTS)
    killer = threading.Timer(1, kill, ["renderer"])
    killer.start()
    with pytest.raises(BackendError) as caught:
        backend.run(written(tmp_path, ENDLESS), ENDLESS_INPUTS)
    killer.join()
    assert caught.value.kind == "timeout"  # the fresh page hung by itself
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


@pytest.mark.parametrize("options", ["", pytest.param(",main", marks=pytest.mark.slow)])
def test_hang(opened, conv, right, tmp_path, options):
    backend = opened(f"{NEW}:wasm,timeout=1{options}")
    start = time.monotonic()
    with pytest.raises(BackendError) as caught:
        backend.run(written(tmp_path, ENDLESS), ENDLESS_INPUTS)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - start < 60
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


@pytest.mark.parametrize("size", [(1 << 30) - 1024, 1 << 40])
def test_out_of_memory(opened, conv, right, tmp_path, size):
    backend = opened(f"{NEW}:wasm")
    with pytest.raises(BackendError, match=r"bad_alloc|too large"):
        backend.run(written(tmp_path, HUGE), {"n": np.array([size])})
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


def test_a_browser_is_started_once(tmp_path, monkeypatch, conv, right):
    started = []
    start = browsers._start

    def counted(launch):
        started.append(launch)
        return start(launch)

    monkeypatch.setattr(browsers, "_start", counted)
    mine = "flags=--mute-audio"  # no other test's browser
    backends = [open_backend(f"{NEW}:wasm,{mine}{more}") for more in ("", ",opt=disabled")]
    for _ in range(15):
        for backend in backends:
            assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5
    for backend in backends:
        backend.close()
    assert len(started) == 1


@pytest.mark.slow
def test_browser_killed(opened, conv, right):
    backend = opened(f"{NEW}:wasm")
    backend.run(conv, INPUTS)
    profile = "--user-data-dir="
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if any(word.startswith(profile) for word in line) and "--type=" not in " ".join(line):
                process.kill()
    assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5


# Browsers that somebody else started.


@contextlib.contextmanager
def chromium(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--no-first-run"]
    command += ["--enable-unsafe-webgpu", f"--user-data-dir={folder}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.Error):
                child.kill()
        process.wait()


def until(happens: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_attach_over_cdp(tmp_path, conv, right):
    active = tmp_path / "profile" / "DevToolsActivePort"
    with chromium(active.parent, "--remote-debugging-port=0", "about:blank") as process:
        until(lambda: active.is_file() and "\n" in active.read_text())
        port = active.read_text().split()[0]
        backend = open_backend(f"{OLD}:webgpu,cdp=http://127.0.0.1:{port}")
        assert error(backend.run(conv, INPUTS)["y"], right) > 1
        backend.close()
        assert process.poll() is None, "somebody else's browser was closed"
        backend = open_backend(f"{NEW}:wasm,cdp=http://127.0.0.1:{port}")
        assert error(backend.run(conv, INPUTS)["y"], right) < 1e-5
    with pytest.raises(Unreliable, match="remote-debugging-port"):  # says nothing about the model
        backend.run(conv, INPUTS)
    backend.close()
    backend = open_backend(f"{NEW}:wasm,cdp=http://127.0.0.1:{port}")
    with pytest.raises(BackendError, match="remote-debugging-port") as caught:
        backend.run(conv, INPUTS)
    assert caught.value.kind == "unsupported"
    backend.close()


SMALL = """<ir_version: 8, opset_import: ["" : 13]>
small (float[1,1,n,n] x, float[1,1,3,3] w) => (float[1,1,m,m] y) {
  a = Relu(x)
  b = Conv<kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2], dilations=[1,1]>(a, w)
  y = Tanh(b)
}"""


def test_a_browser_that_runs_already_does_a_whole_reduction(tmp_path):
    """With a page of its own in it, and the browser is left running."""
    active = tmp_path / "profile" / "DevToolsActivePort"
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    with chromium(active.parent, "--remote-debugging-port=0", "about:blank") as process:
        until(lambda: active.is_file() and "\n" in active.read_text())
        port = active.read_text().split()[0]
        command = [sys.executable, "-m", "onnxreduce", written(tmp_path, SMALL)]
        command += ["--inputs", str(tmp_path / "inputs.npz"), "--output", str(tmp_path / "out")]
        command += ["--expected", "ort:opt=disable_all"]
        command += ["--actual", f"{OLD}:webgl,cdp=http://127.0.0.1:{port}"]
        ran = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert "confirmed in a fresh process" in ran.stderr
        assert process.poll() is None, "somebody else's browser was closed"
    (node,) = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    assert node.op_type == "Conv"
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert attributes["auto_pad"] == b"SAME_UPPER"
    assert 2 in attributes["strides"]


def test_agent_survives_its_browser(tmp_path, monkeypatch, conv, right, capsys):
    monkeypatch.setattr("onnxreduce.backends.web.link.cache_home", lambda: tmp_path / "cache")
    backend = open_backend(f"{OLD}:webgpu,agent,wait=60")
    done: list[float] = []

    def work() -> None:
        for _ in range(150):
            done.append(error(backend.run(conv, INPUTS)["y"], right))

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: backend._link is not None)
    url = backend._link.server.url
    with chromium(tmp_path / "first", url):
        until(lambda: len(done) > 10, 60)
    killed = len(done)
    assert killed < 150
    with chromium(tmp_path / "second", url):
        worker.join(90)
        assert len(done) == 150
        assert min(done) > 1
        backend.close()
        # The next process (a worker after a timeout) is found by the page that is open already.
        again = open_backend(f"{OLD}:webgpu,agent,wait=60")
        assert error(again.run(conv, INPUTS)["y"], right) > 1
        assert again._link.server.url == url
        again.close()
    assert url in capsys.readouterr().err


def test_nobody_opens_the_agent(tmp_path, monkeypatch, conv):
    monkeypatch.setattr("onnxreduce.backends.web.link.cache_home", lambda: tmp_path)
    backend = open_backend(f"{NEW}:wasm,agent,wait=0.2")
    with pytest.raises(BackendError, match="no browser opened http"):
        backend.run(conv, INPUTS)
    backend.close()


def test_another_page_cannot_ask(opened, conv):
    """While a backend works, requests without its token or with a stranger's name are refused."""
    backend = opened(f"{NEW}:wasm")
    backend.run(conv, INPUTS)
    where = urlsplit(backend._link.server.url)  # type: ignore[union-attr]
    for path, host, status in (
        (where.path, "rebound.example", 421),
        ("/guess/", "127.0.0.1", 404),
        (where.path, f"127.0.0.1:{where.port}", 200),
    ):
        asked = http.client.HTTPConnection("127.0.0.1", where.port)
        asked.request("GET", path, headers={"Host": host})
        assert asked.getresponse().status == status
        asked.close()


@pytest.mark.parametrize("provider", ["webgpu", pytest.param("webgl", marks=pytest.mark.slow)])
def test_example_ends_at_one_conv(tmp_path, provider):
    """The command that this project is named for."""
    example = Path(__file__).parents[1] / "examples" / "webgpu_unet"
    subprocess.run([sys.executable, example / "make_model.py", tmp_path], check=True)
    command = [sys.executable, "-m", "onnxreduce", tmp_path / "unet.onnx", "--quiet"]
    command += ["--oracle", example / "diverges.py", "--set", f"actual={provider}"]
    command += ["--output", tmp_path / "out", "--timeout", "200"]
    subprocess.run(command, check=True, cwd=example.parents[1])
    (conv,) = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    assert conv.op_type == "Conv"
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}
    assert attributes["auto_pad"] == b"SAME_UPPER"
    assert 2 in attributes["strides"]
