"""onnxruntime-web by version: fetched once with npm, checked, kept in the user's cache."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from onnxreduce.backends.base import BackendError
from onnxreduce.errors import UsageError

PACKAGE = "onnxruntime-web"
DIST_VARIABLE = "ONNXREDUCE_WEB_DIST"
"""A folder to take the bundles from when the spec has no ``dist=``; set by ``--web-dist``."""


def cache_home() -> Path:
    """Where downloads are kept: the platform's cache directory for this user."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "onnxreduce"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file: several workers may want the same download at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find(version: str, bundle: str, folder: Path | None = None) -> tuple[Path, str]:
    """The folder that holds a bundle, and the version found there.

    Args:
        version: on npm; a tag such as ``latest`` is looked up.
        bundle: file name that must be there.
        folder: a ``dist`` folder (or the package around it) to use instead of a download.

    Raises:
        UsageError: no such bundle or folder, or the download is not what was published.
        BackendError: ``unsupported``: npm is missing, or has no such version.
    """
    given = folder or (Path(os.environ[DIST_VARIABLE]) if os.environ.get(DIST_VARIABLE) else None)
    dist = _local(given) if given else fetch(version)
    if not (dist / bundle).is_file():
        there = ", ".join(sorted(p.name for p in dist.glob("ort*.min.mjs"))) or "no bundle at all"
        raise UsageError(f"{dist} has no {bundle}: choose with bundle= among {there}")
    return dist, _version_of(dist) or version


def fetch(version: str) -> Path:
    """The ``dist`` folder of a version, downloaded if it is not in the cache yet."""
    if not version[0].isdigit():
        version = _view(version, "version")
    target = cache_home() / PACKAGE / version
    if not target.is_dir():
        with locked(target.parent / f"{version}.lock"):
            if not target.is_dir():
                _download(version, target)
    return target / "dist"


def _download(version: str, target: Path) -> None:
    integrity = _view(version, "dist.integrity")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{version}-") as temporary:
        scratch = Path(temporary)
        _npm("pack", f"{PACKAGE}@{version}", "--json", "--pack-destination", str(scratch))
        archive = next(scratch.glob("*.tgz"))
        check(archive, integrity)
        _unpack(archive, scratch / "package")
        (scratch / "package").rename(target)


def check(archive: Path, integrity: str) -> None:
    """Compare a file with its subresource-integrity string (``sha512-BASE64``).

    Raises:
        UsageError: they differ.
    """
    name, _, wanted = integrity.partition("-")
    with archive.open("rb") as handle:
        found = base64.b64encode(hashlib.file_digest(handle, name).digest()).decode()
    if found != wanted:
        raise UsageError(f"{archive.name}: its {name} is not the published one; try again")


def _unpack(archive: Path, target: Path) -> None:
    """Keep the modules and their wasm; the rest is source maps and other module forms."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            wanted = path.parts[1:2] == ("dist",) and path.suffix in (".mjs", ".wasm")
            if member.isfile() and (wanted or path.parts[1:] == ("package.json",)):
                tar.extract(member, target.parent, filter="data")
    if not (target / "dist").is_dir():
        raise UsageError(f"{archive.name}: no dist folder inside; is it {PACKAGE}?")


def _view(version: str, what: str) -> str:
    text = _npm("view", f"{PACKAGE}@{version}", what, "--json").strip()
    if not text:
        raise UsageError(f"npm has no {PACKAGE}@{version}; `npm view {PACKAGE} versions` has all")
    found = json.loads(text)
    return str(found[-1] if isinstance(found, list) else found)


def _npm(*arguments: str) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise BackendError(
            "unsupported",
            f"npm is needed to fetch {PACKAGE} and is not installed: install Node.js, or give the "
            f"dist folder of an unpacked {PACKAGE} with dist=DIR (or --web-dist DIR)",
        )
    done = subprocess.run(
        [npm, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        complaints = [line for line in done.stderr.splitlines() if line.startswith("npm err")]
        said = next((line for line in complaints if "code" not in line), done.stderr.strip()[-200:])
        raise BackendError("unsupported", f"npm {arguments[0]} {arguments[1]} failed: {said}")
    return done.stdout


def _local(folder: Path) -> Path:
    for dist in (folder, folder / "dist", folder / PACKAGE / "dist"):
        if any(dist.glob("ort*.mjs")):
            return dist.resolve()
    raise UsageError(f"{folder}: no onnxruntime-web bundle (ort*.mjs) in there or in its dist/")


def _version_of(dist: Path) -> str | None:
    manifest = dist.parent / "package.json"
    if not manifest.is_file():
        return None
    content = json.loads(manifest.read_text())
    return content.get("version") if content.get("name") == PACKAGE else None
