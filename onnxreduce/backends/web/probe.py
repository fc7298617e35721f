"""What of the web backends can be used here, for ``onnxreduce backends``."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxreduce.backends.base import BackendError, Info
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web.channel import Channel, browser_name
from onnxreduce.backends.web.options import DEFAULT_VERSION, PROVIDERS
from onnxreduce.backends.web.server import Server


def probe() -> list[Info]:
    """One line a provider; a page is opened to ask the browser for its devices."""
    if shutil.which("npm") is None:
        fix = "install Node.js, or give an unpacked onnxruntime-web with dist=DIR"
        return [Info("web", reason="npm is not installed", fix=fix)]
    try:
        client = _ask_browser()
    except BackendError as error:
        return [Info("web", reason=error.message, fix="apt install chromium, or browser=PATH")]
    runtime = f"onnxruntime-web {DEFAULT_VERSION}, {browser_name(client)}"
    found = []
    for name in PROVIDERS:
        device = True if name == "wasm" else client.get(name.partition("-")[0])
        reason = "" if device else "the browser offers none"
        text = device if isinstance(device, str) else ""
        fix = "" if device else "another browser (browser=PATH), or flags= that turn it on"
        found.append(Info(f"web:{name}", runtime, text, reason, fix))
    return found


def _ask_browser() -> dict[str, object]:
    channel = Channel()
    with TemporaryDirectory(prefix="onnxreduce-") as empty:
        server = Server(Path(empty), channel)
        browser = browsers.shared(browsers.Launch())
        try:
            tab = browser.open(server.url, channel.lost)
            client = channel.introduced(20)
            tab.close()
            return client
        finally:
            server.close()
            browser.release()
