"""Virtual environments for other versions of a runtime: made on demand, kept, shared.

uv makes them where it is installed (it also finds or fetches a fitting Python); else venv and
pip with the Python that runs now. Which files are installed, and that they are what the index
says, is the installer's business. An environment carries a mark once it is whole, so a half-made
one is never used; a lock keeps two makers of the same one apart.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from onnxreduce.backends.base import BackendError, Info
from onnxreduce.backends.cache import cache_home, locked
from onnxreduce.errors import UsageError

WHOLE = "onnxreduce-complete"
"""The mark: a file in the environment's folder."""

NUMPY_2 = (1, 19)
"""The first onnxruntime built for numpy 2; older ones do not say that they need numpy 1."""

PYTHONS = {(1, 17): "3.11", (1, 20): "3.12"}
"""For uv: ONNX Runtime below this version has wheels up to that Python."""


def ort_environment(version: str, package: str = "onnxruntime") -> Path:
    """The interpreter of an environment with this version of ONNX Runtime; made if need be.

    Args:
        version: exact, such as ``1.17.0``.
        package: the distribution, such as ``onnxruntime-gpu``.

    Raises:
        UsageError: not a version.
        BackendError: ``unsupported``: it cannot be installed here; the message says why.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,3}(\.?(a|b|rc|dev|post)\d+)*", version):
        raise UsageError(f"ort@{version}: write a version of {package}, such as ort@1.23.2")
    release = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    wanted = [f"{package}=={version}", "numpy<2" if release < NUMPY_2 else "numpy"]
    python = next((python for below, python in sorted(PYTHONS.items()) if release < below), None)
    return environment(f"{package}-{version}", wanted, python)


def environment(name: str, packages: list[str], newest: str | None = None) -> Path:
    """The interpreter of the cached environment `name`; made with `packages` if need be.

    Args:
        name: of its folder.
        packages: requirements.
        newest: the newest Python that they support, where it is known to be an old one.

    Raises:
        BackendError: ``unsupported``: the packages cannot be installed.
    """
    tag = f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    home = cache_home() / "environments"
    folder = home / tag
    python = folder / "bin" / "python"
    with locked(home / f"{tag}.lock"):
        if not (folder / WHOLE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, packages, newest)
            (folder / WHOLE).touch()
    return python


def _make(folder: Path, packages: list[str], newest: str | None) -> None:
    print(f"onnxreduce: making {folder} with {' '.join(packages)} ...", file=sys.stderr)
    uv = shutil.which("uv")
    # The pip of this interpreter can install into another; a pip of its own takes seconds to make.
    ours = importlib.util.find_spec("pip") is not None
    try:
        if uv:
            here = f"{sys.version_info.major}.{sys.version_info.minor}"
            wanted = newest if newest and sys.version_info[:2] > _pair(newest) else here
            _run([uv, "venv", "--quiet", "--python", wanted, str(folder)])
            _run([uv, "pip", "install", "--quiet", "--python", str(folder), *packages])
        else:
            _run([sys.executable, "-m", "venv", *(["--without-pip"] if ours else []), str(folder)])
            python = str(folder / "bin" / "python")
            pip = (
                [sys.executable, "-m", "pip", "--python", python] if ours else [python, "-m", "pip"]
            )
            pip += ["--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:"]
            _run([*pip, *packages])
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        hint = "" if uv else "; uv, where installed, can fetch an older Python"
        raise BackendError(
            "unsupported",
            f"{packages[0]} cannot be installed for Python {sys.version.split()[0]}: "
            f"{_reason(error.stderr)} (another interpreter: ort:python=PATH{hint})",
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run(command: list[str]) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environ)


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _reason(text: str) -> str:
    """The line of an installer's output that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error|×|╰)", line)]
    return (errors or lines or ["no reason given"])[-1].removeprefix("ERROR: ")[:300]


def probe_versions() -> list[Info]:
    """Whether environments can be made, and those that there are."""
    made = sorted((cache_home() / "environments").glob(f"onnxruntime-*/{WHOLE}"))
    names = [mark.parent.name.rpartition("-py")[0] for mark in made]
    versions = [name.rpartition("-")[2] for name in names]
    maker = "uv" if shutil.which("uv") else "venv and pip"
    if maker != "uv" and not _has_pip():
        return [
            Info(
                "ort@VERSION",
                reason="neither uv nor venv with pip is here",
                fix="install uv, or the python3-venv package",
            )
        ]
    ready = f"; ready: {', '.join(dict.fromkeys(versions))}" if versions else ""
    return [Info("ort@VERSION", "any with a wheel", f"environments made with {maker}{ready}")]


def _has_pip() -> bool:
    return any(importlib.util.find_spec(name) for name in ("pip", "ensurepip"))
