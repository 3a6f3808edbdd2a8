"""llms.txt (llmstxt.org): the pages with their first sentences, for programs that read docs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

SECTIONS = {
    "Tutorials": "tutorials",
    "How-to guides": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Optional": "results",  # what a short context may leave out
}
ABOUT = (
    "# edgefl\n\n> A testbed that measures federated-learning strategies on the wall clock over"
    " real sockets and emulated links, and unchanged under a virtual clock.\n"
)


def text(docs: Path, pages: Mapping[Path, str]) -> str:
    """Return the list; ``pages``: their texts by path."""
    parts = [ABOUT]
    for title, folder in SECTIONS.items():
        found = [
            path
            for path in sorted(pages)
            if path.is_relative_to(docs / folder) and path.suffix == ".md" and path.stem != "index"
        ]
        parts.append(f"## {title}\n")
        parts += [f"- {_line(path.relative_to(docs).as_posix(), pages[path])}" for path in found]
        parts.append("")
    return "\n".join(parts)


def _line(place: str, page: str) -> str:
    title = re.search(r"^# (.+)$", page, flags=re.MULTILINE)
    assert title is not None, f"{place}: expected a heading"
    prose = re.sub(r"^```.*?^```$", "", page[title.end() :], flags=re.MULTILINE | re.DOTALL)
    first = next((each for each in prose.split("\n\n") if _is_prose(each)), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    sentence = re.split(r"(?<=[.:]) ", plain)[0].rstrip(":.")
    return f"[{title[1]}]({place})" + f": {sentence}." * bool(sentence)


def _is_prose(paragraph: str) -> bool:
    words = paragraph.strip()
    return words != "" and (words[0].isalpha() or words[0] in "`*[")
