"""The frame of a report: one HTML file without scripts or network, light and dark, any width.

Plain functions from data to markup. Whatever comes from a model goes through `escape.escaped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Literal

from onnxreduce.emit.escape import clipped, escaped

TITLE_ROOM = 400
"""Characters of a long name that a tooltip shows."""

Tone = Literal["good", "bad", "warn", "plain"]


def page(title: str, body: str, made_by: str) -> str:
    """A whole document."""
    style = files("onnxreduce.emit").joinpath("frame.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="{escaped(made_by)}">
<title>{escaped(clipped(title, 120))}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
<footer>{escaped(made_by)}</footer>
</main>
</body>
</html>
"""


def hero(kicker: str, title: str, lead: str, chips: Iterable[tuple[str, Tone]] = ()) -> str:
    """The top of a page: what it is, the finding, a sentence or two (markup)."""
    marks = "".join(f'<span class="chip {tone}">{escaped(text)}</span>' for text, tone in chips)
    return (
        f'<header><p class="kicker">{escaped(kicker)}</p><h1>{title}</h1>'
        f'<p class="lead">{lead}</p><p class="chips">{marks}</p></header>'
    )


def section(title: str, body: str, note: str = "") -> str:
    """A card with a heading; the note is markup."""
    said = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{escaped(title)}</h2>{said}{body}</section>"


def folded(title: str, body: str, *, unfolded: bool = False) -> str:
    """Something to open by a click."""
    return (
        f"<details{' open' if unfolded else ''}><summary>{escaped(title)}</summary>{body}</details>"
    )


def name(text: str, room: int = 40) -> str:
    """A name from the model, short, whole in the tooltip as far as that is reasonable."""
    short = clipped(text, room)
    whole = "" if short == text else f' title="{escaped(clipped(text, TITLE_ROOM))}"'
    return f"<code{whole}>{escaped(short)}</code>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with values (markup) in two columns."""
    rows = "".join(f"<dt>{escaped(key)}</dt><dd>{value}</dd>" for key, value in pairs if value)
    return f'<dl class="facts">{rows}</dl>'


def tiles(items: Iterable[tuple[str, str, str, str]]) -> str:
    """Figures: label, before, after, remark."""
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><span class="label">{escaped(label)}</span>'
            f'<span class="figure">{escaped(after)}</span>'
            f'<span class="was">{escaped(before)}</span>'
            f'<span class="remark">{escaped(remark)}</span></div>'
            for label, before, after, remark in items
        )
        + "</div>"
    )


def table(
    heads: Sequence[tuple[str, str]], rows: Iterable[tuple[str, Sequence[str]]], kind: str = ""
) -> str:
    """A table.

    Args:
        heads: text and class of each column: ``n`` for numbers, ``w`` for those that a narrow
            page leaves out.
        rows: class of the row, and its cells as markup.
        kind: class of the table.
    """
    top = "".join(f'<th class="{css}">{escaped(text)}</th>' for text, css in heads)
    body = "".join(
        f'<tr class="{css}">'
        + "".join(
            f'<td class="{column}">{cell}</td>'
            for cell, (_, column) in zip(cells, heads, strict=True)
        )
        + "</tr>"
        for css, cells in rows
    )
    return f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def legend(items: Iterable[tuple[str, str]]) -> str:
    """What colours mean: class of the swatch, and text."""
    marks = "".join(f'<span><i class="{css}"></i>{escaped(text)}</span>' for css, text in items)
    return f'<p class="legend">{marks}</p>'


def count(number: float) -> str:
    """Such as 936,804, or 25.8 M where that is long."""
    if number >= 10_000_000:
        return f"{number / 1e6:,.1f} M"
    return f"{number:,.0f}"


def size(number: int) -> str:
    """Bytes for a person."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024 or unit == "MiB":
            break
        amount /= 1024
    return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:,.1f} {unit}"


def figure(value: float) -> str:
    """A measured number, short."""
    return f"{value:.3g}"
