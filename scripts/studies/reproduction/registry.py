"""Finds the entries: the folder ``entries`` is the registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from edgefl.errors import UserError, nearest
from reproduction.entry import Entry
from reproduction.papers import PAPERS

FOLDER = Path(__file__).parent / "entries"
ATTRIBUTE = "ENTRIES"


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name, paper by paper, else in the order of their files.

    UserError if two entries have one name, or if an entry's paper is unknown.
    """
    found: dict[str, Entry] = {}
    for entry in sorted(_bound(), key=lambda entry: list(PAPERS).index(_paper(entry))):
        if entry.name in found:
            raise UserError(f"two entries have the name {entry.name!r}")
        found[entry.name] = entry
    return found


def find(name: str) -> Entry:
    """Return the entry ``name``. UserError, with the nearest name, if there is none."""
    known = entries()
    if name not in known:
        raise UserError(f"--entry {name}: unknown entry{nearest(name, known)}; --list shows all")
    return known[name]


def with_used(chosen: Sequence[Entry]) -> list[Entry]:
    """Return the entries with those whose runs they use, which come first; each one once."""
    found: dict[str, Entry] = {}
    for entry in chosen:
        found |= {used.name: used for used in with_used([find(name) for name in entry.uses])}
        found[entry.name] = entry
    return list(found.values())


def _bound() -> Iterator[Entry]:
    for path in sorted(FOLDER.glob("[!_]*.py")):
        yield from getattr(import_module(f"reproduction.entries.{path.stem}"), ATTRIBUTE)


def _paper(entry: Entry) -> str:
    if entry.paper not in PAPERS:
        near = nearest(entry.paper, PAPERS)
        raise UserError(f"{entry.name}: unknown paper {entry.paper!r}{near}")
    return entry.paper
