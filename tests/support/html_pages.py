"""HTML files as a reader sees them: their texts, tables, addresses, and whether tags are closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "hr", "img", "input", "link", "meta"}  # elements without an end tag


@dataclass
class HtmlPage(HTMLParser):
    """The content of an HTML document.

    ``texts``: without styles. ``tables``: rows of cells. ``addresses``: of every attribute that a
    browser would load or follow. ``wrong``: tags that are closed in a wrong order, ids that occur
    twice.
    """

    html: str
    texts: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self.feed(self.html)
        self.close()
        self.wrong += [f"<{tag}> is never closed" for tag in self._open]
        self.wrong += [f"id {each} twice" for each in set(self.ids) if self.ids.count(each) > 1]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                self.addresses.append(value or "")
            elif name == "id":
                self.ids.append(value or "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.wrong.append(f"</{tag}> after {self._open[-1:]}")

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.texts.append(data)
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data.strip()
