"""The reduction as a walk from question to question, which can be taken again from any place.

A pass is a deterministic generator, so where a reduction stands is told by the case with which the
current pass began and by what the pass has been sent since. Sending it the same things again leads
to the same question: that is how a walk is forked, to see what would be asked after either answer.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Edit, Proposals

Recorder = Callable[[Case], Case | None]
"""Gives a case with its intermediate values; ``None``: not now."""


class Stage(Protocol):
    """A place in the schedule: which pass runs, and whether it is worth running now."""

    @property
    def name(self) -> str: ...

    @property
    def records(self) -> bool:
        """Does the pass need recorded values?"""

    def wanted(self, case: Case) -> bool:
        """Asked each time the schedule comes here; may remember what it was asked."""

    def edits(self, case: Case) -> Proposals: ...


@dataclass(frozen=True)
class Question:
    """A candidate, and where it comes from."""

    stage: str
    edit: str
    case: Case


@dataclass(frozen=True)
class Position:
    """Where a walk stands at a question: enough to stand there again.

    Attributes:
        stages, index: the schedule, and where in it the walk is.
        round: which round of the schedule this is; the first is 1.
        before: digest of the case with which the round began.
        asked: how many questions the pass has asked before this one.
        start: the case with which the pass began.
        case: the current case.
        sent: what the pass has been sent so far.
        seconds: how long the pass took to come this far, so about what a replay takes.
        question: what is asked here.
    """

    stages: tuple[Stage, ...]
    index: int
    round: int
    before: str
    asked: int
    start: Case
    case: Case
    sent: tuple[Case | None, ...]
    seconds: float
    question: Question

    @property
    def records(self) -> bool:
        """Does the pass that asks need a recording of what it has accepted?"""
        return self.stages[self.index].records


class NotDeterministic(Exception):
    """A pass proposed something else when it was run again with the same answers."""


class Walk:
    """Walks through the stages until a whole round of them changes nothing.

    Attributes:
        case: the current case.
        question: what is to be answered next; ``None`` at the end, and while `suspended`.
        finished: the fixpoint is reached.
        suspended: going on needs a recording that the recorder did not give.
    """

    def __init__(self, case: Case, stages: Sequence[Stage]) -> None:
        self.case = case
        self.question: Question | None = None
        self.finished = False
        self.suspended = False
        self._failures: list[tuple[str, Exception]] = []
        self._stages = tuple(stages)
        self._index = -1
        self._round = 1
        self._before = case.digest
        self._asked = 0
        self._start = case
        self._stage: Stage | None = None
        self._proposals: Proposals | None = None
        self._sent: list[Case | None] = []
        self._reply: Case | None = None
        self._unrecorded = False
        self._seconds = 0.0
        self._snapshot: tuple[Stage, ...] | None = None

    def go_on(self, recorded: Recorder) -> None:
        """To the next question, or to where it ends."""
        self.suspended = False
        while self.question is None:
            if self._stage is None and not self._next_stage():
                self.finished = True
                return
            if self._unrecorded and not self._record(recorded):
                self.suspended = True
                return
            self._step()

    def answer(self, yes: bool, recorded: Recorder) -> None:
        """Takes an answer to the question, and goes on."""
        assert self.question is not None
        self._asked += 1
        if yes:
            self.case = self._reply = self.question.case
            self._unrecorded = self._stage is not None and self._stage.records
        self.question = None
        self.go_on(recorded)

    def failures(self) -> list[tuple[str, Exception]]:
        """Stages that failed by a mistake of their own, and were left out, since the last call."""
        failed, self._failures = self._failures, []
        return failed

    def position(self) -> Position:
        """Where it stands; there must be a question."""
        assert self.question is not None
        if self._snapshot is None:
            self._snapshot = copy.deepcopy(self._stages)
        return Position(
            self._snapshot,
            self._index,
            self._round,
            self._before,
            self._asked,
            self._start,
            self.case,
            tuple(self._sent),
            self._seconds,
            self.question,
        )

    @classmethod
    def at(cls, position: Position) -> Walk:
        """A walk of its own that stands there.

        Raises:
            NotDeterministic: the pass does not lead there again.
        """
        walk = cls(position.case, position.stages)
        walk._start = position.start
        walk._stage = position.stages[position.index]
        walk._proposals = walk._stage.edits(position.start)
        walk._send(position)
        return walk

    def follow(self, position: Position) -> Walk:
        """A walk that stands there: this one, if that is further on in the same pass.

        Raises:
            NotDeterministic: see `at`.
        """
        same = self._start is position.start and self._index == position.index
        if not same or self._sent != list(position.sent[: len(self._sent)]):
            return Walk.at(position)
        self._send(position)
        return self

    def _send(self, position: Position) -> None:
        """Brings the pass to a position further on, without making the candidates again."""
        assert self._proposals is not None
        replies = position.sent[len(self._sent) :]
        began = time.perf_counter()
        try:
            edits = [self._proposals.send(reply) for reply in replies]
        except Exception as error:
            raise NotDeterministic(f"{type(error).__name__}: {error}") from error
        self._seconds += time.perf_counter() - began
        if edits and edits[-1].describe() != position.question.edit:
            raise NotDeterministic(f"{edits[-1].describe()} instead of {position.question.edit}")
        self._sent = list(position.sent)
        self._asked = position.asked
        # A pass may begin with the same case in two rounds: all but its proposals is taken over.
        self._index, self._round, self._before = position.index, position.round, position.before
        self._snapshot = position.stages
        self._stages = copy.deepcopy(position.stages)
        self._reply = None
        self.case, self.question = position.case, position.question

    @classmethod
    def past(cls, position: Position, yes: bool, error: NotDeterministic) -> Walk:
        """A walk that gives up the pass that asked, since it cannot be replayed."""
        case = position.question.case if yes else position.case
        walk = cls(case, copy.deepcopy(position.stages))
        walk._index = position.index
        walk._round = position.round
        walk._before = position.before
        walk._failures.append((position.question.stage, error))
        return walk

    def _next_stage(self) -> bool:
        """Whether there is one that is wanted; False at the end of a round without a change."""
        while True:
            self._index += 1
            if self._index == len(self._stages):
                if self.case.digest == self._before:
                    return False
                self._before, self._index = self.case.digest, 0
                self._round += 1
            stage = self._stages[self._index]
            if stage.wanted(self.case):
                self._stage = stage
                self._proposals = self._snapshot = None
                self._unrecorded = stage.records
                return True

    def _record(self, recorded: Recorder) -> bool:
        case = recorded(self.case)
        if case is None:
            return False
        if self._reply is not None:
            self._reply = case
        self.case, self._unrecorded = case, False
        return True

    def _step(self) -> None:
        """Lets the pass propose once."""
        assert self._stage is not None
        began = time.perf_counter()
        try:
            if self._proposals is None:
                self._start, self._sent, self._seconds = self.case, [], 0.0
                self._asked = 0
                self._proposals = self._stage.edits(self.case)
            reply, self._reply = self._reply, None
            edit = self._proposals.send(reply)
            self._sent.append(reply)
            self._seconds += time.perf_counter() - began
            candidate = smaller(edit, self.case)
            if candidate is not None:
                self.question = Question(self._stage.name, edit.describe(), candidate)
        except StopIteration:
            self._stage = None
        except Exception as error:  # what was reached so far must not be lost with it
            self._failures.append((self._stage.name, error))
            self._stage = None


def smaller(edit: Edit, case: Case) -> Case | None:
    """The candidate that an edit makes of a case; None when it does not fit or is no smaller."""
    try:
        candidate = edit.apply(case)
    except Conflict:
        return None
    return candidate if candidate.is_smaller(case) else None
