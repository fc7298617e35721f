"""The tree of the answers to come: places where a walk may stand, and the steps between them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from onnxreduce.case import Case
from onnxreduce.verdict import Verdict
from onnxreduce.walk import Position, Walk


@dataclass(eq=False)
class Node:
    """A place in the tree of answers.

    Attributes:
        walks: stand at this question, until children go on with them.
        position: where that is; None where there is no question.
        coming: another walk on its way here.
        recording: of the case, ahead of time, where the walk is suspended without.
        recorded: the walk has gone on with that.
        failures: of passes, on the way here from the question before.
        children: after a no, after a yes.
        check, answer, began: what has been put to the desk, and when.
        verdict: known.
        alone: failed ahead of time, so to be asked only when its turn has come.
        dropped: it will not be asked.
    """

    walks: list[Walk]
    position: Position | None = None
    coming: Future[Walk] | None = None
    recording: Future[Case] | None = None
    recorded: bool = False
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    children: list[Node | None] = field(default_factory=lambda: [None, None])
    check: Future[str | None] | None = None
    answer: Future[Verdict] | None = None
    began: float = 0.0
    valid: bool = False
    verdict: Verdict | None = None
    alone: bool = False
    dropped: bool = False

    @classmethod
    def of(cls, walk: Walk) -> Node:
        node = cls([walk])
        node.look()
        return node

    def look(self) -> None:
        """Notes where the walk stands."""
        (walk,) = self.walks
        self.position = walk.position() if walk.question else None
        self.failures += walk.failures()


@dataclass(frozen=True)
class Edge:
    """A step that may be looked at: from a node by a reply; without one, the node itself.

    Attributes:
        depth: how many open questions there are on the way.
        chance: that the walk comes by.
        order: of being found.
    """

    depth: int
    chance: float
    order: int
    node: Node
    reply: bool | None = None

    def likeliest(self) -> tuple[float, int]:
        return -self.chance, self.order

    def soonest(self) -> tuple[int, float, int]:
        return self.depth, *self.likeliest()
