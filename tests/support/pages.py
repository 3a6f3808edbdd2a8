"""The pages of the documentation, and the commands that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from paths import ROOT

GENERATED = ROOT / "docs" / "reference" / "generated"
# A test of its own walks through this page, because it needs root and other hosts.
WALKED = ROOT / "docs" / "tutorials" / "two-pis-and-a-laptop.md"
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if GENERATED not in path.parents and "_build" not in path.parts
    ),
]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def all_text() -> str:
    return "\n".join(map(text, PAGES))


def blocks(language: str, pages: Sequence[Path] = PAGES) -> list[str]:
    """Return the fenced blocks of a language, page by page."""
    whole = "\n".join(map(text, pages))
    return re.findall(rf"^```{language}\n(.*?)^```$", whole, flags=re.MULTILINE | re.DOTALL)


def command_lines(program: str, pages: Sequence[Path] = PAGES) -> list[list[str]]:
    """Return the arguments of each line that starts with ``program``, every line once.

    A file that the output goes to (``> table.tex``) is left out.
    """
    shown = blocks("sh", pages)
    lines = [line for block in shown for line in block.replace("\\\n", " ").splitlines()]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]
    arguments = (tuple(takewhile(lambda word: word != ">", each[1:])) for each in found)
    return [list(words) for words in dict.fromkeys(arguments)]
