"""Looking ahead: questions are put before it is certain that they will be asked.

The answers to come make a tree: after each question the walk goes one way on a yes, another way on
a no. The likeliest questions of that tree are put at the same time, best first, by the chance of a
yes (`chances`); what may be next after them is prepared: made, checked, and recorded if the walk
needs that. A pass can only go one way, so when it has gone ahead, another copy of it is brought to
the current question in the background, in case the answer is the other one. Answers are used
strictly in the order of the walk, so any number of jobs gives the same steps and the same result as
one; what was asked in vain costs time on a machine that had nothing better to do. Even with a
single job the next candidate is made and checked while the oracle is busy.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from onnxreduce.asking import Desk, Overdue
from onnxreduce.case import Case
from onnxreduce.chances import Chances
from onnxreduce.tree import Edge, Node
from onnxreduce.verdict import Verdict
from onnxreduce.walk import NotDeterministic, Question, Recorder, Walk

LEAST = 0.02
"""A question that is less likely than this to be asked is not worth preparing."""

GRACE = 1.5
"""Seconds that an oracle may go on with a question that will not be asked: about what a fresh
process needs to get warm, so killing sooner costs more than it saves."""

LIKELY = 0.15
"""A candidate that is accepted with this chance is worth recording before its answer is there."""

SPARE = 1
"""So many questions that will not be asked any more may run besides the jobs."""

PATIENT = 0.05
"""An oracle that takes so many seconds leaves time to prepare for either answer."""


HANDOVER = 0.002
"""Seconds that a thread of this process needs to hand a case over to the oracle."""


class Spent(Exception):
    """Questions that were put ahead of time have used up the budget."""


class Speculation:
    """A path (`engine.Path`) that looks ahead.

    Args:
        walk: at its beginning.
        recorded: gives recordings, and tells the user of them: only of those on the way taken.
        desk: answers.
        room: how many more questions the budget allows; None: any number.
    """

    def __init__(
        self,
        walk: Walk,
        recorded: Recorder,
        desk: Desk,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._recorded = recorded
        self._desk = desk
        self._room = room
        self._events: queue.SimpleQueue[tuple[Node, Future[Any]]] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replay")
        self._asked: set[Node] = set()
        self._chances = Chances()
        self._pace = 0.1
        self._order = itertools.count()
        walk.go_on(recorded)
        self._root = Node.of(walk)

    # --- the path ---

    def question(self) -> Question | None:
        position = self._root.position
        return None if position is None else position.question

    def failures(self) -> list[tuple[str, Exception]]:
        failed, self._root.failures = self._root.failures, []
        return failed

    def verdict(self, left: Callable[[], float | None] = lambda: None) -> Verdict:
        """The answer to the current question.

        Args:
            left: how many seconds may pass.

        Raises:
            Overdue: they have passed.
            Spent: the budget allows no question any more.
        """
        while True:
            self._absorb()
            if self._root.verdict is not None:
                return self._root.verdict
            self._fill()
            self._wait(left())

    def answer(self, yes: bool) -> None:
        """Goes on to the next question, and gives up those that were ahead on the other side."""
        root = self._root
        if root.position is not None:
            self._chances.learn(root.position, yes)
        child = root.children[yes]
        if child is None:
            child = Node.of(self._walk_on(root, yes))
        elif child.walks and child.walks[0].suspended:
            child.walks[0].go_on(self._recorded)
            child.look()
        elif child.recorded and child.recording is not None:
            self._recorded(child.recording.result())  # what there is to say of it is said now
        elif root.walks and child.position is not None:
            self._bring(child, root.walks.pop())
        root.children[yes] = None
        self._root = child
        self._absorb()
        if child.position is not None and child.verdict is None:
            # What may follow is prepared when the oracle is busy: see `verdict`.
            with contextlib.suppress(Spent):  # said when the verdict is asked for
                self._put(child, True)
        self._drop(root)

    def close(self) -> None:
        """Gives up whatever was put ahead of time."""
        self._drop(self._root)
        for node in self._asked:
            if node.answer is not None:
                self._desk.cancel(node.answer)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _walk_on(self, root: Node, yes: bool) -> Walk:
        assert root.position is not None
        try:
            if not root.walks:
                self._bring(root)
                assert root.coming is not None
                root.walks.append(root.coming.result())
        except NotDeterministic as error:
            walk = Walk.past(root.position, yes, error)
            walk.go_on(self._recorded)
        else:
            walk = root.walks.pop()
            walk.answer(yes, self._recorded)
        return walk

    def _bring(self, node: Node, spare: Walk | None = None) -> None:
        """Has another walk brought to a node, in the background."""
        assert node.position is not None
        if node.coming is None:
            bring = spare.follow if spare else Walk.at
            node.coming = self._thread.submit(bring, node.position)
            self._tell(node, node.coming)

    # --- ahead ---

    def _fill(self) -> None:
        """Puts the likeliest questions, as many as the desk takes; prepares what may follow them.

        Which questions are worth asking is a matter of their chance, which are worth preparing
        one of time: what may be next after the current question comes first, then what may be
        next after that. Otherwise a long row of likely noes would be prepared, and the question
        after an unlikely yes would only be made when everybody waits for it.
        """
        asks, checks = self._desk.jobs, self._desk.jobs + (self._pace > PATIENT)
        edges = [Edge(0, 1.0, next(self._order), self._root)]
        while edges and (asks or checks):
            edge = min(edges, key=Edge.likeliest if asks else Edge.soonest)
            edges.remove(edge)
            if edge.chance < LEAST:
                continue
            parent, yes = edge.node, edge.reply
            node = parent if yes is None else self._grow(parent, yes, edge.chance)
            if node is None or node.position is None:
                if node is not None:
                    self._record(parent, node, edge.chance)
                continue
            depth = edge.depth
            if node.verdict is None:
                if not self._put(node, asks > 0):
                    continue
                asks, checks = (asks - 1, checks) if asks else (asks, checks - 1)
                ahead = self._chances.yes(node.position)
                share = {True: ahead, False: 1 - ahead}
                depth += 1
            else:
                share = {bool(node.verdict): 1.0}
            for reply, part in share.items():
                chance = edge.chance * part
                edges.append(Edge(depth, chance, next(self._order), node, reply))
            if not self._events.empty():
                return

    def _grow(self, node: Node, yes: bool, chance: float) -> Node | None:
        """The place after an answer; None when it is not known or not worth the work."""
        assert node.position is not None
        child = node.children[yes]
        if child is not None:
            return child
        position = node.position
        missing = position.records and position.question.case.recording is None
        if yes and missing and not self._is_worth_recording(node, chance):
            return None
        # Whichever way the walk goes on, the other way will need another one.
        late = max(0.0, position.seconds - self._pace)
        if late * (1 - chance if node.walks else 1) > chance * self._pace:
            return None
        # A spare walk at the root is worth its while; further on one will come along with it.
        if not node.walks or (node is self._root and node.children[not yes] is None):
            self._bring(node)
        if not node.walks:
            return None
        walk = node.walks.pop()
        walk.answer(yes, _as_it_is)
        child = node.children[yes] = Node.of(walk)
        return child

    def _is_worth_recording(self, node: Node, chance: float) -> bool:
        """Is its candidate likely enough to be accepted, and is there time?"""
        return node.valid and chance >= LIKELY and self._pace > PATIENT

    def _record(self, node: Node, child: Node, chance: float) -> None:
        """Has a candidate recorded while the oracle looks at it, if a pass waits for that."""
        if not child.walks or not child.walks[0].suspended or child.recording is not None:
            return
        if self._is_worth_recording(node, chance):
            child.recording = self._desk.record(child.walks[0].case)
            self._tell(child, child.recording)

    def _put(self, node: Node, ask: bool) -> bool:
        """Has a candidate checked, then asked about; whether that is under way."""
        assert node.position is not None
        root = node is self._root
        if node.alone and not root:
            return False
        case = node.position.question.case
        if node.check is None:
            node.check = self._desk.check(case)
            self._tell(node, node.check)
        elif ask and node.valid and node.answer is None and (root or self._is_idle()):
            if self._is_asked(case) or not self._has_room():
                return True
            if root and not self._is_idle():
                self._make_room()
            node.began = time.monotonic()
            node.answer = self._desk.ask(case)
            self._asked.add(node)
            self._tell(node, node.answer)
            if root and self._pace > PATIENT:  # planning on would only take the interpreter away
                time.sleep(HANDOVER)
        return True

    def _is_asked(self, case: Case) -> bool:
        """Is the same question under way? Then its answer will be remembered."""
        busy = (node.position for node in self._asked)
        return any(each and each.question.case.digest == case.digest for each in busy)

    def _is_idle(self) -> bool:
        """Losers do not count while they last: for the moment they have one process too many."""
        losers = sum(node.dropped for node in self._asked)
        return len(self._asked) - min(losers, SPARE) < self._desk.jobs

    def _has_room(self) -> bool:
        """Does the budget allow another question? What is under way may still be given up."""
        room = self._room()
        if room is not None and room <= 0 and not self._asked:
            raise Spent
        return room is None or len(self._asked) < room

    def _make_room(self) -> None:
        """The current question must not wait for a slow one that nobody may ask."""
        if self._pace > GRACE:
            idle = max(self._asked, key=lambda node: (node.dropped, node.began))
            assert idle.answer is not None
            self._desk.cancel(idle.answer)

    def _tell(self, node: Node, future: Future[Any]) -> None:
        future.add_done_callback(lambda done: self._events.put((node, done)))

    # --- what comes back ---

    def _wait(self, left: float | None) -> None:
        """Until something is known."""
        losers = any(node.dropped for node in self._asked)
        limit = GRACE / 2 if losers else None
        if left is not None:
            limit = min(limit or left, left)
        try:
            self._take(*self._events.get(timeout=limit and max(limit, 0)))
        except queue.Empty:
            if left is not None and left <= (limit or 0):
                raise Overdue from None
        self._kill_losers()

    def _absorb(self) -> None:
        while not self._events.empty():
            self._take(*self._events.get())

    def _take(self, node: Node, future: Future[Any]) -> None:
        if future is node.coming:
            node.coming = None
            if not future.cancelled() and future.exception() is None and not node.dropped:
                node.walks.append(future.result())
            return
        if future is node.recording:
            self._take_recording(node, node.recording)
            return
        checked = future is node.check
        self._asked.difference_update(() if checked else (node,))
        try:
            said = future.result()
        except CancelledError:
            node.check = None if checked else node.check
            node.answer = None
            return
        except Exception:
            if node is self._root:
                raise
            node.alone, node.answer = True, None
            node.check = None if checked else node.check
            return
        if isinstance(said, Verdict):
            node.verdict = said
            self._pace += (time.monotonic() - node.began - self._pace) / 8
        elif said is None:
            node.valid = True
        else:
            node.verdict = Verdict.invalid(said)

    def _take_recording(self, node: Node, recording: Future[Case]) -> None:
        """Lets the walk go on that waits for it; what fails is tried again in its turn."""
        if recording.cancelled() or recording.exception() is not None:
            return
        if node.walks and node.walks[0].suspended:
            recorded = recording.result()
            node.walks[0].go_on(lambda _: recorded)
            node.recorded = True
            node.look()

    def _drop(self, node: Node) -> None:
        """A node and all below it will not be asked."""
        doomed = [node]
        while doomed:
            node = doomed.pop()
            node.dropped = True
            node.walks = []
            if node.recording is not None:
                node.recording.cancel()
            if node.check is not None and node.position is not None:
                case = node.position.question.case
                node.check.cancel()
                node.check.add_done_callback(partial(self._release, case))
            if node.answer is not None:
                node.answer.cancel()
            doomed += [child for child in node.children if child is not None]
        self._kill_losers()

    def _release(self, case: Case, check: Future[str | None]) -> None:
        if not check.cancelled():
            self._desk.release(case)

    def _kill_losers(self) -> None:
        now = time.monotonic()
        for node in self._asked:
            if node.dropped and node.answer is not None and now - node.began > GRACE:
                self._desk.cancel(node.answer)


def _as_it_is(case: Case) -> Case | None:
    return case if case.recording is not None else None
