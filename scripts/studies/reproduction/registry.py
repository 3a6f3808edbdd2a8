"""Finds the entries: the folder ``papers`` is the registry, with a TOML file per paper.

A file has ``[paper]``, ``[[entries]]`` with the keys of ``entry.Entry``, and what entries share:

- ``[names]``: ``{NAME}`` in a text stands for its value. A text that is only ``{NAME}`` becomes the
  value itself, which may be a list or a table; ``*{NAME}`` in a list becomes its items.
- ``each`` in a table of a list makes a copy of it for each row, with the row's names: a list of
  rows, or name -> values, in every combination. A value may be a row itself.
- ``like``: a part or an entry has the keys of another one where it gives none of its own. The part
  is one of ``[templates]``, "PART" of the same entry, or "ENTRY/PART". ``more``: overrides after
  those of the other part.
- A method that is only a text is the label.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from edgefl.config.section import Source, validated
from edgefl.errors import UserError, nearest, undamaged
from reproduction.entry import CONFIGS, LOOKS, Entry, Paper

FOLDER = Path(__file__).parent / "papers"
NAME = re.compile(r"\{(\w+)\}")
ITEMS = re.compile(r"\*\{(\w+)\}")
Raw = dict[str, Any]


@cache
def papers() -> dict[str, Paper]:
    """Return all papers by key, in order."""
    found = [paper for paper, _ in _files(FOLDER)]
    return {paper.key: paper for paper in sorted(found, key=lambda paper: paper.key)}


@cache
def entries(folder: Path = FOLDER) -> dict[str, Entry]:
    """Return all entries by name, paper by paper, else in the order of their files.

    UserError if two entries have one name, or if a file is not as it should be.
    """
    found: dict[str, Entry] = {}
    for _, its in sorted(_files(folder), key=lambda pair: pair[0].key):
        for entry in its:
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


# ------------------------------------------------------------------ files
@cache
def _files(folder: Path) -> list[tuple[Paper, list[Entry]]]:
    return [_read(path) for path in sorted(folder.glob("*.toml"))]


def _read(path: Path) -> tuple[Paper, list[Entry]]:
    with undamaged(path):
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    source = Source(path.name)
    paper = validated(Paper, {"page": path.stem, **raw["paper"]}, source, ("paper",))
    names = raw.get("names", {})
    known: Raw = dict(raw.get("templates", {}))  # parts, and entries, that others are like
    tables = [_inherited({"paper": paper.key, **each}, known) for each in raw["entries"]]
    found = [
        validated(Entry, _completed(made), source, ("entries", made.get("name", "?")))
        for each in tables
        for made in _copies(each, names)
    ]
    return paper, found


def _inherited(table: Raw, known: Raw) -> Raw:
    """Return an entry with all keys of it and of its parts; they are then in ``known``."""
    whole = {**known.get(table.pop("like", ""), {}), **table}
    parts = []
    for own in whole.get("parts", ()):
        like = own.get("like", "")
        base = known.get(like) or known.get(f"{whole['name']}/{like}")
        if like and base is None:
            raise UserError(f"{whole['name']}: like: expected a template or a part, found {like!r}")
        base = base or {}
        part = {**base, **{key: value for key, value in own.items() if key not in ("like", "more")}}
        if "more" in own:
            part["overrides"] = [*base.get("overrides", ()), *own["more"]]
        known[f"{whole['name']}/{part['name']}"] = part
        parts.append(part)
    whole["parts"] = parts
    known[whole["name"]] = whole
    return whole


def _completed(entry: Raw) -> Raw:
    seeds = range(1, entry.get("looks", LOOKS)[-1] + 1)
    for part in entry["parts"]:
        part.setdefault("seeds", list(seeds))
        part["config"] = CONFIGS / part["config"]
        part["methods"] = [
            {"label": each} if isinstance(each, str) else each for each in part["methods"]
        ]
    return entry


# ------------------------------------------------------------------ templates
def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a value of a file with its names filled in and its templates copied."""
    if isinstance(value, str):
        whole = NAME.fullmatch(value)
        if whole and whole[1] in names:
            return _filled(names[whole[1]], names)
        return NAME.sub(
            lambda found: str(_filled(found[0], names)) if found[1] in names else found[0], value
        )
    if isinstance(value, list):
        return [made for each in value for made in _copies(each, names)]
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    return value


def _copies(value: Any, names: Mapping[str, Any]) -> list[Any]:
    """Return an item of a list, filled: several ones for a table with ``each``, and for items."""
    if isinstance(value, str) and (items := ITEMS.fullmatch(value)):
        return _filled(names[items[1]], names)
    if not isinstance(value, dict) or "each" not in value:
        return [_filled(value, names)]
    rest = {key: each for key, each in value.items() if key != "each"}
    return [_filled(rest, {**names, **row}) for row in _rows(_filled(value["each"], names))]


def _rows(each: Any) -> list[Raw]:
    if isinstance(each, list):
        return each
    rows = []
    for values in product(*each.values()):
        row: Raw = {}
        for name, value in zip(each, values):
            row |= value if isinstance(value, dict) else {name: value}
        rows.append(row)
    return rows
