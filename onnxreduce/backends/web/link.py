"""A server with a page at its other end: one that Playwright opened, or one opened by hand."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxreduce.backends.base import BackendError
from onnxreduce.backends.cache import cache_home
from onnxreduce.backends.web import browser as browsers
from onnxreduce.backends.web import sparticuz
from onnxreduce.backends.web.channel import Channel, browser_name
from onnxreduce.backends.web.options import Options
from onnxreduce.backends.web.server import Server
from onnxreduce.errors import UsageError

OPEN_SECONDS = 30.0


class Link(ABC):
    """One page, and the means to get it back when it is lost."""

    server: Server
    channel: Channel

    @property
    def client(self) -> dict[str, Any]:
        """What the page said about its browser and devices."""
        return self.channel.introduced(10)

    @abstractmethod
    def connect(self) -> None:
        """See that a page serves the channel.

        Raises:
            BackendError: ``unsupported``: there is none to be had.
        """

    def reload(self) -> None:
        """A fresh page in place of the present one."""
        if not self.channel.reload(OPEN_SECONDS):
            self.drop_page()
            self.connect()

    def unhang(self) -> None:  # noqa: B027
        """End what hangs on the page's main thread, where that can be done."""

    def lost_device(self) -> None:  # noqa: B027
        """The page lost its GPU; its worker is replaced already."""

    def drop_page(self) -> None:
        """Give the page up; `connect` gets another."""
        self.channel.forget()

    def drop_browser(self) -> None:
        """Give the browser up as well."""
        self.drop_page()

    def close(self) -> None:
        """Let everything go."""
        self.server.close()


class BrowserLink(Link):
    """A page in a browser that Playwright launched or attached to."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.channel = Channel()
        self.server = Server(folder, self.channel, port=options.port)
        named = options.browser
        browser = sparticuz.fetch(named) if named and sparticuz.named(named) else named
        launch = browsers.Launch(browser, options.headed, options.flags, options.cdp)
        self._browser = browsers.shared(launch)
        self._tab: browsers.Tab | None = None
        self._opened = 0

    def connect(self) -> None:
        if self._tab is not None and self.channel.connected():
            return
        self.drop_page()
        self._opened += 1
        mine = self._opened

        def lost(reason: str) -> None:  # news of a page that was given up concerns nobody
            if mine == self._opened:
                self.channel.lost(reason)

        self._tab = self._browser.open(self.server.url, lost)
        if not self.channel.connected(OPEN_SECONDS):
            raise BackendError("unsupported", "the page opened but does not report to the server")

    def unhang(self) -> None:
        if self._tab is not None:
            self._tab.terminate()

    def lost_device(self) -> None:
        self._browser.gpu_faults += 1
        if self._browser.worn:
            self.drop_browser()

    def drop_page(self) -> None:
        tab, self._tab = self._tab, None
        self._opened += 1
        if tab is not None:
            tab.close()
        self.channel.forget()

    def drop_browser(self) -> None:
        self.drop_page()
        self._browser.stop()

    def close(self) -> None:
        self.drop_page()
        super().close()
        self._browser.release()


class AgentLink(Link):
    """A page in a browser that somebody opens by hand, on any device that can reach the server.

    The address outlives this process: port and token are kept in the user's cache, so a page that
    was opened once finds the next worker process (after a timeout, say) by itself.
    """

    def __init__(
        self, options: Options, folder: Path, name: str, say: Callable[[str], None]
    ) -> None:
        self.channel = Channel()
        self._say = say
        self._wait = options.wait
        self._slot, number, kept = _claim(name)
        port = options.port + number if options.port else int(kept.get("port", 0))
        self.server = self._serve(options, folder, port, kept.get("token"))
        self._slot.seek(0)
        self._slot.truncate()
        self._slot.write(json.dumps({"port": self.server.port, "token": self.server.token}))
        self._slot.flush()
        self._known = bool(kept)
        if not self.server.private:
            say(
                f"onnxreduce: warning: the page is served at {options.listen}, not to this machine "
                "alone: who learns its address, which travels unencrypted, can read the model and "
                "answer for the browser"
            )

    def connect(self) -> None:
        # A page that served the last process, or lost its connection, comes back in a second or so.
        if self.channel.connected(2.5 if self._known else 0.0):
            return
        self._known = True
        self._say(f"onnxreduce: open {self.server.url} in the browser that shows the bug")
        port = self.server.port
        self._say(
            f"  on a phone, after: adb reverse tcp:{port} tcp:{port}\n"
            f"  on another machine, after: ssh -R {port}:127.0.0.1:{port} MACHINE"
        )
        if not self.channel.connected(self._wait):
            raise BackendError("unsupported", f"no browser opened {self.server.url}")
        self._say(f"onnxreduce: connected: {browser_name(self.client)}")

    def drop_page(self) -> None:
        """Only forget its job: the next page may be there already."""
        self.channel.clear()

    def close(self) -> None:
        super().close()
        self._slot.close()

    def _serve(self, options: Options, folder: Path, port: int, token: str | None) -> Server:
        def start(port: int) -> Server:
            return Server(folder, self.channel, address=options.listen, port=port, token=token)

        try:
            return start(port)
        except UsageError:
            if options.port:
                raise
            return start(0)  # somebody else has taken the port of last time


def _claim(name: str) -> tuple[Any, int, dict[str, Any]]:
    """The first address of this backend that no other process holds: file, number and content."""
    folder = cache_home() / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    stem = hashlib.sha256(name.encode()).hexdigest()[:12]
    for number in range(64):
        descriptor = os.open(folder / f"{stem}-{number}.json", os.O_RDWR | os.O_CREAT, 0o600)
        handle = os.fdopen(descriptor, "r+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            continue
        content = handle.read()
        return handle, number, json.loads(content) if content else {}
    raise UsageError(f"64 processes wait for a browser on {name} already: end some")
