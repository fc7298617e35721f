"""``repro.html`` in Chromium, from a plain static server, its table read."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from emitting import case_of, differs, outputs_of, result_of, run_script, side, strided, written

from onnxreduce.backends import BackendError
from onnxreduce.backends.web import dist
from onnxreduce.case import Case
from onnxreduce.result import Result

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.web]

VERSION = "1.23.2"
CDN = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"


@pytest.fixture(scope="module")
def ort() -> Path:
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        pytest.skip("no Chromium here")
    try:
        return dist.find(VERSION, "ort.all.min.mjs")[0]
    except (BackendError, OSError) as error:
        pytest.skip(f"no onnxruntime-web here: {error}")


@pytest.fixture
def folder(tmp_path: Path, ort: Path) -> Path:
    """Served as it is, with the runtime beside it in place of the public CDN."""
    (tmp_path / "ort").mkdir()
    for file in ort.iterdir():
        (tmp_path / "ort" / file.name).symlink_to(file)
    return tmp_path


def web_result(case: Case, actual: str) -> Result:
    specs = [f"web@{VERSION}:wasm", f"web@{VERSION}:{actual}"]
    sides = (side("expected", specs[0], outputs_of(case)), side("actual", specs[1]))
    return result_of(case, sides=sides, outputs=outputs_of(case), **differs(*specs))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def answer(route: Route, folder: Path) -> None:
    """As the CDN answers: the file of the package, for any origin."""
    file = folder / route.request.url.removeprefix(CDN)
    kind = "application/wasm" if file.suffix == ".wasm" else "text/javascript"
    headers = {"access-control-allow-origin": "*"}
    route.fulfill(body=file.read_bytes(), content_type=kind, headers=headers)


def table_of(address: str, cdn: Path | None = None) -> tuple[str, dict[str, str]]:
    """Whether the bug shows, and the row of the only output by backend.

    With `cdn`, the page is opened as a user opens it, and its requests to the public CDN are
    answered from that folder.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--enable-unsafe-webgpu"],
        )
        page = browser.new_page()
        if cdn is not None:
            page.route(f"{CDN}*", lambda route: answer(route, cdn))
        page.goto(f"{address}/repro.html{'?ort=ort/' if cdn is None else ''}")
        page.wait_for_selector("body[data-shows]", timeout=240_000)
        rows = page.eval_on_selector_all(
            "tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        )
        shows = page.get_attribute("body", "data-shows") or ""
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        scripts = page.evaluate("document.scripts.length")
        browser.close()
    assert not wide
    assert scripts == 1
    head = [cell.split("\n")[0] for cell in rows[0]]
    return shows, dict(zip(head, rows[1], strict=True))


def test_the_reported_bug_shows(folder: Path, address: str) -> None:
    """A strided Conv with SAME_UPPER on WebGPU and WebGL; right from 1.30 on."""
    case = case_of(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[N,1,8,8] x) => (float[N,1,4,4] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> {
          y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2], dilations = [1, 1]> (x, w)
        }""",
        x=(np.arange(64).reshape(1, 1, 8, 8) % 7).astype(np.float32),
    )
    written(web_result(case, "webgpu"), folder)
    shows, row = table_of(address)
    assert shows == "yes"
    assert "(reference)" in row["wasm"]
    assert "wrong" in row["webgpu"]
    assert "wrong" in row["webgl"]  # it got the model with known dims
    assert "MAD: " in row["webgl"]
    assert "fails" in row["webnn-cpu"] or "Range" in row["webnn-cpu"]
    assert run_script(folder).returncode in (0, 2)  # 2: the public CDN is out of reach


def test_a_right_result_does_not_show_it(folder: Path, address: str) -> None:
    case = case_of(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,400] x, int64[2] s, bool[2] b) => (float[?,?] y, int64[2] t, bool[2] c) {
          y = Relu(x)
          t = Identity(s)
          c = Not(b)
        }""",
        x=np.linspace(-1, 1, 400, dtype=np.float32)[None],
        s=np.array([1, 2**60]),
        b=np.array([True, False]),
    )
    written(web_result(case, "webgl"), folder)
    assert (folder / "repro-input-0.bin").exists()
    source = (folder / "repro.js").read_text()
    written(web_result(case, "wasm"), folder)
    shows, row = table_of(address)
    assert '"1152921504606846976"' in source
    assert shows == "no"
    assert "Range: [0, 1]" in row["wasm"]


def test_the_page_as_it_is_loads_the_pinned_version(folder: Path, address: str, ort: Path) -> None:
    written(web_result(strided(), "webgpu"), folder)
    (folder / "ort").rename(folder / "elsewhere")
    _, row = table_of(address, ort)
    assert "(reference)" in row["wasm"]
    assert "Range" in row["wasm"]


def test_names_do_not_become_markup(folder: Path, address: str) -> None:
    name = "</script><img src=x onerror=alert(1)>'\"\\`${1}"
    case = strided()
    model = case.copy_model()
    model.graph.inputs[0].name = name
    case = Case(model, {name: case.inputs["x"]})
    written(web_result(case, "webgpu"), folder)
    assert "</script>" not in (folder / "repro.js").read_text()
    _, row = table_of(address)
    assert "(reference)" in row["wasm"]
