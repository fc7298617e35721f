from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxreduce.backends import BackendError, open_backend
from onnxreduce.backends.child import crash_cause
from onnxreduce.errors import UsageError

RUN = "import os, signal, time\ndef run(model_path, inputs, mode='fine', factor=2.0):\n"


def plugin(tmp_path: Path, body: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(RUN + "\n".join(f"    {line}" for line in body.splitlines()) + "\n")
    return f"plugin:{path}"


def test_a_file_is_a_backend(tmp_path: Path) -> None:
    spec = plugin(tmp_path, "return {'y': inputs['x'] * factor, 'mode': len(mode)}")
    found = open_backend(f"{spec},factor=3,mode=ab").run("m", {"x": np.ones(2)})
    np.testing.assert_array_equal(found["y"], [3, 3])
    assert found["mode"] == 2
    assert open_backend(spec).version().startswith("mine.py ")
    with pytest.raises(UsageError, match=r"options of plugin: mode, factor"):
        open_backend(f"{spec},other=1")
    with pytest.raises(UsageError, match="factor is a number"):
        open_backend(f"{spec},factor=much")


def test_a_file_that_fails(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="run: ValueError: no") as caught:
        open_backend(plugin(tmp_path, "raise ValueError('no')")).run("m", {})
    assert caught.value.kind == "run"
    with pytest.raises(UsageError, match="returned list, not the outputs by name"):
        open_backend(plugin(tmp_path, "return []")).run("m", {})
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UsageError, match="has no function run"):
        open_backend(f"plugin:{tmp_path / 'empty.py'}")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(BackendError, match="cannot be imported") as caught:
        open_backend(f"plugin:{tmp_path / 'broken.py'}")
    assert caught.value.kind == "unsupported"
    with pytest.raises(BackendError, match="does not show intermediate values"):
        open_backend(plugin(tmp_path, "return {}")).run_all("m", {})


def test_a_crash_is_an_answer_and_the_next_run_is_fine(tmp_path: Path) -> None:
    spec = plugin(
        tmp_path,
        "if 'die' in inputs:\n"
        "    os.write(2, b'warning: odd\\nAssertion failed: x > 0\\nin kernel Foo\\nmore\\n')\n"
        "    os.abort()\n"
        "return {'y': inputs['x']}",
    )
    backend = open_backend(f"{spec},isolate")
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            backend.run("m", {"die": np.ones(1)})
        assert caught.value.kind == "crash"
        assert caught.value.message == "SIGABRT: Assertion failed: x > 0 in kernel Foo"
        assert "warning: odd" in caught.value.log
        np.testing.assert_array_equal(backend.run("m", {"x": np.ones(2)})["y"], [1, 1])
    backend.close()


def test_errors_come_back_from_the_child(tmp_path: Path) -> None:
    spec = plugin(tmp_path, "raise ValueError('no')")
    with (
        open_backend_closing(f"{spec},isolate") as backend,
        pytest.raises(BackendError, match="run: ValueError: no"),
    ):
        backend.run("m", {})


def open_backend_closing(spec: str):  # type: ignore[no-untyped-def]
    import contextlib

    return contextlib.closing(open_backend(spec))


def test_a_hang_ends_at_its_timeout(tmp_path: Path) -> None:
    from onnxreduce.backends.child import IsolatedBackend
    from onnxreduce.backends.spec import parse_spec

    spec = parse_spec(plugin(tmp_path, "time.sleep(60)"))
    backend = IsolatedBackend(spec, timeout=1.5)
    with pytest.raises(BackendError) as caught:
        backend.run("m", {})
    assert caught.value.kind == "timeout"
    backend.close()


@pytest.mark.parametrize(
    ("tail", "cause"),
    [
        ("", ""),
        ("Loading...\n[W] something failed\n", ""),
        (
            "thread '<unnamed>' panicked at src/lib.rs:1:2:\ncould not broadcast\nstack backtrace:",
            "thread '<unnamed>' panicked at src/lib.rs:1:2: could not broadcast",
        ),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  x\n",
            "terminate called after throwing an instance of 'std::bad_alloc' what():  x",
        ),
        ("Fatal Python error: Aborted\n\nThread 1: assert\n", ""),
    ],
)
def test_the_cause_of_a_crash(tail: str, cause: str) -> None:
    assert crash_cause(tail) == cause
