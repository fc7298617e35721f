"""What of the web backends can be used here, for ``onnxreduce backends``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from onnxreduce.backends.base import BackendError, Info
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web import sparticuz
from onnxreduce.backends.web.channel import Channel, browser_name
from onnxreduce.backends.web.options import DEFAULT_VERSION, PROVIDERS
from onnxreduce.backends.web.server import Server

ELSEWHERE = "another browser (browser=PATH), or flags= that turn it on"


def probe() -> list[Info]:
    """One line a provider; a page is opened to ask the browser for its devices."""
    if shutil.which("npm") is None:
        fix = "install Node.js, or give an unpacked onnxruntime-web with dist=DIR"
        return [Info("web", reason="npm is not installed", fix=fix)]
    try:
        found = _providers(_ask(browsers.Launch()), "")
    except BackendError as error:
        found = [Info("web", reason=error.message, fix="apt install chromium, or browser=PATH")]
    if all(info.usable for info in found) or not sparticuz.folder().is_dir():
        return found
    # It was fetched once: then it is a browser of this machine like another.
    missing = {info.spec for info in found if not info.usable}
    suffix = f",browser={sparticuz.NAME}"
    try:
        more = _providers(_ask(browsers.Launch(sparticuz.fetch())), suffix)
    except BackendError as error:
        return [*found, Info(f"web:*{suffix}", reason=error.message)]
    return found + [i for i in more if i.usable and missing & {i.spec.removesuffix(suffix), "web"}]


def _providers(client: dict[str, Any], suffix: str) -> list[Info]:
    runtime = f"onnxruntime-web {DEFAULT_VERSION}, {browser_name(client)}"
    found = []
    for name in PROVIDERS:
        spec, device = f"web:{name}{suffix}", client.get(name)
        if name == "wasm" or device:
            found.append(Info(spec, runtime, str(device or "")))
        elif name.startswith("webnn"):
            fix = f"{spec},browser={sparticuz.NAME} (a Chromium with WebNN from npm, 70 MB)"
            found.append(Info(spec, runtime, "", "the browser can make no WebNN context", fix))
        else:
            found.append(Info(spec, runtime, "", "the browser offers none", ELSEWHERE))
    return found


def _ask(launch: browsers.Launch) -> dict[str, Any]:
    """What a page in that browser says of itself."""
    channel = Channel()
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as empty:
        server = Server(Path(empty), channel)
        browser = browsers.shared(launch)
        try:
            tab = browser.open(server.url, channel.lost)
            client = channel.introduced(20)
            tab.close()
            return client
        finally:
            server.close()
            browser.release()
