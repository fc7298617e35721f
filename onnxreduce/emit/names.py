"""Names and other strings of a model, made safe to read and to show.

They come from strangers: a name may hold markup, quotes, newlines, characters that turn the
direction of writing, or thousands of letters.
"""

from __future__ import annotations

import html

SHORT = 48
"""Characters of a name that are shown where there is little room."""


def visible(text: str) -> str:
    """The text with everything that does not print as an escape, such as ``\\n``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clipped(text: str, room: int = SHORT) -> str:
    """As `visible`, with the middle left out where it is long: names differ at their ends."""
    text = visible(text)
    if len(text) <= room:
        return text
    tail = room // 2
    return f"{text[: room - tail - 1]}…{text[-tail:]}"


def escaped(text: object) -> str:
    """As `visible`, for HTML: text and double-quoted attributes."""
    return html.escape(visible(str(text)))
