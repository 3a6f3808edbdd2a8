"""Every file that the generator writes: whole pages, diagrams, and parts of hand-written pages.

A part begins with a comment. ``<!-- file: PATH -->`` stands above a block of code that has the
text of this file, ``<!-- file: PATH, from "A" to "B" -->`` above one that has its lines from the
one that begins with A up to the one before B. Between ``<!-- options: NAME -->`` and
``<!-- end of options -->`` is the table of a strategy's options, between ``<!-- names: MODULE -->``
and ``<!-- end of names -->`` the list of a module's public names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from _generate import diagrams, llms, pages, python_api

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
GENERATED = DOCS / "reference" / "generated"
FILE = re.compile(
    r'(<!-- file: (?P<path>[^\s,]+)(?:, from "(?P<first>.+)" to "(?P<last>.+)")? -->\n```\w*\n)'
    r".*?^```$",
    flags=re.MULTILINE | re.DOTALL,
)
ADDRESS = re.compile(r'(REPOSITORY = \\")[^"\\]*')  # in the JSON of a notebook
LISTED = re.compile(
    r"(<!-- (?P<what>options|names): (?P<of>\S+) -->\n).*?(<!-- end of (?P=what) -->)",
    flags=re.DOTALL,
)


def texts() -> dict[Path, str]:
    """Map each file to the text that it must have."""
    whole = {
        **{GENERATED / name: text for name, text in pages.texts().items()},
        GENERATED / "python-edgefl.md": python_api.edgefl_page(),
        GENERATED / "python-emulator.md": python_api.emulator_page(),
        **{DOCS / "_static" / name: text for name, text in diagrams.texts().items()},
    }
    written = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
    filled = {path: filled_in(path) for path in written if GENERATED not in path.parents}
    hosted = DOCS / "notebooks" / "hosted.ipynb"
    filled[hosted] = ADDRESS.sub(rf"\g<1>{clone_address()}", hosted.read_text(encoding="utf-8"))
    return whole | filled | {DOCS / "llms.txt": llms.text(DOCS, whole | filled)}


def clone_address() -> str:
    """Where the repository is: only the README says it."""
    found = re.search(r"git clone (\S+?)[\s`)]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None, "README.md: expected a line with git clone"
    return found[1]


def superfluous(made: Mapping[Path, str]) -> set[Path]:
    """Pages of the generator's folder that it does not write any more."""
    return {path for path in GENERATED.rglob("*") if path.is_file()} - {*made}


def write() -> None:
    """Write each file whose text has changed, and remove pages that are not made any more."""
    made = texts()
    for path in superfluous(made):
        path.unlink()
    for path, text in made.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def filled_in(page: Path) -> str:
    """The page with the present text of its parts."""
    text = page.read_text(encoding="utf-8")
    text = FILE.sub(lambda part: part[1] + _of_file(part) + "```", text)
    makes = {"options": pages.options_table, "names": python_api.names_list}
    return LISTED.sub(lambda part: part[1] + makes[part["what"]](part["of"]) + part[4], text)


def _of_file(part: re.Match[str]) -> str:
    text = (ROOT / part["path"]).read_text(encoding="utf-8")
    if part["first"]:
        lines = text.splitlines(keepends=True)
        begin = next(at for at, line in enumerate(lines) if line.startswith(part["first"]))
        end = next(
            at for at, line in enumerate(lines) if at > begin and line.startswith(part["last"])
        )
        text = "".join(lines[begin:end]).rstrip() + "\n"
    return text
