"""Finding the directories of runs and of schemes with several seeds, and their display names."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from edgefl.config.experiment import StrategyEntry
from edgefl.config.toml import parsed
from edgefl.errors import UserError, nearest
from edgefl.record.files import EVENTS, METRICS, SUMMARY
from edgefl.results.summary import number

MARKS = (SUMMARY, EVENTS, METRICS)
SEED = re.compile(r"seed(\d+)")


def seed_name(seed: int, several: bool) -> str:
    """Return the directory of a seed below its scheme: "seed3", or "" if there is only one."""
    return f"seed{seed}" if several else ""


def title(run: Path) -> str:
    """Return the display name of a run: "fedavg" or "fedavg seed 3"."""
    whole = run.resolve()
    match = SEED.fullmatch(whole.name)
    return f"{whole.parent.name} seed {match[1]}" if match else whole.name


def scheme_folder(run: Path) -> Path:
    """Return the directory of a run's scheme: of a seed's run, the one above it."""
    whole = run.resolve()
    return whole.parent if SEED.fullmatch(whole.name) else whole


def is_run(path: Path) -> bool:
    """Return whether ``path`` is the directory of one run, finished or not."""
    return any((path / mark).is_file() for mark in MARKS)


def runs_of(scheme: Path) -> list[Path]:
    """Return the run in this directory, or the seeds' runs one level below, by number.

    [] if there is no run.
    """
    if is_run(scheme):
        return [scheme]
    if not scheme.is_dir():
        return []
    seeds = [
        (int(match[1]), child)
        for child in scheme.iterdir()
        if (match := SEED.fullmatch(child.name)) and is_run(child)
    ]
    return [child for _, child in sorted(seeds)]


def find(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the run directories of each scheme by its display name.

    ``paths``: directories of runs, of schemes, or of several schemes. UserError if one holds no
    run.
    """
    found = {scheme: runs for path in paths for scheme, runs in _schemes_in(Path(path)).items()}
    names = {scheme: _names(scheme) for scheme in found}
    short = Counter(name for name, _ in names.values())
    longer = Counter(name for _, name in names.values())
    named: dict[str, list[Path]] = {}
    for scheme, runs in found.items():
        name, with_parent = names[scheme]
        unique = (
            name if short[name] == 1 else with_parent if longer[with_parent] == 1 else str(scheme)
        )
        named[f"{unique} (reconstructed)" if _reconstructed(runs[0]) else unique] = runs
    return named


def missing(path: Path) -> UserError:
    """Return the error about a path that is no directory; it names one that is nearly so."""
    if path.exists():
        return UserError(f"{path}: is a file, expected the directory of a run, such as runs/NAME")
    near = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [each.name for each in near if each.is_dir()]
    hint = nearest(path.name, names)  # a list of all names would be too long
    return UserError(f"{path}: no such directory{hint if 'nearest' in hint else ''}")


def _schemes_in(path: Path) -> dict[Path, list[Path]]:
    if runs := runs_of(path):
        return {path: runs}
    if not path.is_dir():
        raise missing(path)
    schemes = {child: runs for child in sorted(path.iterdir()) if (runs := runs_of(child))}
    schemes = dict(sorted(schemes.items(), key=lambda item: _place(item[1][0])))  # stable
    if not schemes:
        raise UserError(
            f"{path}: no run in it: expected the directory of an experiment, such as runs/NAME, or"
            f" of a run, which has {' or '.join(MARKS)}"
        )
    return schemes


def _place(run: Path) -> int:
    """Return the strategy's position in the run's config; the last if it has none."""
    config = read_config(run)
    names = [StrategyEntry(**entry).name for entry in config.get("strategies", [])]
    own = config.get("run", {}).get("strategy")
    return names.index(own) if own in names else sys.maxsize


def _reconstructed(run: Path) -> bool:
    """Return whether the run's algorithm was rebuilt without the paper's equations.

    Every table must show it.
    """
    found: bool = read_config(run).get("run", {}).get("reconstructed", False)
    return found


def read_config(run: Path) -> dict[str, Any]:
    """Return a run's config.toml; {} if it is missing or incomplete."""
    try:
        return parsed((run / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # unreadable, or not valid TOML or text
        return {}


def read_summary(run: Path) -> dict[str, Any]:
    """Return a run's summary.json; {} if the run has not ended, or it is damaged."""
    try:
        found = orjson.loads((run / SUMMARY).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def began_unix_s(run: Path) -> float:
    """Return the Unix time of emulated second 0; 0.0 if the run has none, or is unfinished."""
    return number(read_summary(run).get("began_unix_s")) or 0.0


def _names(scheme: Path) -> tuple[str, str]:
    """Return a short and a longer name; a single seed's directory also names its scheme."""
    parts = scheme.resolve().parts
    own = 2 if SEED.fullmatch(parts[-1]) else 1
    return "/".join(parts[-own:]), "/".join(parts[-own - 1 :])
