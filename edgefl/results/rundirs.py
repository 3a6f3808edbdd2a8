"""Which directories hold a run, and what to call each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edgefl.errors import UserError

MARKS = ("summary.json", "events.jsonl", "metrics.csv")


def is_run(path: Path) -> bool:
    """Does it look like the directory of one run, finished or not?"""
    return any((path / mark).is_file() for mark in MARKS)


def find(paths: Sequence[Path]) -> dict[str, Path]:
    """Display name -> run directory, for run directories and for directories of them; UserError if one holds none."""
    found = [run for path in paths for run in _runs_in(Path(path))]
    found = list(dict.fromkeys(found))
    short = Counter(_names(run)[0] for run in found)
    longer = Counter(_names(run)[1] for run in found)
    named: dict[str, Path] = {}
    for run in found:
        name, with_parent = _names(run)
        named[name if short[name] == 1 else with_parent if longer[with_parent] == 1 else str(run)] = run
    return named


def _runs_in(path: Path) -> list[Path]:
    if is_run(path):
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such directory")
    runs = sorted(child for child in path.iterdir() if is_run(child))
    if not runs:
        raise UserError(f"{path}: no run in it (expected one of {', '.join(MARKS)}, there or one level below)")
    return runs


def _names(run: Path) -> tuple[str, str]:
    whole = run.resolve()
    return whole.name, f"{whole.parent.name}/{whole.name}"
