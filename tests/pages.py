"""Checks of HTML reports, and names that they must survive."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = [
    "<script>alert(1)</script>",
    "quote\"'><img src=x onerror=alert(1)>",
    "new\nline\ttab\r",
    "n" * 4000,
    "\u202egnirts\u200b&amp;",
    "back\\slash",
]


class Tags(HTMLParser):
    """Collects elements and checks that they nest."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_safe(text: str) -> None:
    """One well-nested file that runs nothing and loads nothing."""
    tags = Tags(text)
    assert tags.open == []
    names = {tag for tag, _ in tags.found}
    assert not names & {"script", "iframe", "link", "object", "embed", "base", "form"}
    for _, attributes in tags.found:
        assert not [key for key in attributes if key.startswith("on")]
        for key in ("src", "href"):
            assert (attributes.get(key) or "data:").startswith("data:")
    assert "url(http" not in text
    assert "@import" not in text
