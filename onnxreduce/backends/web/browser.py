"""Browsers: found on this machine, opened, watched and replaced with Playwright.

Playwright only opens the page and tells when it dies; jobs and tensors go another way (see
`channel`). Its asyncio side lives in one thread of its own, so a backend can be used from any
thread, and below any event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from playwright.async_api import (
    BrowserContext,
    CDPSession,
    Page,
    Playwright,
    async_playwright,
)
from playwright.async_api import Error as PlaywrightError

from onnxreduce.backends.base import BackendError

T = TypeVar("T")

COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "microsoft-edge-stable",
)
_MAC = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
FLAGS = (
    "--enable-unsafe-webgpu",  # without it a software adapter is no adapter
    "--enable-features=WebMachineLearningNeuralNetwork",
    "--disable-background-networking",
)
GPU_FAULTS = 2
"""After the third GPU process crash a browser hands out no adapter any more: replace it before."""


@dataclass(frozen=True)
class Launch:
    """What distinguishes one browser from another."""

    browser: str | None = None
    headed: bool = False
    flags: tuple[str, ...] = ()
    cdp: str | None = None


def find() -> str | None:
    """An installed Chromium, Chrome or Edge; else the one that Playwright downloaded."""
    for command in COMMANDS:
        if path := shutil.which(command):
            return path
    places = [Path(place) for place in _MAC if sys.platform == "darwin"]
    return next((str(place) for place in places if place.is_file()), None)


class _Loop:
    """An asyncio loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="playwright", daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise


_guard = threading.RLock()
_loop: _Loop | None = None
_shared: dict[Launch, Browser] = {}


def _call(work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    global _loop
    with _guard:
        _loop = _loop or _Loop()
    return _loop.call(work, seconds)


def shared(launch: Launch) -> Browser:
    """The browser of this process for these settings; give it back with `Browser.release`."""
    with _guard:
        browser = _shared.setdefault(launch, Browser(launch))
        browser.users += 1
        return browser


@atexit.register
def _close_all() -> None:
    for browser in list(_shared.values()):
        browser.stop()
    _shared.clear()


class Tab:
    """One page of a browser."""

    def __init__(self, page: Page, cdp: CDPSession) -> None:
        self._page = page
        self._cdp = cdp

    def terminate(self) -> None:
        """End the JavaScript or wasm that hangs on the page's main thread."""
        _call(self._cdp.send("Runtime.terminateExecution"), 5)

    def close(self) -> None:
        """Close the page, hung or not; a page that is gone already is fine."""
        try:
            _call(self._page.close(), 10)
        except (PlaywrightError, TimeoutError):
            return  # crashed with its browser: the browser's replacement sees to it


class Browser:
    """A running browser, started when the first page is opened.

    Attributes:
        users: backends that hold it.
        gpu_faults: GPU processes that this run of it has lost.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.users = 0
        self.gpu_faults = 0
        self._lock = threading.RLock()
        self._running: _Running | None = None

    @property
    def worn(self) -> bool:
        """Whether it has lost so many GPU processes that it should be replaced."""
        return self.gpu_faults >= GPU_FAULTS and not self.launch.cdp

    def open(self, url: str, lost: Callable[[str], None]) -> Tab:
        """Open a page.

        Args:
            url: where.
            lost: called from another thread, with the reason, when the page dies.

        Raises:
            BackendError: ``unsupported``: none is installed, it does not start, or it cannot
                reach the page.
        """
        with self._lock:
            if self.worn:
                self.stop()
            try:
                return self._open(url, lost)
            except (PlaywrightError, TimeoutError):
                self.stop()  # once more, with a new browser
            try:
                return self._open(url, lost)
            except (PlaywrightError, TimeoutError) as error:
                raise BackendError("unsupported", self._complaint(error)) from error

    def release(self) -> None:
        """One user less; the last one closes the browser."""
        with _guard:
            self.users -= 1
            if self.users > 0:
                return
            _shared.pop(self.launch, None)
        self.stop()

    def stop(self) -> None:
        """Close the browser; the next `open` starts another."""
        with self._lock:
            running, self._running = self._running, None
            self.gpu_faults = 0
            if running is not None:
                try:
                    _call(running.stop(), 15)
                except (PlaywrightError, TimeoutError):
                    return  # the driver is gone, and its browser with it

    def _open(self, url: str, lost: Callable[[str], None]) -> Tab:
        if self._running is None or self._running.gone:
            self.stop()
            self._running = _call(_start(self.launch))
        return _call(self._running.open(url, lost))

    def _complaint(self, error: Exception) -> str:
        if self.launch.cdp:
            return (
                f"cannot use the browser at {self.launch.cdp}: is it running with "
                "--remote-debugging-port, and can it reach this machine's loopback address "
                "(on a phone: adb reverse)?"
            )
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = "; give flags=--no-sandbox" if "sandbox" in str(error).lower() else ""
        return f"the browser {self.launch.browser or find()} does not start: {said}{hint}"


class _Running:
    """One run of a browser, and the Playwright driver that holds it."""

    def __init__(
        self, playwright: Playwright, context: BrowserContext, scratch: Path | None
    ) -> None:
        self.gone = False
        self._playwright = playwright
        self._context = context
        self._scratch = scratch
        context.on("close", self._note_end)

    async def open(self, url: str, lost: Callable[[str], None]) -> Tab:
        page = await _new_page(self._context)
        page.on("crash", lambda _: lost("the renderer process crashed"))
        page.on("close", lambda _: lost("the page was closed"))
        cdp = await self._context.new_cdp_session(page)
        await page.goto(url, wait_until="domcontentloaded", timeout=20_000)
        return Tab(page, cdp)

    async def stop(self) -> None:
        """Close the browser if it was launched here; one that was attached to stays."""
        try:
            if self._scratch is not None and not self.gone:
                await self._context.close()
        finally:
            await self._playwright.stop()
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _note_end(self, _: object) -> None:
        self.gone = True


async def _start(launch: Launch) -> _Running:
    playwright = await async_playwright().start()
    scratch = None if launch.cdp else scratch_folder()
    try:
        context = await (
            _launch(playwright, launch, scratch)
            if scratch
            else _attach(playwright, str(launch.cdp))
        )
    except BaseException:
        await playwright.stop()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    return _Running(playwright, context, scratch)


async def _attach(playwright: Playwright, url: str) -> BrowserContext:
    browser = await playwright.chromium.connect_over_cdp(url, timeout=10_000)
    return browser.contexts[0] if browser.contexts else await browser.new_context()


async def _launch(playwright: Playwright, launch: Launch, scratch: Path) -> BrowserContext:
    executable = launch.browser or find()
    if executable is None and not Path(playwright.chromium.executable_path).is_file():
        raise BackendError(
            "unsupported",
            "no Chromium, Chrome or Edge found: install one, or run `playwright install chromium`, "
            "or name one with browser=PATH",
        )
    return await playwright.chromium.launch_persistent_context(
        scratch / "profile",
        executable_path=executable,
        headless=not launch.headed,
        chromium_sandbox=os.geteuid() != 0,  # Chromium refuses to sandbox root
        args=[*FLAGS, *launch.flags],
        env={**os.environ, "TMPDIR": str(scratch)},
        artifacts_dir=scratch / "artifacts",
        handle_sigint=False,
        timeout=30_000,
    )


def scratch_folder() -> Path:
    """A folder for a browser's profile and leavings; those of killed processes are removed."""
    base = Path(tempfile.gettempdir())
    for left in base.glob("onnxreduce-browser-*-*"):
        owner = left.name.split("-")[2]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"onnxreduce-browser-{os.getpid()}-", dir=base))


async def _new_page(context: BrowserContext) -> Page:
    """A page in somebody's browser. Electron makes none on request, but its windows can."""
    try:
        return await context.new_page()
    except PlaywrightError:
        if not context.pages:
            raise
        async with context.expect_page() as opened:
            await context.pages[0].evaluate("() => { window.open('about:blank') }")
        return await opened.value
