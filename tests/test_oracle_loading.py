"""Finding oracles: the three forms, their settings, and clear words where they cannot work."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from onnxreduce.errors import UsageError
from onnxreduce.oracle import loading
from onnxreduce.oracle.loading import find_oracle, list_oracles
from onnxreduce.oracle.runners import ExecutableRunner, PythonRunner

GOOD = '''
def interesting(case, *, atol=1e-3, count: int = 2, name: str = "x", strict=False,
                ratio: float | None = None, expected, mode=None):
    """Says yes."""
    return True
'''


def write(path: Path, text: str, mode: int = 0o644) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def refusal(spec: str, **settings: str) -> str:
    with pytest.raises(UsageError) as info:
        find_oracle(spec, settings)
    assert "\n" not in str(info.value)
    return str(info.value)


def test_python_file(tmp_path: Path) -> None:
    found = find_oracle(write(tmp_path / "o.py", GOOD), {"expected": "ort"})
    assert isinstance(found.open(), PythonRunner)
    assert found.settings == {"expected": "ort"}


def test_python_file_is_not_run(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\ndef interesting(case): return True\n"
    find_oracle(write(tmp_path / "o.py", trap))
    assert not (tmp_path / "ran").exists()


def test_function_inside_a_block_or_imported(tmp_path: Path) -> None:
    block = "try:\n    import numpy\nexcept ImportError:\n    pass\nelse:\n"
    block += "    def interesting(case): return True\n"
    assert not find_oracle(write(tmp_path / "a.py", block)).command
    imported = find_oracle(
        write(tmp_path / "b.py", "from helper import check as interesting"), {"n": "3", "m": "hi"}
    )
    assert imported.settings == {"n": 3, "m": "hi"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("atol", "1e-2", 0.01),
        ("count", "5", 5),
        ("name", "5", "5"),
        ("strict", "yes", True),
        ("strict", "False", False),
        ("ratio", "2", 2.0),
        ("ratio", "none", None),
        ("expected", "ort", "ort"),
        ("mode", "[1, 2]", [1, 2]),
        ("mode", "fast", "fast"),
    ],
)
def test_settings_are_converted(tmp_path: Path, name: str, text: str, value: object) -> None:
    settings = {"expected": "e", name: text}
    converted = find_oracle(write(tmp_path / "o.py", GOOD), settings).settings[name]
    assert converted == value
    assert type(converted) is type(value)


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    spec = write(tmp_path / "o.py", GOOD)
    message = refusal(spec, expected="e", atoll="1")
    assert "atol, count, name, strict, ratio, expected, mode" in message
    assert "did you mean atol?" in message
    assert "count must be int" in refusal(spec, expected="e", count="1.5")
    assert "strict must be bool" in refusal(spec, expected="e", strict="maybe")
    assert "ratio must be float or None" in refusal(spec, expected="e", ratio="x")
    assert "needs --set expected=VALUE" in refusal(spec)
    plain = write(tmp_path / "p.py", "def interesting(case): return True\n")
    assert "has no parameters" in refusal(plain, atol="1")


def test_number_default_takes_fractions(tmp_path: Path) -> None:
    spec = write(tmp_path / "o.py", "def interesting(case, ratio=2): return True\n")
    assert find_oracle(spec, {"ratio": "1.5"}).settings == {"ratio": 1.5}
    assert find_oracle(spec, {"ratio": "3"}).settings == {"ratio": 3}


def test_executables(tmp_path: Path) -> None:
    spec = write(tmp_path / "check", "#!/bin/sh\nexit 0\n", 0o755)
    found = find_oracle(spec)
    assert found.command == (spec,)
    assert isinstance(found.open(), ExecutableRunner)
    script = write(tmp_path / "check.py", "import sys\nsys.exit(len(sys.argv) != 3)\n")
    assert find_oracle(script).command == (sys.executable, script)
    assert "an executable" in refusal(script, atol="1")


@pytest.mark.parametrize(
    "text",
    [
        "def intresting(case):\n    return True\n",
        '"""Doc."""\nimport sys\nsys.path.insert(0, "x")\nLIMIT: float = 3\n'
        "def interesing(case): return False\n",
        "import logging\nlog = logging.getLogger()\ndef is_interesting(case): return log\n",
        "if True:\n    import os\nelse:\n    os = None\nclass A: pass\n",
        "",
    ],
)
def test_script_that_does_nothing_is_refused(tmp_path: Path, text: str) -> None:
    message = refusal(write(tmp_path / "o.py", text))
    assert "defines no interesting(case)" in message
    if "intresting" in text:
        assert "is intresting() meant?" in message


@pytest.mark.parametrize(
    "text",
    [
        "from helpers import *\nm = load()\nif m: no()\n",
        "def main(): return 1\nif __name__ == '__main__':\n    raise SystemExit(main())\n",
        "def main(): raise SystemExit(1)\nresult = main()\n",
        "for x in []: pass\n",
        "assert 1 == 2\n",
    ],
)
def test_script_that_does_something_is_taken(tmp_path: Path, text: str) -> None:
    assert find_oracle(write(tmp_path / "o.py", text)).command


def test_files_that_cannot_be_oracles(tmp_path: Path) -> None:
    assert "no such file" in refusal(str(tmp_path / "none.py"))
    assert "no such file" in refusal(str(tmp_path / "none"))
    assert "is a directory" in refusal(str(tmp_path))
    assert "not executable" in refusal(write(tmp_path / "data", "x"))
    assert "line 2: not valid Python" in refusal(
        write(tmp_path / "o.py", "x = 1\ndef interesting(:")
    )
    (tmp_path / "nul.py").write_bytes(b"x = 1\0\n")
    assert "not valid Python" in refusal(str(tmp_path / "nul.py"))
    assert "must take the case" in refusal(write(tmp_path / "p.py", "def interesting(): pass"))
    coroutine = "async def interesting(case): pass"
    assert "must not be async" in refusal(write(tmp_path / "q.py", coroutine))


@pytest.fixture
def ready_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with ready-made oracles, beside which this one looks."""
    package = tmp_path / "onnxreduce" / "__init__.py"
    write(package, "")
    monkeypatch.setattr(loading.onnxreduce, "__file__", str(package))
    write(tmp_path / "oracles" / "differs.py", GOOD)
    write(tmp_path / "oracles" / "_common.py", "")
    write(tmp_path / "oracles" / "broken.py", "def interesting(")
    return tmp_path


def test_ready_made_by_name(ready_made: Path) -> None:
    assert find_oracle("differs", {"expected": "x"}).path == ready_made / "oracles" / "differs.py"
    message = refusal("difers")
    assert "did you mean differs?" in message
    assert "broken, differs" in message


def test_ready_made_of_the_wheel_come_first(ready_made: Path) -> None:
    shipped = write(ready_made / "onnxreduce" / "_oracles" / "differs.py", GOOD)
    assert find_oracle("differs", {"expected": "x"}).path == Path(shipped)


def test_ready_made_name_or_file(ready_made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(
        write(ready_made / "here" / "differs", "#!/bin/sh\n", 0o755).rpartition("/")[0]
    )
    assert find_oracle("differs", {"expected": "x"}).path.suffix == ".py"
    assert find_oracle("./differs").path == ready_made / "here" / "differs"


def test_list(ready_made: Path) -> None:
    broken, differs = list_oracles()
    assert broken.summary.startswith("not usable")
    assert str(differs).startswith("differs: Says yes.\n    --set atol=0.001, count=2")
    assert differs.parameters[-2:] == ("expected", "mode=None")


def test_entry_points(tmp_path: Path, ready_made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "thirdparty_oracle_package" / "__init__.py", "")
    write(tmp_path / "thirdparty_oracle_package" / "mine.py", GOOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    group = loading.ENTRY_POINTS
    entries = [
        importlib.metadata.EntryPoint("mine", "thirdparty_oracle_package.mine", group),
        importlib.metadata.EntryPoint("gone", "thirdparty_oracle_package.gone", group),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    found = find_oracle("mine", {"expected": "x"})
    assert found.module == "thirdparty_oracle_package.mine"
    assert "reinstall" in refusal("gone")
    assert [info.name for info in list_oracles()] == ["broken", "differs", "mine", "gone"]


def test_fingerprint(tmp_path: Path) -> None:
    source = "import helper, pkg.inner\nimport numpy\ndef interesting(case, a=1): return True\n"
    spec = write(tmp_path / "o.py", source)
    write(tmp_path / "helper.py", "X = 1\n")
    write(tmp_path / "pkg" / "__init__.py", "")
    write(tmp_path / "pkg" / "inner.py", "Y = 1\n")
    write(tmp_path / "other.py", "Z = 1\n")
    before = find_oracle(spec).fingerprint()
    write(tmp_path / "other.py", "Z = 2\n")
    assert find_oracle(spec).fingerprint() == before
    assert find_oracle(spec).fingerprint("ort 1.20") != before
    assert find_oracle(spec, {"a": "2"}).fingerprint() != before
    seen = {before}
    for name, text in [
        ("helper.py", "X = 2\n"),
        ("pkg/inner.py", "Y = 2\n"),
        ("pkg/__init__.py", "Y = 2\n"),
        ("o.py", source + "\n"),
    ]:
        write(tmp_path / name, text)
        seen.add(find_oracle(spec).fingerprint())
    assert len(seen) == 5


def test_fingerprint_holds_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write(tmp_path / "o.py", "import numpy.linalg\ndef interesting(case): return True\n")
    before = find_oracle(spec).fingerprint()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} 99")
    assert find_oracle(spec).fingerprint() != before


@pytest.mark.parametrize(
    ("backend", "alone"),
    [
        ("ort", False),
        ("ort:ep=CPUExecutionProvider,opt=all", False),
        ("ort:ep=CUDAExecutionProvider+CPUExecutionProvider", True),
        ("openvino:device=GPU.0", True),
        ("openvino:device=CPU", False),
        ("web:wasm", False),
        ("web@1.23.2:wasm,bundle=ort.all.min.mjs", False),
        ("web:webgpu", True),
        ("web@1.23.2:webnn-gpu", True),
        ("web:wasm,cdp=http://127.0.0.1:9222", True),
        ("web:wasm,agent", True),
    ],
)
def test_default_jobs(
    backend: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.os, "sched_getaffinity", lambda _: range(6))
    found = find_oracle(write(tmp_path / "o.py", GOOD), {"expected": backend})
    assert found.jobs == (1 if alone else 6)
    own = find_oracle(write(tmp_path / "p.py", f"JOBS = 3\n{GOOD}"), {"expected": backend})
    assert own.jobs == 3
