from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxreduce.backends import BackendError, open_backend, versions
from onnxreduce.backends.versions import environment, probe_versions

METADATA = "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXREDUCE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "planted-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("planted.py", "ANSWER = 42\n")
        archive.writestr("planted-1.0.dist-info/METADATA", METADATA)
        archive.writestr("planted-1.0.dist-info/WHEEL", TAGS)
        archive.writestr("planted-1.0.dist-info/RECORD", "")
    return path


def test_two_makers_share_one_environment(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    make = versions._make

    def counted(folder: Path, packages: list[str], newest: str | None) -> None:
        made.append(folder)
        make(folder, packages, newest)

    monkeypatch.setattr(versions, "_make", counted)
    found: list[Path] = []
    makers = [
        threading.Thread(target=lambda: found.append(environment("planted-1.0", [str(wheel)])))
        for _ in range(2)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(made) == 1
    assert found[0] == found[1]
    said = subprocess.check_output([found[0], "-c", "import planted; print(planted.ANSWER)"])
    assert said.split() == [b"42"]
    assert environment("planted-1.0", [str(wheel)]) == found[0]
    assert len(made) == 1


def test_what_cannot_be_installed_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        BackendError, match=r"cannot be installed for Python .*python=PATH"
    ) as caught:
        environment("broken", [str(tmp_path / "missing-1.0-py3-none-any.whl")])
    assert caught.value.kind == "unsupported"
    left = [entry.name for entry in (tmp_path / "cache" / "environments").iterdir()]
    assert left == [f"broken-py{sys.version_info.major}.{sys.version_info.minor}.lock"]


def test_a_half_made_environment_is_made_again(wheel: Path, tmp_path: Path) -> None:
    tag = f"planted-py{sys.version_info.major}.{sys.version_info.minor}"
    half = tmp_path / "cache" / "environments" / tag
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").symlink_to(sys.executable)
    python = environment("planted", [str(wheel)])
    assert subprocess.call([python, "-c", "import planted"]) == 0


def test_the_list_names_the_maker() -> None:
    (info,) = probe_versions()
    assert info.spec == "ort@VERSION"
    assert info.usable == ("environments made with" in info.device)


@pytest.mark.slow
def test_another_version_of_onnxruntime(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    backend = open_backend("ort@1.23.2:opt=disable_all")
    assert backend.version() == "onnxruntime 1.23.2"
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    found = backend.run(str(tmp_path / "m.onnx"), {"x": x})
    np.testing.assert_array_equal(found["y"], np.maximum(x, 0))
    backend.close()
