"""What `onnxreduce locate` prints: a few sentences with a table, or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from onnxreduce.emit.escape import clipped
from onnxreduce.locate import Location
from onnxreduce.shown import Shown

WHOLE = 30
"""Values up to which the table has them all."""

AROUND = 3
"""Values that are shown at each end of a longer run of such that nothing is born in."""

COLUMNS = ("", "#", "value", "operator", "shape", "max abs", "max rel", "mean abs", "NaN/Inf")

MARKS = {"born": ">>", "passed on": ">", "agrees": ""}


def words(location: Location) -> str:
    """Sentences, and the table in graph order where it is long only around the places of birth."""
    lines = [*headline(location), *location.notes]
    if any(value.difference for value in location.values):
        lines += ["", *_table(location.values), "", *_legend(location.values)]
    return "\n".join(lines)


def headline(location: Location) -> list[str]:
    """The finding in a line or two."""
    first = location.first
    if location.how == "nowhere":
        return [f"the two sides agree within {location.tolerance}: {_close(location)}"]
    if first is None:
        return [f"the outputs differ ({location.outputs.summary()}), but no node of the model does"]
    born = [value for value in location.values if value.state == "born"]
    lines = [f"the first diverging node: {_node(first)}"]
    if len(location.region) > len(born):
        lines.append(
            f"which goes wrong together with {len(location.region) - len(born)} more: "
            + " -> ".join(clipped(key) for key in location.region)
        )
    lines += [f"born here (inputs agree, output does not): {_finding(value)}" for value in born]
    if location.passed_on:
        lines.append(f"passed on by {len(location.passed_on)} more")
    return lines


def _close(location: Location) -> str:
    if not location.outputs.differences:
        return "there are no outputs"
    worst = location.outputs.worst
    return "to the last bit" if worst.max_abs == 0 else worst.summary()


def _node(value: Shown) -> str:
    if value.label in ("", value.name):
        return f"{value.op} {clipped(value.name)} (node {value.position})"
    name = clipped(value.label)
    return f"{value.op} '{name}', which makes {clipped(value.name)} (node {value.position})"


def _finding(value: Shown) -> str:
    assert value.difference is not None
    return f"{clipped(value.name)}: {finding(value)}"


def finding(value: Shown) -> str:
    """How a wrong value differs, without its name."""
    difference = value.difference
    assert difference is not None
    sides = f"expected {clipped(difference.expected)}, actual {clipped(difference.actual)}"
    if difference.kind in ("shape", "dtype", "missing"):
        return f"{difference.kind}: {sides}"
    place = ",".join(map(str, difference.worst or ()))
    where = f" at [{place}]" if place else ""
    if difference.kind == "nonfinite":
        return f"not finite on one side{where} ({sides})"
    return (
        f"max abs {difference.max_abs:.4g}{where} ({sides}), "
        f"{difference.mismatched} of {difference.total} elements"
    )


def _table(values: Sequence[Shown]) -> list[str]:
    shown = [value for value in values if value.state != "hidden"]
    rows: list[tuple[str, ...] | str] = [COLUMNS]
    for born, group in groupby(shown, key=lambda value: value.state == "born"):
        run = list(group)
        if born or len(shown) <= WHOLE or len(run) <= 2 * AROUND + 1:
            rows += [_row(value) for value in run]
            continue
        rows += [_row(value) for value in run[:AROUND]]
        rows.append(_left_out(run[AROUND:-AROUND]))
        rows += [_row(value) for value in run[-AROUND:]]
    return list(_aligned(rows))


def _row(value: Shown) -> tuple[str, ...]:
    difference = value.difference
    figures = ("", "", "") if difference is None else (
        f"{difference.max_abs:.3g}", f"{difference.max_rel:.3g}", f"{difference.mean_abs:.3g}",
    )  # fmt: skip
    return (
        MARKS[value.state],
        str(value.position),
        clipped(value.name),
        value.op,
        shape(value),
        *figures,
        odds(value),
    )


def shape(value: Shown) -> str:
    """Such as ``1x64x8x8``."""
    if value.shape is None:
        return ""
    return "x".join(map(str, value.shape)) or "scalar"


def odds(value: Shown) -> str:
    """What is not finite on the two sides; empty when all is."""
    sides = str(value.expected), str(value.actual)
    return "" if sides == ("", "") else f"{sides[0] or '-'} / {sides[1] or '-'}"


def _left_out(run: Sequence[Shown]) -> str:
    parts = []
    for state, word in (("agrees", "agree"), ("passed on", "pass it on")):
        some = [value.max_abs for value in run if value.state == state]
        if some:
            parts.append(
                f"{len(some)} {word}" + (f" (max abs {max(some):.3g})" if max(some) else "")
            )
    return f"... {len(run)} values: {', '.join(parts)}"


def _aligned(rows: Sequence[tuple[str, ...] | str]) -> Iterator[str]:
    cells = [row for row in rows if isinstance(row, tuple)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    for row in rows:
        if isinstance(row, str):
            yield f"{'':{widths[0]}}  {row}"
        else:
            left = (0, 2, 3, 4, 8)
            yield "  ".join(
                f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()


def _legend(values: Sequence[Shown]) -> list[str]:
    states = {value.state for value in values}
    meaning = {"born": "an error is born here", "passed on": "passed on"}
    said = [f"{MARKS[state]} {text}" for state, text in meaning.items() if state in states]
    hidden = sum(value.state == "hidden" for value in values)
    if hidden:
        said.append(f"{hidden} values were not shown")
    return ["; ".join(said)] if said else []


def plain(location: Location) -> dict[str, Any]:
    """The location as data for JSON: numbers that are not finite are text."""
    return {
        "how": location.how,
        "vanishes": location.vanishes,
        "first": location.first.name if location.first else None,
        "born": list(location.born),
        "region": list(location.region),
        "passed_on": [value.name for value in location.passed_on],
        "outputs": location.outputs.summary(),
        "expected": location.expected,
        "actual": location.actual,
        "tolerance": str(location.tolerance),
        "inputs": location.origin,
        "runs": {"expected": location.runs[0], "actual": location.runs[1]},
        "notes": list(location.notes),
        "values": [_value(value) for value in location.values],
    }


def _value(value: Shown) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": value.name,
        "node": value.label,
        "op": value.op,
        "position": value.position,
        "shape": None if value.shape is None else list(value.shape),
        "dtype": value.dtype or None,
        "state": value.state,
    }
    difference = value.difference
    if difference is not None:
        entry |= {
            "kind": difference.kind,
            "max_abs": _number(difference.max_abs),
            "max_rel": _number(difference.max_rel),
            "mean_abs": _number(difference.mean_abs),
            "mismatched": difference.mismatched,
            "worst": None if difference.worst is None else list(difference.worst),
            "nan": {"expected": value.expected.nan, "actual": value.actual.nan},
            "inf": {"expected": value.expected.inf, "actual": value.actual.inf},
        }
    return entry


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
