"""The pages of the documentation, and the commands that they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from paths import ROOT

GENERATED = ROOT / "docs" / "reference" / "generated"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if GENERATED not in path.parents),
]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def all_text() -> str:
    return "\n".join(map(text, PAGES))


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language, page by page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", all_text(), flags=re.MULTILINE | re.DOTALL)


def command_lines(program: str) -> list[list[str]]:
    """Return the arguments of each line that starts with ``program``, every line once."""
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]
    return [list(words) for words in dict.fromkeys(tuple(each[1:]) for each in found)]
