"""The local server that a page works for.

It hands out the page, one version of onnxruntime-web, the blobs of the running job and orders
(by long poll), and takes answers. It binds loopback unless told otherwise, everything lives below
a random token, and the Host header is checked, so that a web page that happens to be open in the
same browser can neither guess an address nor rebind a name of its own to this server.
"""

from __future__ import annotations

import ipaddress
import json
import mimetypes
import re
import secrets
import select
import shutil
import socket
import threading
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from onnxreduce.backends.web.channel import Channel
from onnxreduce.errors import UsageError

ASSETS = Path(__file__).parent
_PAGE_FILES = {"": "page.html", "page.js": "page.js", "runner.js": "runner.js"}
_DIST_FILE = re.compile(r"[\w-][\w.-]*\.(?:mjs|js|wasm)")
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}
POLL_SECONDS = 20.0
LARGEST_ANSWER = 8 << 30

Blob = Path | list[bytes | memoryview]


class Server:
    """Serves one channel.

    Attributes:
        channel: where orders and answers go.
        token: the first part of every path.
        blobs: what a job needs, by name; a file, or parts to send one after another.
    """

    def __init__(
        self,
        dist: Path,
        channel: Channel,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self.dist = dist
        self.channel = channel
        self.token = token or secrets.token_urlsafe(18)
        self.address = address
        self.blobs: dict[str, Blob] = {}
        try:
            self._http = _Http((address, port), self)
        except OSError as error:
            raise UsageError(f"cannot listen on {address}:{port}: {error.strerror}") from error
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="onnxreduce-web", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The page's address, with the token."""
        host = socket.gethostname() if self.address in ("0.0.0.0", "::") else self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{self.token}/"

    @property
    def private(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(str(self._http.server_address[0])).is_loopback

    def close(self) -> None:
        """Stop serving; polls end."""
        self.channel.close()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def allows(self, host: str) -> bool:
        """Whether a Host header names this server and not a stranger's domain."""
        name = urlsplit(f"//{host}").hostname or ""
        if name in {"localhost", "127.0.0.1", "::1", self.address}:
            return True
        if self.address not in ("0.0.0.0", "::"):
            return False
        return name in {socket.gethostname(), socket.getfqdn()} or _is_literal(name)


def _is_literal(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, where: tuple[str, int], owner: Server) -> None:
        self.owner = owner
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break whenever a browser is killed: the channel's matter, not stderr's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "onnxreduce"
    disable_nagle_algorithm = True  # 48 ms -> 11 ms a small fetch
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the token would be in every line."""

    def do_GET(self) -> None:
        where = self._admitted()
        if where is None:
            return
        area, _, name = where.partition("/")
        if where in _PAGE_FILES:
            self._send_file(ASSETS / _PAGE_FILES[where], cached=False)
        elif area == "ort" and _DIST_FILE.fullmatch(name) and self._dist(name).is_file():
            self._send_file(self._dist(name), cached=True)
        elif area == "blob" and name in self.server.owner.blobs:
            self._send_blob(self.server.owner.blobs[name])
        elif where == "next":
            self._send_order()
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        where = self._admitted()
        if where is None:
            return
        size = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= size <= LARGEST_ANSWER:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        area, _, name = where.partition("/")
        if area not in ("answer", "hello"):
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        body = self._read(size)
        if area == "answer":
            self.server.owner.channel.answer(name, body)
        else:
            self.server.owner.channel.hello(json.loads(body))
        self._head(HTTPStatus.NO_CONTENT, "text/plain", 0)

    def _admitted(self) -> str | None:
        """The path below the token, or ``None`` when the request was turned away."""
        owner = self.server.owner
        parts = urlsplit(self.path)
        token, _, rest = parts.path.removeprefix("/").partition("/")
        self.query = parse_qs(parts.query)
        origin = self.headers.get("Origin")
        if not owner.allows(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif origin is not None and not owner.allows(urlsplit(origin).netloc):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(token.encode(), owner.token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            return rest
        return None

    def _dist(self, name: str) -> Path:
        return self.server.owner.dist / name

    def _read(self, size: int) -> bytearray:
        body = bytearray(size)
        view, at = memoryview(body), 0
        while at < size:
            got = self.rfile.readinto(view[at:])
            if not got:
                raise ConnectionError("the page stopped sending")
            at += got
        return body

    def _send_order(self) -> None:
        page = self.query.get("page", [""])[0]
        new = self.query.get("new") == ["1"]
        order = self._wait_for_order(page, new)
        if order is not None:
            body = json.dumps(order).encode()
            self._head(HTTPStatus.OK, "application/json", len(body))
            self.wfile.write(body)

    def _wait_for_order(self, page: str, new: bool) -> dict[str, object] | None:
        """Poll in slices, and look between them whether the browser has hung up."""
        channel = self.server.owner.channel
        for slice_ in range(int(POLL_SECONDS / 0.5)):
            order = channel.poll(page, 0.5, new=new and slice_ == 0)
            if order["op"] != "idle":
                return order
            if select.select([self.connection], [], [], 0)[0] and not self._peek():
                channel.broken(page)
                self.close_connection = True
                return None
        return {"op": "idle"}

    def _peek(self) -> bytes:
        try:
            return bytes(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return b""

    def _send_file(self, path: Path, *, cached: bool) -> None:
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
        with path.open("rb") as handle:
            self._head(HTTPStatus.OK, kind, path.stat().st_size, cached=cached)
            shutil.copyfileobj(handle, self.wfile, 1 << 20)

    def _send_blob(self, blob: Blob) -> None:
        if isinstance(blob, Path):
            self._send_file(blob, cached=False)
            return
        self._head(HTTPStatus.OK, "application/octet-stream", sum(map(len, blob)))
        self._write(blob)

    def _write(self, parts: Iterable[bytes | memoryview]) -> None:
        for part in parts:
            self.wfile.write(part)

    def _refuse(self, status: HTTPStatus) -> None:
        self._head(status, "text/plain", 0, last=True)

    def _head(
        self, status: HTTPStatus, kind: str, size: int, *, cached: bool = False, last: bool = False
    ) -> None:
        self.send_response(status)
        if last or self.server.owner.channel.closed:
            self.send_header("Connection", "close")  # ends this handler's loop, too
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "max-age=86400" if cached else "no-store")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
