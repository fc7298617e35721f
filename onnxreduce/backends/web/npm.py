"""Packages from npm: fetched by version, checked against what was published."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from onnxreduce.backends.base import BackendError
from onnxreduce.backends.cache import locked
from onnxreduce.errors import UsageError


def ensure(
    package: str, version: str, target: Path, unpack: Callable[[Path, Path], None], hint: str
) -> Path:
    """The unpacked package, fetched if it is not there yet; several processes may ask at once.

    Args:
        package: its name on npm.
        version: exact.
        target: the folder to be; it appears complete or not at all.
        unpack: takes the archive and the folder to fill.
        hint: what to do where there is no npm.

    Raises:
        UsageError: no such version, or the download is not what was published.
        BackendError: ``unsupported``: npm is missing, or fails.
    """
    if target.is_dir():
        return target
    with locked(target.parent / f"{target.name}.lock"):
        if not target.is_dir():
            integrity = view(package, version, "dist.integrity", hint)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
                scratch = Path(temporary)
                where = ("--json", "--pack-destination", temporary)
                _npm(hint, "pack", f"{package}@{version}", *where)
                archive = next(scratch.glob("*.tgz"))
                check(archive, integrity)
                unpack(archive, scratch / "package")
                (scratch / "package").rename(target)
    return target


def view(package: str, version: str, what: str, hint: str) -> str:
    """A field of a published version, which may be a tag such as ``latest``."""
    text = _npm(hint, "view", f"{package}@{version}", what, "--json").strip()
    if not text:
        raise UsageError(f"npm has no {package}@{version}; `npm view {package} versions` has all")
    found = json.loads(text)
    return str(found[-1] if isinstance(found, list) else found)


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


def _npm(hint: str, *arguments: str) -> str:
    npm = shutil.which("npm")
    what = arguments[1].rpartition("@")[0]
    if npm is None:
        raise BackendError(
            "unsupported",
            f"npm is needed to fetch {what} and is not installed: install Node.js, or {hint}",
        )
    done = subprocess.run(
        [npm, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        complaints = [line for line in done.stderr.splitlines() if line.startswith("npm err")]
        said = next((line for line in complaints if "code" not in line), done.stderr.strip()[-200:])
        raise BackendError("unsupported", f"npm {arguments[0]} {arguments[1]} failed: {said}")
    return done.stdout
