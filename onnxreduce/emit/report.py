"""``report.html``: the whole story of a reduction in one file."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxreduce import __version__
from onnxreduce.case import Case, InputValue
from onnxreduce.compare import compare
from onnxreduce.emit import heat, near_miss
from onnxreduce.emit.escape import clipped, escaped, message
from onnxreduce.emit.frame import (
    Tone,
    count,
    facts,
    folded,
    hero,
    legend,
    name,
    page,
    section,
    size,
    tiles,
)
from onnxreduce.emit.graphview import FEW, boxes, ribbon, tooltip
from onnxreduce.emit.privacy import privacy
from onnxreduce.emit.secret import place
from onnxreduce.emit.text import model_text
from onnxreduce.emit.way import Way, chart, passes, read_way, step_table
from onnxreduce.files import write_atomically
from onnxreduce.graph import index
from onnxreduce.lineage import survivors
from onnxreduce.modelread import SOURCE
from onnxreduce.result import Result, describe
from onnxreduce.shapes import inferred
from onnxreduce.tensors import Array

FILE = "report.html"
MADE_BY = f"onnxreduce {__version__}"

PACKAGES = ("onnxreduce", "onnxruntime", "onnx", "onnx-ir", "numpy")

WEIGHTY = 1000
"""Elements of weights from which on a node counts as a heavy one."""

LISTED = 24
"""Survivors that are listed by name."""

TENSORS = 24
"""Tensors of the result that are shown."""

TEXT = 6000
"""Characters of the model's text that are shown unfolded."""


def emit(result: Result, directory: Path) -> None:
    way = read_way(directory / "journal.jsonl")
    write_atomically(directory / FILE, report(result, way).encode())


def report(result: Result, way: Way) -> str:
    """The page as HTML."""
    secret = result.scrubbed is not None  # then no name of the original may be told
    way = way.without_names() if secret else way
    before, after = describe(result.original), describe(result.reduced)
    chart_of = chart(way, before["nodes"], before["elements"], result.oracle_calls)
    parts = [
        _top(result, before["nodes"], after["nodes"]),
        _tiles(result, before, after),
        section("What is left", _after(result), escaped(privacy(result))),
        _tensors(result),
        "" if secret else _before(result),
        section(
            "The way down",
            chart_of,
            f"{result.oracle_calls:,} oracle calls, {result.accepted:,} accepted steps; nodes and "
            "elements share one logarithmic scale. Point at a dot for its step.",
        ),
    ]
    if way.steps and not secret:
        parts.append(
            section("Every accepted step", step_table(way, before["nodes"], before["elements"]))
        )
    if way.asked:
        parts.append(section("What the passes asked", passes(way)))
    parts.append(_setting(result))
    return page(f"{_title(result)}: reduced", "".join(parts), MADE_BY)


def _title(result: Result) -> str:
    source = result.original.model.graph.meta.get(SOURCE)
    if source and result.scrubbed is None:
        return Path(str(source)).name
    return "the model"


def _top(result: Result, before: int, after: int) -> str:
    title = f'{_nodes(before)} <span class="to">→ {_nodes(after)}</span>'
    kicker = f"{clipped(_title(result), 100)} · oracle {clipped(result.oracle.name, 60)}"
    bug = escaped(clipped(result.verdict.detail, 300))
    lead = f"The bug that is left: <b>{bug}</b>." if bug else "The bug is still there."
    gone = near_miss.words(result)
    if gone:
        lead += f" It is gone after one more step: <b>{escaped(clipped(gone, 300))}</b>."
    return hero(kicker, title, lead, _chips(result))


def _nodes(number: int) -> str:
    return f"{number:,} node" + ("" if number == 1 else "s")


def _chips(result: Result) -> Iterator[tuple[str, Tone]]:
    if result.stopped_by:
        yield f"stopped by {result.stopped_by}", "warn"
    if result.one_minimal:
        yield "1-minimal: no single step makes it smaller", "good"
    else:
        yield "not yet minimal", "warn"
    if result.confirmed:
        yield "confirmed in a fresh process", "good"
    elif not result.stopped_by:
        yield "not confirmed in a fresh process", "bad"
    if result.scrubbed is not None:
        yield "scrubbed", "plain"


def _tiles(result: Result, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    def tile(label: str, key: str) -> tuple[str, str, str, str]:
        show = size if key == "bytes" else count
        remark = _times(before[key], after[key])
        return label, f"from {show(before[key])}", show(after[key]), remark

    return tiles(
        [
            tile("nodes", "nodes"),
            tile("elements", "elements"),
            tile("weights", "bytes"),
            tile("attributes", "attributes"),
            (
                "oracle calls",
                f"{result.accepted:,} accepted, {result.invalid:,} invalid",
                f"{result.oracle_calls:,}",
                "",
            ),
            ("time", f"{_time(result.oracle_seconds)} in the oracle", _time(result.seconds), ""),
        ]
    )


def _times(before: int, after: int) -> str:
    if before <= after:
        return ""
    return f"÷ {before / after:,.0f}" if after and before >= 2 * after else f"−{before - after:,}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


# --- the graphs


def _after(result: Result) -> str:
    known = index(result.reduced.model)
    label = _Shapes(result.reduced)
    if len(known.order) <= FEW:
        drawn = boxes(known, known.order, lambda key: "stay", label, weights=len(known.order) <= 16)
    else:
        drawn = _ribbon(result.reduced, set())
    text = model_text(result.reduced)
    shown = "\n".join(escaped(line) for line in text.strip().splitlines())
    if len(shown) > 20 * TEXT:
        return drawn
    words = f"<pre>{shown}</pre>"
    return drawn + (words if len(text) <= TEXT else folded("The model as text", words))


def _before(result: Result) -> str:
    known = index(result.original.model)
    left = survivors(result.original.model, result.reduced.model)
    if len(known.order) <= FEW:
        drawn = boxes(
            known,
            known.order,
            lambda key: "stay" if key in left else "",
            _Shapes(result.original),
            weights=False,
        )
        key = legend([("c-accent", "left in the result")])
    else:
        drawn = _ribbon(result.original, set(left))
        key = legend(
            [
                ("c-accent", "left in the result"),
                ("c-heavy", f"reads {WEIGHTY:,} weights or more"),
                ("c-cell", "other nodes"),
                ("c-const", "constants"),
            ]
        )
    note = (
        f"{len(known.order):,} nodes in the direction of the data: what can run side by side is "
        "one column. Point at a cell for its name."
        if len(known.order) > FEW
        else ""
    )
    return section("The original", drawn + key + _listing(result, left), note)


def _listing(result: Result, left: Mapping[str, str]) -> str:
    known = index(result.original.model)
    keys = known.sort(left)
    if not keys:
        return '<p class="note">No node of the result is one of the original as it was.</p>'
    rows = [
        (
            f"node {known.position[key] + 1}",
            f"{escaped(known.nodes[key].op_type)} {name(known.nodes[key].name or key, 70)}",
        )
        for key in keys[:LISTED]
    ]
    more = len(keys) - LISTED
    if more > 0:
        rows.append(("", f"and {more:,} more"))
    return facts(rows)


def _ribbon(case: Case, left: set[str]) -> str:
    known = index(case.model)
    weights = {
        value.name: value.const_value.size
        for value in case.model.graph.initializers.values()
        if value.const_value is not None
    }

    def css(key: str) -> str:
        if key in left:
            return "stay"
        return "heavy" if sum(weights.get(v, 0) for v in known.reads[key]) >= WEIGHTY else ""

    def tip(key: str) -> str:
        return f"{known.position[key] + 1}: {clipped(tooltip(known.nodes[key]), 160)}"

    return ribbon(known, css, tip)


class _Shapes:
    """Shapes of values, as far as they are known, such as ``1×3×N×?``."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._types = inferred(case.model)
        self._declared = {v.name: v for v in case.model.graph.outputs}

    def __call__(self, value: str) -> str:
        array = self._case.inputs.get(value)
        if isinstance(array, np.ndarray):
            return _dims([str(dim) for dim in array.shape])
        known = self._types.get(value)
        shape = known.shape if known else None
        if shape is None and value in self._declared:
            shape = self._declared[value].shape
        if shape is None:
            return ""
        return _dims([_dim(dim) for dim in shape])


def _dim(dim: int | ir.SymbolicDim) -> str:
    if isinstance(dim, int):
        return str(dim)
    text = dim.value or "?"
    return "?" if text.startswith("unk__") else clipped(text, 12)


def _dims(dims: list[str]) -> str:
    return "×".join(dims) or "scalar"


# --- the tensors


def _tensors(result: Result) -> str:
    """Inputs, weights and outputs; outputs on both sides where these are known."""
    figures = [
        _figure("input", key, part)
        for key, value in result.reduced.inputs.items()
        for part in _arrays(value)
    ]
    for value in result.reduced.model.graph.initializers.values():
        if value.const_value is not None:
            figures.append(_figure("weight", value.name or "", value.const_value.numpy()))
    sides = {side.role: side.outputs for side in result.sides if side.outputs is not None}
    pairs = ""
    if "expected" in sides and "actual" in sides:
        pairs = _pairs(sides["expected"], sides["actual"])
    if not pairs:
        figures += [
            _figure("output, as the trusted side has it", key, part)
            for key, value in (result.outputs or {}).items()
            for part in _arrays(value)
        ]
    more = len(figures) - TENSORS
    said = f'<p class="note">and {more} more tensors, in the files.</p>' if more > 0 else ""
    shown = f'<div class="values">{"".join(figures[:TENSORS])}</div>{said}'
    return section("Its tensors", shown + pairs)


def _pairs(expected: Mapping[str, InputValue], actual: Mapping[str, InputValue]) -> str:
    worst = {d.name: d for d in compare(expected, actual).differences}
    parts = []
    for key, value in list(expected.items())[:TENSORS]:
        left, right = value, actual.get(key)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            difference = worst.get(key)
            place = difference.worst if difference else None
            said = escaped(difference.figures()) if difference and difference.worst else ""
            parts.append(
                f"<h3>output {name(key)} on both sides <small>{said}</small></h3>"
                f"{heat.pair(left, right, place)}"
            )
    return "".join(parts)


def _figure(role: str, key: str, array: Array) -> str:
    shape = _dims([str(dim) for dim in array.shape])
    caption = f"{escaped(role)} {name(key, 30)} {escaped(array.dtype.name)} {shape}"
    return f"<figure><figcaption>{caption}</figcaption>{heat.single(array)}</figure>"


def _arrays(value: InputValue) -> list[Array]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


# --- the setting


def _setting(result: Result) -> str:
    settings = ", ".join(f"{k}={place(result, v)}" for k, v in result.oracle.parameters.items())
    sides = [
        (s.role, escaped(_side(place(result, s.spec), s.version, s.error))) for s in result.sides
    ]
    pairs = [
        ("verdict", escaped(result.verdict.detail)),
        ("signature", escaped(result.verdict.signature or "")),
        ("oracle", f"{escaped(result.oracle.name)} {escaped(result.oracle.summary)}"),
        ("settings", escaped(clipped(settings, 400))),
        *sides,
        ("its versions", escaped(clipped(result.oracle.identity, 400))),
        ("answers", _answers(result)),
        ("versions", escaped(", ".join(_versions()))),
        ("platform", escaped(f"{platform.platform()}, Python {platform.python_version()}")),
        *(("note", escaped(clipped(note, 500))) for note in result.notes),
    ]
    return section("How it was found", facts(pairs))


def _side(spec: str, release: str, error: str) -> str:
    failed = f", fails: {message(error, 200)}" if error else ""
    return f"{spec} ({release or 'version unknown'}){failed}"


def _answers(result: Result) -> str:
    return (
        f"{result.oracle_calls:,} calls, {result.cache_hits:,} known before, "
        f"{result.skipped:,} without an answer, {result.invalid:,} candidates turned down unasked"
    )


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            if package == "onnxreduce":
                yield f"{package} {__version__}"
