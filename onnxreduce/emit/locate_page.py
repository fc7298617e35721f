"""``locate.html``: where two backends part, to look at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from pathlib import Path

from onnxreduce import __version__
from onnxreduce.emit import heat
from onnxreduce.emit.charts import scatter
from onnxreduce.emit.escape import clipped, escaped
from onnxreduce.emit.frame import (
    facts,
    figure,
    folded,
    hero,
    legend,
    name,
    page,
    section,
    table,
)
from onnxreduce.emit.graphview import FEW, attributes, boxes, ribbon, tooltip
from onnxreduce.emit.location import finding, odds, shape
from onnxreduce.errors import UsageError
from onnxreduce.files import write_atomically
from onnxreduce.graph import Index, index
from onnxreduce.locate import Location
from onnxreduce.shown import Shown

FILE = "locate.html"
MADE_BY = f"onnxreduce locate {__version__}"
MARKER = b'name="generator" content="onnxreduce locate'

NEAR = 16
"""Nodes around the birthplace that are drawn as boxes when the whole graph is too large."""

ROWS = 30
"""Rows of a table that are shown without being asked for."""

TAGS = 6
"""Births that the chart points at by name."""

CSS = {"born": "born", "passed on": "pass", "agrees": "ok", "hidden": "unknown"}

HEADS = (
    ("#", "n"),
    ("value", ""),
    ("operator", ""),
    ("shape", "w"),
    ("max abs", "n"),
    ("max rel", "n w"),
    ("mean abs", "n w"),
    ("NaN/Inf (expected / actual)", "w"),
)

KEY = (
    ("c-bad", "an error is born here"),
    ("c-pass", "passed on"),
    ("c-ok", "agrees"),
    ("c-const", "not shown"),
)


def write_page(location: Location, model: Path, directory: Path) -> Path:
    """Write the page; one that is there from before is replaced.

    Raises:
        UsageError: it cannot be written, or a file of that name is something else.
    """
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists() and MARKER not in path.read_bytes()[:2000]:
            raise UsageError(f"{path} exists and is not from onnxreduce: choose another --output")
        write_atomically(path, location_page(location, model.name).encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def location_page(location: Location, model: str) -> str:
    """The page as HTML."""
    known = index(location.model)
    parts = [_top(location, model)]
    if location.first is not None:
        parts.append(_graph(location, known))
    if any(value.difference for value in location.values):
        parts.append(_depth(location))
    parts += [_births(location, known), _table(location), _setting(location)]
    return page(f"{model}: located", "".join(parts), MADE_BY)


def _top(location: Location, model: str) -> str:
    first = location.first
    sides = [side.partition(" (")[0] for side in (location.expected, location.actual)]
    kicker = f"{clipped(model, 100)} · expected {sides[0]} · actual {sides[1]}"
    if location.how == "nowhere":
        return hero(kicker, "The two sides agree", f"within {escaped(str(location.tolerance))}")
    if first is None:
        lead = escaped(location.outputs.summary())
        return hero(kicker, "The outputs differ, no node does", lead)
    born = [value for value in location.values if value.state == "born"]
    together = len(location.region) - len({value.node for value in born})
    title = f"{escaped(first.op)} {name(first.label or first.name, 60)} goes wrong first"
    lead = (
        f"Its inputs agree, its output <b>{name(first.name, 60)}</b> does not: "
        f"{escaped(finding(first))}."
    )
    if together > 0:
        chain = " → ".join(name(key, 30) for key in islice(location.region, 8))
        lead += f" It goes wrong together with {together} more: {chain}."
    chips: list[tuple[str, str]] = [(f"{len(born)} born", "bad")]
    if location.passed_on:
        chips.append((f"{len(location.passed_on)} passed on", "warn"))
    agree = sum(value.state == "agrees" for value in location.values)
    chips.append((f"{agree} agree", "good"))
    if location.vanishes:
        chips.append(("vanishes when every value is shown", "warn"))
    ways = {
        "values": "every value was looked at",
        "rewritten": "found in the rewritten model",
        "cuts": "found by cutting the model",
        "nowhere": "",
    }
    chips.append((ways[location.how], "plain"))
    return hero(kicker, title, lead, chips)  # type: ignore[arg-type]


def _graph(location: Location, known: Index) -> str:
    by_node: dict[str, list[Shown]] = {}
    for value in location.values:
        by_node.setdefault(value.node, []).append(value)
    region = set(location.region)

    def css(key: str) -> str:
        states = {value.state for value in by_node.get(key, [])}
        if "born" in states or key in region:
            return "born"
        return next((CSS[s] for s in ("passed on", "agrees") if s in states), "unknown")

    def tip(key: str) -> str:
        wrong = max(by_node.get(key, []), key=lambda v: v.max_abs, default=None)
        said = f", max abs {wrong.max_abs:.3g}" if wrong and wrong.difference else ""
        return f"{known.position[key]}: {clipped(tooltip(known.nodes[key]), 160)}{said}"

    shapes = {value.name: shape(value).replace("x", "×") for value in location.values}

    def label(value: str) -> str:
        return shapes.get(value, "")

    if len(known.order) <= FEW:
        few = len(known.order) <= NEAR
        drawn = boxes(known, known.order, css, label, weights=few)
        return section("The graph", drawn + legend(KEY))
    first = location.first
    assert first is not None
    near = set(location.region[: NEAR // 2])
    near.update(islice(known.nearest(first.node), NEAR))
    drawn = boxes(known, near, css, label, weights=False)
    note = "Every node is a cell, in the direction of the data; point at one for its name."
    return section("The graph", ribbon(known, css, tip) + legend(KEY), note) + section(
        "Around the first diverging node", drawn
    )


def _depth(location: Location) -> str:
    points = []
    for value in location.values:
        if value.difference is not None:
            text = f"{value.position}: {value.op} {clipped(value.name, 80)}, {_gap(value)}"
            points.append((float(value.position), value.max_abs, CSS[value.state], text))
    born = [value for value in location.values if value.state == "born"][:TAGS]
    tags = [(float(v.position), v.max_abs, clipped(v.label or v.name, 28)) for v in born]
    end = float(location.values[-1].position)
    limit = location.tolerance.atol or None
    note = (
        "The largest absolute difference of every value, in graph order, on a logarithmic scale; "
        f"the dashed line is atol={location.tolerance.atol:g}. Values without any difference lie "
        "at the bottom."
    )
    drawn = scatter(points, end, limit, tags if len(born) <= TAGS else [], "nodes deep")
    return section("The error along depth", drawn + legend(KEY[:3]), note)


def _gap(value: Shown) -> str:
    assert value.difference is not None
    kind = value.difference.kind
    return f"max abs {value.max_abs:.3g}" if kind in ("same", "values") else f"{kind} differs"


def _births(location: Location, known: Index) -> str:
    by_name = {value.name: value for value in location.values}
    parts = []
    for key, pair in location.samples.items():
        value = by_name[key]
        node = known.nodes[value.node]
        what = "an error is born here" if value.state == "born" else "passed on, among the largest"
        details = [
            ("node", name(value.label) if value.label else ""),
            ("reads", ", ".join(name(v) for v in known.reads[value.node])),
            ("attributes", escaped(", ".join(attributes(node)))),
            ("shape", f"{escaped(value.dtype)} {escaped(shape(value).replace('x', '×'))}"),
            ("difference", escaped(finding(value))),
        ]
        worst = value.difference.worst if value.difference else None
        parts.append(
            f"<h3>{escaped(value.op)} {name(value.name, 80)} <small>{what}</small></h3>"
            f"{facts(details)}{heat.pair(pair.expected, pair.actual, worst)}"
        )
    return section("The tensors to look at", "".join(parts)) if parts else ""


def _table(location: Location) -> str:
    if not location.values:
        return ""
    shown = [value for value in location.values if value.state != "hidden"]
    wrong = [value for value in shown if value.state != "agrees"]
    parts = []
    if len(wrong) <= ROWS:
        parts.append(table(HEADS, [_row(value) for value in wrong]) if wrong else "")
    else:
        first = [value for value in wrong if value.state == "born"] or wrong
        parts.append(table(HEADS, [_row(value) for value in first[:ROWS]]))
        title = f"All {len(wrong)} values that differ"
        parts.append(folded(title, table(HEADS, [_row(value) for value in wrong])))
    title = f"All {len(shown)} values that were shown, in graph order"
    parts.append(folded(title, table(HEADS, [_row(value) for value in shown])))
    return section("Values", "".join(parts), _summary(location.values))


def _summary(values: Sequence[Shown]) -> str:
    runs = [(state, len(list(group))) for state, group in groupby(values, key=lambda v: v.state)]
    if len(runs) > 12:
        return "The values that differ, in graph order."
    words = {"agrees": "agree", "born": "born", "passed on": "pass it on", "hidden": "not shown"}
    return "In graph order: " + ", ".join(f"{count} {words[state]}" for state, count in runs) + "."


def _row(value: Shown) -> tuple[str, list[str]]:
    difference = value.difference
    assert difference is not None
    figures = [figure(n) for n in (difference.max_abs, difference.max_rel, difference.mean_abs)]
    if difference.kind in ("shape", "dtype", "missing"):
        sides = f"{clipped(difference.expected)} / {clipped(difference.actual)}"
        figures = [escaped(f"{difference.kind} {sides}"), "", ""]
    return CSS[value.state], [
        str(value.position),
        name(value.name),
        escaped(value.op),
        escaped(shape(value).replace("x", "×")),
        *figures,
        escaped(odds(value)),
    ]


def _setting(location: Location) -> str:
    runs = f"expected {location.runs[0]}, actual {location.runs[1]}"
    pairs = [
        ("expected", escaped(location.expected)),
        ("actual", escaped(location.actual)),
        ("tolerance", escaped(str(location.tolerance))),
        ("inputs", escaped(location.origin)),
        ("outputs", escaped(location.outputs.summary())),
        ("runs", runs),
        *(("note", escaped(note)) for note in location.notes),
    ]
    return section("How this was found", facts(pairs))
