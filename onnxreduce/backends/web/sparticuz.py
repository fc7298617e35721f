"""A Chromium from npm, with a WebNN that works: ``browser=sparticuz[@VERSION]``.

Distributions build Chromium without the libraries behind WebNN, so that `navigator.ml` is there
and every `createContext` fails. The package ``@sparticuz/chromium`` (x86-64 Linux) carries a build
in which wasm, WebGPU, WebGL and WebNN all run. It is meant for headless use on servers; of its
many switches none is needed here.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

from onnxreduce.backends.base import BackendError
from onnxreduce.backends.cache import cache_home
from onnxreduce.backends.web import npm
from onnxreduce.errors import UsageError

NAME = "sparticuz"
PACKAGE = "@sparticuz/chromium"
VERSION = "153.0.0"
"""Known to work; others are `browser=sparticuz@VERSION`."""
HINT = "name a browser with browser=PATH"
FILES = ("chromium.br", "swiftshader.tar.br")
_EXPAND = """
const [from, to] = process.argv.slice(1);
const { createReadStream, createWriteStream } = require('fs');
const { createBrotliDecompress } = require('zlib');
require('stream').pipeline(
  createReadStream(from), createBrotliDecompress(), createWriteStream(to),
  (error) => { if (error) { console.error(error.message); process.exit(1); } });
"""


def named(browser: str) -> bool:
    """Whether an option's value means this package and no path."""
    return browser == NAME or browser.startswith(f"{NAME}@")


def folder(browser: str = NAME) -> Path:
    """Where it is, or will be, in the cache."""
    return cache_home() / "chromium" / f"{NAME}-{browser.partition('@')[2] or VERSION}"


def fetch(browser: str = NAME) -> str:
    """The executable, downloaded (70 MB) and unpacked (190 MB) if it is not in the cache yet.

    Raises:
        UsageError: the package has no such version, or is not what was published.
        BackendError: ``unsupported``: npm or node is missing, or fails.
    """
    version = browser.partition("@")[2] or VERSION
    return str(npm.ensure(PACKAGE, version, folder(browser), _unpack, HINT) / "chromium")


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            source = tar.extractfile(member) if name in FILES else None
            if source is not None:
                with (target / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    for name in FILES:
        if not (target / name).is_file():
            raise UsageError(f"{archive.name}: no {name} inside; is it {PACKAGE}?")
        _expand(target / name)
    with tarfile.open(target / "swiftshader.tar") as tar:
        tar.extractall(target, filter="data")
    (target / "swiftshader.tar").unlink()
    (target / "chromium").chmod(0o755)


def _expand(path: Path) -> None:
    """Unpack a brotli file beside itself: Node.js can, and is there where npm is."""
    command = ["node", "-e", _EXPAND, str(path), str(path.with_suffix(""))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except FileNotFoundError as error:
        raise BackendError("unsupported", f"node is needed to unpack {PACKAGE}") from error
    if done.returncode:
        raise BackendError("unsupported", f"cannot unpack {path.name}: {done.stderr.strip()}")
    path.unlink()
