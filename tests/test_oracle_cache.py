"""The answers on disk, which are bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxreduce.oracle import cache
from onnxreduce.oracle.cache import Answer, Cache
from onnxreduce.verdict import Verdict

YES = Answer(Verdict.interesting("x" * 200), 0.1)


def test_answers_of_other_oracles_are_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST", 200_000)
    path = tmp_path / "answers.sqlite"
    old = Cache(path, "old")
    for number in range(500):
        old.add(str(number), YES)
    old.close()
    new = Cache(path, "new")
    for number in range(500):
        new.add(str(number), YES)
    assert all(new.answers(str(number)) for number in range(500))
    new.close()
    old = Cache(path, "old")
    left = [number for number in range(500) if old.answers(str(number))]
    assert 0 < len(left) < 500
    assert left == list(range(500))[-len(left) :]  # the newest


def test_one_oracle_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", 200_000)
    path = tmp_path / "answers.sqlite"
    answers = Cache(path, "f")
    for number in range(3000):
        answers.add(str(number), YES)
    assert answers.answers("2999")
    assert not answers.answers("0")
    answers.close()
    assert path.stat().st_size < 400_000


def test_nothing_is_forgotten_while_there_is_room(tmp_path: Path) -> None:
    answers = Cache(tmp_path / "answers.sqlite", "f")
    for number in range(600):
        answers.add(str(number), YES)
    assert answers.totals()[0] == 600
