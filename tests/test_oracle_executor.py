"""Several candidates at once: same verdicts, quick cancelling, nothing left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import onnx.parser
import onnx_ir as ir
import psutil
import pytest

from onnxreduce.case import Case
from onnxreduce.modelio import Store
from onnxreduce.oracle.cache import Cache
from onnxreduce.oracle.executor import Panel
from onnxreduce.oracle.judge import Judge
from onnxreduce.oracle.loading import find_oracle

ORACLE = """
import time
def interesting(case):
    size = len(case.model.graph.node)
    if size == 9:
        time.sleep(60)
    time.sleep(0.05)
    return size % 2 == 0
"""


def chain(length: int) -> Case:
    body = "".join(f"v{i + 1} = Relu (v{i}) " for i in range(length))
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] v0) => (float[2] v{length})'
    text = f"{head} {{ {body} }}"
    return Case(ir.from_proto(onnx.parser.parse_model(text)), {})


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[tuple[Judge, Panel]]:
    file = tmp_path / "oracle.py"
    file.write_text(ORACLE)
    source = find_oracle(str(file))
    runner = source.open()
    judge = Judge(runner, Cache(None, "f"), Store(tmp_path / "work", False), timeout=30)
    with Panel(judge, source.open, jobs=2) as panel:
        yield judge, panel
    runner.close()
    assert not [p for p in (tmp_path / "work").rglob("*") if p.is_file()]


def test_verdicts(judge) -> None:
    judge, panel = judge
    futures = [panel.submit(chain(n)) for n in range(1, 7)]
    assert [bool(f.result()) for f in futures] == [False, True] * 3
    assert (judge.calls, judge.cache_hits) == (6, 0)
    assert panel.submit(chain(2)).result()
    assert (judge.calls, judge.cache_hits) == (6, 1)


def test_at_the_same_time(judge) -> None:
    _, panel = judge
    for future in [panel.submit(chain(n)) for n in (1, 2)]:
        future.result()
    slow = panel.submit(chain(9))
    assert panel.submit(chain(4)).result(timeout=20)
    assert not slow.done()


def test_cancel_running_and_waiting(judge) -> None:
    judge, panel = judge
    running = [panel.submit(chain(9)), panel.submit(chain(9))]
    waiting = panel.submit(chain(2))
    time.sleep(1)
    begin = time.monotonic()
    panel.cancel(waiting)
    assert waiting.cancelled()
    for future in running:
        panel.cancel(future)
        with pytest.raises(CancelledError):
            future.result(timeout=10)
    assert time.monotonic() - begin < 10
    assert judge.calls == 0
    assert panel.submit(chain(2)).result(timeout=20)


def test_cancelled_questions_are_not_remembered(judge) -> None:
    judge, panel = judge
    future = panel.submit(chain(9))
    time.sleep(0.7)
    panel.cancel(future)
    with pytest.raises(CancelledError):
        future.result(timeout=10)
    judge.timeout = 0.3
    assert judge.judge(chain(9)).detail == "no answer within 0.3 s"


def test_cancel_what_is_done(judge) -> None:
    _, panel = judge
    future = panel.submit(chain(2))
    assert future.result(timeout=20)
    panel.cancel(future)
    assert future.result()


def test_close_gives_up_everything(judge) -> None:
    _, panel = judge
    futures = [panel.submit(chain(9)) for _ in range(5)]
    time.sleep(0.5)
    panel.close()
    assert all(future.done() for future in futures)
    mine = psutil.Process().children(recursive=True)
    assert not [p for p in mine if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_errors_arrive(judge, monkeypatch) -> None:
    judge, panel = judge
    monkeypatch.setattr(judge._store, "write", lambda case: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        panel.submit(chain(2)).result(timeout=20)
