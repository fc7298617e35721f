"""The parts of the web backend that need no browser."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from onnxreduce.backends import BackendError, parse_spec
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web import dist, faults, link, npm, sparticuz, wire
from onnxreduce.backends.web.channel import Channel, Late, PageLost, browser_name
from onnxreduce.backends.web.options import KNOWN, Options, read
from onnxreduce.backends.web.server import Server
from onnxreduce.errors import UsageError

# Tensors on the wire.


def through(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    header, found = wire.unpack(b"".join(wire.pack({"id": 1}, tensors)))
    assert header == {"id": 1}
    return found


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        arrays.arrays(
            st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint64", "bool"]),
            arrays.array_shapes(min_dims=0, min_side=0, max_dims=3),
        ),
        max_size=4,
    )
)
def test_wire_keeps_every_bit(tensors):
    found = through(tensors)
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_wire_of_extended_types(kind, count):
    values = np.arange(count).astype(getattr(ml_dtypes, kind)) - getattr(ml_dtypes, kind)(2)
    found = through({"x": values})["x"]
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def test_wire_of_strings_and_views():
    words = np.array([["a", ""], ["ß", "\0"]], object)
    assert through({"x": words})["x"].tolist() == words.tolist()
    turned = np.arange(6, dtype=">i4").reshape(2, 3).T
    assert through({"x": turned})["x"].tolist() == turned.tolist()


def test_wire_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match="complex128"):
        wire.pack({}, {"x": np.zeros(1, complex)})
    whole = b"".join(wire.pack({}, {"x": np.zeros(9)}))
    with pytest.raises(ValueError, match="ends inside tensor 'x'"):
        wire.unpack(whole[:-8])


# Options.


def options(text: str) -> Options:
    spec = parse_spec(text)
    spec.check(KNOWN)
    return read(spec)


def test_options_become_session_options():
    found = options("web@1.23.2:webgpu,opt=disable_all,layout=NHWC,bundle=webgpu,sessions=2")
    assert found.session_options() == {
        "executionProviders": [{"name": "webgpu", "preferredLayout": "NHWC"}],
        "graphOptimizationLevel": "disabled",
    }
    assert found.bundle == "ort.webgpu.min.mjs"
    assert (found.version, found.sessions) == ("1.23.2", 2)
    assert options("web:webnn-npu").session_options() == {
        "executionProviders": [{"name": "webnn", "deviceType": "npu"}]
    }


def test_a_dummy_session_is_kept_for_the_native_provider_alone():
    assert options("web:webgpu,bundle=webgpu").keeps_alive
    assert not options("web:webgpu,bundle=webgpu,fresh").keeps_alive
    assert not options("web:webgpu").keeps_alive
    assert not options("web:wasm,bundle=webgpu").keeps_alive


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("web", "name one execution provider"),
        ("web:wasm,webgl", "name one execution provider"),
        ("web:wasm,threads=none", "threads must be a positive number"),
        ("web:wasm,runs=0", "runs must be a positive number"),
        ("web:wasm,layout=NHWC", "layout is an option of webgpu"),
        ("web:webgpu,agent,cdp=http://localhost:1", "cdp and agent exclude each other"),
        ("web:webgpu,listen=0.0.0.0", "listen is an option of agent alone"),
        ("web:webgpu,agent,main", "main thread"),
        ("web:wasm,bundle=../x.mjs", "name of a file"),
        ("web:wasm,bandle=ort", "did you mean 'bundle'"),
        ("web:wasm,opt=most", "opt is one of"),
    ],
)
def test_bad_options(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        options(text)


# The server.


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "ort.all.min.mjs").write_text("export default 1")
    (tmp_path.parent / "secret.mjs").write_text("no")
    running = Server(tmp_path, Channel())
    yield running
    running.close()


def ask(server: Server, path: str, method: str = "GET", body: bytes = b"", **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    if method == "POST":
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body if method == "POST" else None)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def test_server_hands_out_page_and_bundle(server):
    for path in ("", "page.js", "runner.js", "ort/ort.all.min.mjs"):
        response, content = ask(server, f"/{server.token}/{path}")
        assert response.status == 200
        assert content
        assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/wrong/", "/wrong/page.js", "//", "/ort/ort.all.min.mjs"]
)
def test_server_wants_its_token(server, path):
    assert ask(server, path)[0].status == 404
    assert ask(server, path, "POST", b"{}")[0].status == 404


@pytest.mark.parametrize(
    "path",
    [
        "ort/../secret.mjs",
        "ort/%2e%2e/secret.mjs",
        "ort/..%2fsecret.mjs",
        "ort/missing.mjs",
        "ort/",
        "server.py",
        "../server.py",
        "blob/unknown",
        "blob/../server.py",
    ],
)
def test_server_hands_out_nothing_else(server, path):
    assert ask(server, f"/{server.token}/{path}")[0].status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_server_checks_the_host(server, host):
    assert ask(server, f"/{server.token}/", Host=host)[0].status == 421


def test_server_checks_the_origin(server):
    path = f"/{server.token}/hello"
    assert ask(server, path, "POST", b"{}", Origin="http://evil.example")[0].status == 403
    assert ask(server, path, "POST", b"{}", Origin="null")[0].status == 403
    assert ask(server, path, "POST", b"{}", Origin=server.url[:-1])[0].status == 204


def test_server_binds_loopback_and_says_when_it_cannot(server):
    assert server.url.startswith("http://127.0.0.1:")
    with pytest.raises(UsageError, match=rf"cannot listen on 127.0.0.1:{server.port}"):
        Server(Path(), Channel(), port=server.port)


@pytest.mark.parametrize(
    ("address", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)]
)
def test_an_agent_that_others_can_reach_says_so(tmp_path, monkeypatch, address, warned):
    monkeypatch.setattr(link, "cache_home", lambda: tmp_path)
    said: list[str] = []
    agent = link.AgentLink(options(f"web:wasm,agent,listen={address}"), tmp_path, "x", said.append)
    agent.close()
    assert any("warning" in text and "0.0.0.0" in text for text in said) == warned


def test_server_hands_out_blobs_until_they_are_withdrawn(server, tmp_path):
    (tmp_path / "model").write_bytes(b"model")
    server.blobs.update({"a": tmp_path / "model", "b": [b"in", b"puts"]})
    assert ask(server, f"/{server.token}/blob/a")[1] == b"model"
    assert ask(server, f"/{server.token}/blob/b")[1] == b"inputs"
    del server.blobs["b"]
    assert ask(server, f"/{server.token}/blob/b")[0].status == 404


def test_an_order_and_its_answer(server):
    server.channel.send({"op": "run", "id": "j1"})
    _, order = ask(server, f"/{server.token}/next?page=p&new=1")
    assert json.loads(order) == {"op": "run", "id": "j1"}
    ask(server, f"/{server.token}/answer/j1", "POST", b"done")
    assert server.channel.wait("j1", 1) == b"done"


# The line to the page.


def test_the_newest_page_serves():
    channel = Channel()
    assert channel.poll("old", 0, new=True) == {"op": "idle"}
    assert channel.poll("new", 0, new=True) == {"op": "idle"}
    assert channel.poll("old", 0, new=False) == {"op": "replaced"}
    channel.send({"op": "run"})
    assert channel.poll("new", 0, new=False) == {"op": "run"}


def test_a_page_that_was_forgotten_is_not_replaced():
    channel = Channel()
    channel.poll("page", 0, new=True)
    waiting = threading.Timer(0.1, channel.forget)
    waiting.start()
    assert channel.poll("page", 5, new=False) == {"op": "idle"}


def test_waiting_ends_when_the_page_is_lost_or_late():
    channel = Channel()
    channel.poll("page", 0, new=True)
    threading.Timer(0.1, channel.lost, ["the renderer process crashed"]).start()
    with pytest.raises(PageLost, match="renderer"):
        channel.wait("j1", 5)
    channel.forget()
    channel.poll("page", 0, new=True)
    with pytest.raises(Late):
        channel.wait("j2", 0.05)
    threading.Timer(0.1, channel.poll, ["other", 0], {"new": True}).start()
    with pytest.raises(PageLost):
        channel.wait("j3", 5)


def test_a_broken_line_is_given_time(monkeypatch):
    monkeypatch.setattr("onnxreduce.backends.web.channel.GRACE", 0.3)
    channel = Channel()
    channel.poll("page", 0, new=True)
    channel.broken("page")
    assert channel.connected()
    channel.poll("page", 0, new=False)
    time.sleep(0.4)
    assert channel.connected()
    channel.broken("page")
    time.sleep(0.4)
    assert not channel.connected()


# Faults.


def header(message: str = "", stage: str = "run", **more: object) -> dict[str, object]:
    return {"ok": False, "stage": stage, "message": message, "healthy": True, **more}


@pytest.mark.parametrize(
    ("found", "suspicious", "kind"),
    [
        (header("shapes do not fit", "load"), False, "load"),
        (header("shapes do not fit"), False, "run"),
        (header("shapes do not fit", healthy=False), True, "run"),
        (header("another WebGPU EP inference session is being created.", "load"), True, "load"),
        (header("Session already started"), True, "run"),
        (header("RuntimeError: Aborted(). Build with -sASSERTIONS"), True, "crash"),
        (header("memory access out of bounds"), True, "crash"),
        (header("WebGPU device lost", fault="device lost"), True, "crash"),
        (header("the renderer process crashed", fault="page lost"), True, "crash"),
        (header("no result in 5 s", fault="timeout", warm=0), True, "timeout"),
        (header("no result in 5 s", fault="timeout", warm=3), True, "timeout"),
        (header("no available backend found. ERR: [webgl] backend not found.", "load"),
         False, "unsupported"),
        (header("no tensor of type bfloat16 in ONNX Runtime Web", "feed"), False, "unsupported"),
    ],
)  # fmt: skip
def test_faults(found, suspicious, kind):
    assert faults.suspicious(found) is suspicious
    assert faults.kind(found) == kind


def test_a_fault_is_the_models_when_fresh_browsers_show_the_same():
    crash, lost = header(fault="page lost"), header(fault="device lost")
    record = faults.Record(again=2, worked=True)
    for found, convincing in [(crash, False), (crash, False), (lost, False), (crash, False),
                              (crash, False), (crash, True)]:  # fmt: skip
        record.add(found)
        assert record.convincing is convincing
        assert not record.hopeless
    assert str(record) == "6 faults for one model: page lost, device lost"
    mixed = faults.Record(again=1, worked=True)
    while not mixed.hopeless:
        mixed.add(crash if len(mixed) % 2 else lost)
        assert not mixed.convincing
    hang = faults.Record(again=2, worked=True)
    for convincing in (False, True):  # costly: one more is enough
        hang.add(header(fault="timeout"))
        assert hang.convincing is convincing


def test_a_browser_that_lost_its_device_for_good_is_no_fault_of_the_model():
    gone = header("no available backend found. ERR: [webgpu] Failed to get GPU adapter.", "load",
                  healthy=False)  # fmt: skip
    for worked in (True, False):
        record = faults.Record(again=1, worked=worked)
        record.add(gone)
        record.add(gone)
        assert record.convincing is not worked
    record.add(header("does not start", fault=faults.NO_PAGE))
    record.add(header("does not start", fault=faults.NO_PAGE))
    assert not record.convincing


def test_messages_are_the_same_twice():
    first, second = (header(f"C++ exception (a bare number, {n})", "load") for n in (10195072, 7))
    assert faults.message(first) == faults.message(second)
    assert "while: load" in faults.message(first)
    assert faults.message(header("std::bad_alloc")).startswith("out of memory: ")


def test_notes_lose_colours_and_times():
    line = "error: \x1b[0;93m2026-01-02 03:04:05.678 [W:onnxruntime] {}\x1b[m"
    said = [line.format("a shader is wrong"), line.format("Unknown CPU vendor. 0")]
    assert faults.notes({"console": said}) == ("error: [W:onnxruntime] a shader is wrong",)


def test_without_a_browser_the_message_says_what_to_do(tmp_path, monkeypatch):
    for name in ("PATH", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(browsers, "_MAC", ())
    browser = browsers.Browser(browsers.Launch())
    with pytest.raises(BackendError, match="playwright install chromium") as caught:
        browser.open("http://127.0.0.1:1/", pytest.fail)
    assert caught.value.kind == "unsupported"


def test_browser_names():
    edge = "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1 Safari/2 Edg/3"
    assert browser_name({"browser": edge}) == "Edg/3"
    assert browser_name({}) == "unknown browser"


# Downloads.


def test_a_wrong_download_is_refused(tmp_path):
    archive = tmp_path / "package.tgz"
    archive.write_bytes(b"abc")
    right = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
    npm.check(archive, f"sha256-{right}")
    with pytest.raises(UsageError, match="not the published one"):
        npm.check(archive, f"sha256-{right[::-1]}")


def test_without_npm_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(dist.DIST_VARIABLE, raising=False)
    with pytest.raises(BackendError, match=r"install Node.js, or give .* dist=DIR") as caught:
        dist.find("1.30.0", "ort.all.min.mjs")
    assert caught.value.kind == "unsupported"


def test_the_browser_from_npm_is_kept_by_version(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXREDUCE_CACHE", str(tmp_path))
    assert sparticuz.named("sparticuz")
    assert sparticuz.named("sparticuz@1.2.3")
    assert not sparticuz.named("/usr/bin/sparticuz")
    (tmp_path / "chromium" / "sparticuz-1.2.3").mkdir(parents=True)
    assert sparticuz.fetch("sparticuz@1.2.3").endswith("sparticuz-1.2.3/chromium")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match=r"@sparticuz/chromium and is not installed.*browser="):
        sparticuz.fetch()


def test_a_local_dist(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no onnxruntime-web bundle"):
        dist.find("1", "ort.min.mjs", tmp_path)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "ort.min.mjs").touch()
    (tmp_path / "package.json").write_text('{"name": "onnxruntime-web", "version": "9.9.9"}')
    assert dist.find("1", "ort.min.mjs", tmp_path) == (tmp_path / "dist", "9.9.9")
    monkeypatch.setenv(dist.DIST_VARIABLE, str(tmp_path))
    assert dist.find("1", "ort.min.mjs")[1] == "9.9.9"
    with pytest.raises(UsageError, match=r"has no ort\.all\.min\.mjs: .*ort\.min\.mjs"):
        dist.find("1", "ort.all.min.mjs", tmp_path)
