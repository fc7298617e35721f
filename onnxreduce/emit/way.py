"""The way down, as the journal tells it: a chart, the accepted steps, and what each pass did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxreduce import journal
from onnxreduce.emit.charts import Series, steps
from onnxreduce.emit.escape import clipped, escaped
from onnxreduce.emit.frame import count, folded, legend, table

ROWS = 25
"""Steps that are shown without being asked for."""

OUTCOMES = (
    ("interesting", "c-accent", "still shows the bug"),
    ("boring", "c-heavy", "does not"),
    ("skipped", "c-warn", "no answer"),
    ("invalid", "c-const", "invalid, not asked about"),
)


@dataclass(frozen=True)
class Step:
    """An accepted candidate.

    Attributes:
        stage: the pass.
        edit: what it did, in words.
        nodes, elements: what was left.
        detail: the verdict's.
        calls: oracle calls up to then.
        seconds: since the start.
    """

    stage: str
    edit: str
    nodes: int
    elements: int
    detail: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Way:
    """All of it.

    Attributes:
        steps: the accepted ones, in order.
        asked: for each pass the number of candidates by outcome, in order of first appearance.
    """

    steps: tuple[Step, ...]
    asked: dict[str, Counter[str]]

    def without_names(self) -> Way:
        """Only figures and passes: steps and details tell names of the original."""
        return replace(self, steps=tuple(replace(s, edit="", detail="") for s in self.steps))


def read_way(path: Path) -> Way:
    """From a journal; empty where there is none."""
    found: list[Step] = []
    asked: dict[str, Counter[str]] = {}
    start: float | None = None
    for event in journal.read(path) if path.exists() else ():
        start = float(event.get("at", 0.0)) if start is None else start
        if event["event"] == "asked":
            asked.setdefault(str(event["stage"]), Counter())[str(event["outcome"])] += 1
        elif event["event"] == "accepted":
            found.append(
                Step(
                    str(event["stage"]),
                    str(event["edit"]),
                    int(event["nodes"]),
                    int(event["elements"]),
                    str(event["detail"]),
                    int(event["calls"]),
                    float(event.get("at", start)) - start,
                )
            )
    return Way(tuple(found), asked)


def chart(way: Way, nodes: int, elements: int, calls: int) -> str:
    """Nodes and elements against oracle calls.

    Args:
        way: the steps.
        nodes, elements: of the original.
        calls: all of them.
    """
    points = [(0.0, nodes, elements, "the original")]
    points += [
        (
            float(s.calls),
            s.nodes,
            s.elements,
            ": ".join(filter(None, (s.stage, clipped(s.edit, 90)))),
        )
        for s in way.steps
    ]
    series = [
        Series(
            "s2",
            [(x, float(e)) for x, _, e, _ in points],
            [f"{e:,} elements after {x:g} calls ({tip})" for x, _, e, tip in points],
        ),
        Series(
            "s1",
            [(x, float(n)) for x, n, _, _ in points],
            [f"{n:,} nodes after {x:g} calls ({tip})" for x, n, _, tip in points],
        ),
    ]
    key = (("c-accent", "nodes"), ("c-second", "elements of inputs and weights"))
    return steps(series, float(calls), "oracle calls") + legend(key)


def step_table(way: Way, nodes: int, elements: int) -> str:
    """Every accepted step, the later ones folded away when there are many."""
    told = any(step.detail for step in way.steps)
    heads = [
        ("calls", "n"),
        ("pass", "w"),
        ("step", ""),
        ("nodes", "n"),
        ("elements", "n"),
        *([("the bug then", "w")] if told else []),
        ("seconds", "n w"),
    ]
    rows = []
    before = nodes, elements
    for step in way.steps:
        rows.append(("", _row(step, before, told)))
        before = step.nodes, step.elements
    if len(rows) <= ROWS:
        return table(heads, rows) if rows else ""
    rest = table(heads, rows[ROWS:])
    return table(heads, rows[:ROWS]) + folded(f"{len(rows) - ROWS} more steps", rest)


def _row(step: Step, before: tuple[int, int], told: bool) -> Sequence[str]:
    return (
        f"{step.calls:,}",
        escaped(step.stage),
        escaped(clipped(step.edit, 110)),
        _fell(step.nodes, before[0]),
        _fell(step.elements, before[1]),
        *([escaped(clipped(step.detail, 90))] if told else []),
        f"{step.seconds:,.1f}",
    )


def _fell(now: int, before: int) -> str:
    return f'<b class="down">{count(now)}</b>' if now < before else count(now)


def passes(way: Way) -> str:
    """What each pass asked, and what the answers were."""
    most = max((sum(outcomes.values()) for outcomes in way.asked.values()), default=1)
    rows = [
        (
            "",
            (
                escaped(stage),
                f"{sum(outcomes.values()):,}",
                f"{outcomes['interesting']:,}",
                _bar(outcomes, most),
            ),
        )
        for stage, outcomes in way.asked.items()
    ]
    heads = (("pass", ""), ("candidates", "n"), ("accepted", "n"), ("answers", ""))
    key = [(css, words) for _, css, words in OUTCOMES]
    return table(heads, rows, "passes") + legend(key) if rows else ""


def _bar(outcomes: Counter[str], most: int) -> str:
    parts = "".join(
        f'<i class="{css}" style="width:{outcomes[name] / most * 100:.2f}%" '
        f'title="{outcomes[name]} {escaped(name)}"></i>'
        for name, css, _ in OUTCOMES
        if outcomes[name]
    )
    return f'<div class="bar">{parts}</div>'
