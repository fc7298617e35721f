"""How likely the next answer is a yes: what to prepare while the oracle is busy with this one.

Passes differ more than questions of one pass do. Nearly every first question of `tidy` gets a
yes, and nearly every answer is a no when a pass comes round again. So what is believed at first
comes from a table of what passes got on real bugs, and is then learned from this run.
"""

from __future__ import annotations

from collections import defaultdict

from onnxreduce.walk import Position

MEMORY = 0.95
"""How much of what was learned is left after each further answer of the same kind."""

WORTH = 3.0
"""So many answers the table is worth against those of the run."""

FIRST, AFTER_NO, AFTER_YES = range(3)

AGAIN = (0.05, 0.03, 0.3)
"""Of any pass, once all have run: the round that proves that nothing more can go."""

UNKNOWN = (0.4, 0.2, 0.4)
"""Of a pass that is not in the table."""

MEASURED: dict[str, tuple[float, float, float]] = {
    "cuts": (0.5, 0.45, 0.65),
    "suspects": (0.75, 0.25, 0.3),
    "outputs": (0.2, 0.4, 0.3),
    "merge": (0.75, 0.6, 0.5),
    "nodes": (0.1, 0.03, 0.4),
    "bypass": (0.05, 0.04, 0.3),
    "inputs": (0.9, 0.3, 0.85),
    "inline": (0.25, 0.2, 0.3),
    "subgraphs": (0.55, 0.33, 0.3),
    "dims": (0.45, 0.1, 0.46),
    "ranks": (0.75, 0.2, 0.85),
    "operands": (0.85, 0.2, 0.4),
    "constants": (0.6, 0.2, 0.4),
    "optional": (0.8, 0.2, 0.2),
    "attributes": (0.4, 0.17, 0.25),
    "values": (0.4, 0.1, 0.55),
    "types": (0.9, 0.1, 0.6),
    "tidy": (0.95, 0.1, 0.95),
    "pairs": (0.3, 0.05, 0.3),
}
"""By pass, in the first round: the share of yes among first questions, after a no, after a yes.

5,140 answers of 81 reductions: released software, planted bugs, conformance cases.
"""


class Chances:
    """What is believed about the answers to come."""

    def __init__(self) -> None:
        self._answers: defaultdict[tuple[str, int, bool], list[float]] = defaultdict(list)

    def yes(self, position: Position) -> float:
        """How likely the question there gets a yes."""
        yes, count = self._counts(position)
        return yes / count

    def learn(self, position: Position, yes: bool) -> None:
        """The answer that it got."""
        counts = self._counts(position)
        counts[:] = MEMORY * counts[0] + yes, MEMORY * counts[1] + 1

    def _counts(self, position: Position) -> list[float]:
        """How many answers of its kind were a yes, and how many there were."""
        stage, again = position.question.stage, position.round > 1
        kind = _kind(position)
        counts = self._answers[stage, kind, again]
        if not counts:
            table = AGAIN if again else MEASURED.get(stage, UNKNOWN)
            counts += [WORTH * table[kind], WORTH]
        return counts


def _kind(position: Position) -> int:
    if not position.asked:
        return FIRST
    return AFTER_NO if position.sent[-1] is None else AFTER_YES
