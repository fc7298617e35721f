"""What a model says of itself is never trusted: names and texts, made safe for where they go."""

from __future__ import annotations

import html
import re

LENGTH = 60
"""Letters of a name that are shown where it is only shown."""


def line(text: object, length: int = LENGTH) -> str:
    """One printable line of limited length."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def message(text: object, length: int) -> str:
    """As `line`, but both ends of a long one: a runtime says first what failed, last why."""
    return clipped(line(text, len(str(text)) + 1), length)


def visible(text: str) -> str:
    """The text with everything that does not print as an escape, such as ``\\n``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clipped(text: str, room: int = 48) -> str:
    """As `visible`, with the middle left out where it is long: names differ at their ends."""
    text = visible(text)
    if len(text) <= room:
        return text
    tail = room // 2
    return f"{text[: room - tail - 1]}…{text[-tail:]}"


def escaped(text: object) -> str:
    """For HTML, content or a quoted attribute: the whole text, as `visible`."""
    return html.escape(visible(str(text)))


def markup(text: object, length: int = LENGTH) -> str:
    """For HTML: content or a quoted attribute."""
    return html.escape(line(text, length))


def diagram(text: object, length: int = LENGTH) -> str:
    """For a quoted label in mermaid, where ``#34;`` stands for a character by its number."""
    return re.sub(r"[^\w .,:=()/+?\[\]-]", lambda m: f"#{ord(m[0])};", line(text, length))


def markdown(text: object, length: int = LENGTH) -> str:
    """For running text and table cells of Markdown, where names mention nobody."""
    shown = line(text, length).replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_\[\]#|~])(?!64;)", r"\\\1", shown)


def code(text: object, length: int = LENGTH) -> str:
    """A code span of Markdown, in table cells too."""
    shown = line(text, length).replace("`", "ˋ").replace("|", "¦")
    return f"`{shown}`" if shown else "(empty)"


def fenced(text: str, language: str = "") -> str:
    """A code block that its content cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def docstring(text: object, length: int = 200) -> str:
    """What is wrong, for the inside of a Python docstring or comment."""
    return message(text, length).replace("\\", "/").replace('"', "'")


def script(text: str) -> str:
    """JSON or JavaScript source for the inside of a script element, or a file of its own."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
