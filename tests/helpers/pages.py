"""Pages that commands write: their elements, and names that would break them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "$\\frac{",
    "a & b",
    "\x1b[31mred",
    "\u202eabc",
    "tea",
]


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def check_alone(self) -> None:
        """Assert that the page runs nothing and loads nothing."""
        assert not {"script", "img", "link", "iframe", "object", "embed", "base", "form"} & set(self.tags)
        for name, value in self.attributes:
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#")
            if name == "style":
                assert "url(" not in (value or "").replace("url(#", "")


def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))
