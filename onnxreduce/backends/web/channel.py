"""The line between one backend and one page: orders go out, answers and news come back.

Thread-safe. The server's threads call `poll`, `answer` and `lost`; the backend's thread calls
`send` and `wait`. Pages are told apart by an id that each makes for itself when it loads: the
newest page serves, an older one is told that it was replaced.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

Order = dict[str, Any]

GRACE = 3.0
"""Seconds in which a page whose connection broke may come back before it counts as lost."""
SILENCE = 45.0
"""Seconds without any poll after which a page counts as lost (a poll lasts at most 20)."""


class PageLost(Exception):
    """The page that had the order is gone: crashed, closed, replaced, or out of reach."""


class Late(Exception):
    """No answer in time."""


class Channel:
    """Orders for a page, and what became of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._orders: deque[Order] = deque()
        self._answers: dict[str, bytearray] = {}
        self._page: str | None = None
        self._seen = 0.0
        self._broken: float | None = None
        self._fault: str | None = None
        self.closed = False
        self.client: dict[str, Any] = {}
        self.pages = 0

    # What the server's threads call.

    def poll(self, page: str, seconds: float, *, new: bool) -> Order:
        """The next order for a page; ``{"op": "idle"}`` after some time without one."""
        end = time.monotonic() + seconds
        with self._changed:
            if page != self._page:
                if not new and self._page is not None and self._alive():
                    return {"op": "replaced"}
                self._take_over(page)
            self._seen, self._broken = time.monotonic(), None
            while page == self._page and not self.closed:
                if self._orders:
                    return self._orders.popleft()
                rest = end - time.monotonic()
                if rest <= 0:
                    return {"op": "idle"}
                self._changed.wait(rest)
            if self.closed:
                return {"op": "closed"}
            return {"op": "idle" if self._page is None else "replaced"}

    def hello(self, client: dict[str, Any]) -> None:
        """The page tells what browser and devices it has."""
        with self._changed:
            self.client = client
            self._changed.notify_all()

    def answer(self, job: str, envelope: bytearray) -> None:
        """The page's answer to an order."""
        with self._changed:
            self._answers[job] = envelope
            self._changed.notify_all()

    def broken(self, page: str) -> None:
        """The connection that a page polls on broke; it may come back."""
        with self._changed:
            if page == self._page and self._broken is None:
                self._broken = time.monotonic()
                self._changed.notify_all()

    # What the browser's watcher calls.

    def lost(self, reason: str) -> None:
        """The page is gone for certain."""
        with self._changed:
            self._fault = self._fault or reason
            self._page = None
            self._changed.notify_all()

    # What the backend calls.

    def send(self, order: Order) -> None:
        """Queue an order for the page."""
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()

    def forget(self) -> None:
        """Give up the present page; whatever polls next is the new one."""
        with self._changed:
            self._page, self.client = None, {}
            self._clear()

    def clear(self) -> None:
        """Give up orders that nobody took, answers that nobody waits for and the last fault."""
        with self._changed:
            self._clear()

    def introduced(self, seconds: float) -> dict[str, Any]:
        """What the page said about itself, waiting for it; empty if it does not."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.client), seconds)
            return self.client

    def reload(self, seconds: float) -> bool:
        """Have the page load itself anew; whether a new one came."""
        with self._changed:
            old = self._page
            self._orders.append({"op": "reload"})
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._page not in (None, old), seconds)

    def connected(self, seconds: float = 0.0) -> bool:
        """Whether a page serves this channel, waiting for one if need be."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (self._page is not None and self._alive()):
                rest = end - time.monotonic()
                if rest <= 0 or self._fault or self.closed:
                    return False
                self._changed.wait(min(rest, 0.5))
            return True

    def wait(self, job: str, seconds: float) -> bytearray:
        """The answer to a job.

        Raises:
            PageLost: the page went away before it answered.
            Late: the time is over.
        """
        end = time.monotonic() + seconds
        with self._changed:
            page = self._page
            while job not in self._answers:
                if self._fault or page != self._page or not self._alive():
                    raise PageLost(self._fault or "the page went away")
                rest = end - time.monotonic()
                if rest <= 0:
                    raise Late
                self._changed.wait(min(rest, 0.5))
            return self._answers.pop(job)

    def close(self) -> None:
        """End every poll."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _clear(self) -> None:
        self._orders.clear()
        self._answers.clear()
        self._fault = None
        self._changed.notify_all()

    def _take_over(self, page: str) -> None:
        self._page, self._fault, self._broken = page, None, None
        self.pages += 1
        self._changed.notify_all()

    def _alive(self) -> bool:
        now = time.monotonic()
        if self._broken is not None and now - self._broken > GRACE:
            return False
        return now - self._seen < SILENCE


def browser_name(client: dict[str, Any]) -> str:
    """``Chrome/156.0.0.0`` out of what a page said; the last product that is its own tells."""
    products = [word for word in str(client.get("browser", "")).split() if "/" in word]
    telling = [w for w in products if w.split("/")[0] not in ("Mozilla", "AppleWebKit", "Safari")]
    return (telling or products or ["unknown browser"])[-1]
