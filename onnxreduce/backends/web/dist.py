"""onnxruntime-web by version: fetched once with npm, checked, kept in the user's cache."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path, PurePosixPath

from onnxreduce.backends.cache import cache_home
from onnxreduce.backends.web import npm
from onnxreduce.errors import UsageError

PACKAGE = "onnxruntime-web"
DIST_VARIABLE = "ONNXREDUCE_WEB_DIST"
"""A folder to take the bundles from when the spec has no ``dist=``; set by ``--web-dist``."""
HINT = f"give the dist folder of an unpacked {PACKAGE} with dist=DIR (or --web-dist DIR)"


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
    dist = local(given) if given else fetch(version)
    if not (dist / bundle).is_file():
        there = ", ".join(sorted(p.name for p in dist.glob("ort*.min.mjs"))) or "no bundle at all"
        raise UsageError(f"{dist} has no {bundle}: choose with bundle= among {there}")
    return dist, _version_of(dist) or version


def fetch(version: str) -> Path:
    """The ``dist`` folder of a version, downloaded if it is not in the cache yet."""
    if not version[0].isdigit():
        version = npm.view(PACKAGE, version, "version", HINT)
    target = cache_home() / PACKAGE / version
    return npm.ensure(PACKAGE, version, target, _unpack, HINT) / "dist"


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


def local(folder: Path) -> Path:
    """The ``dist`` folder in a folder, absolute.

    Raises:
        UsageError: there is none with a bundle in it.
    """
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
