"""Finding the directories of runs and of strategies with several seeds; the files of one run."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edgefl.config.toml import parsed
from edgefl.disk import OwnDisk
from edgefl.errors import UserError, nearest, undamaged
from edgefl.record.files import CONFIG, EVENTS, LINKS, METRICS, SLOTS, SUMMARY
from edgefl.results.read import (
    AT_ONCE,
    NEEDED,
    EventColumns,
    TableColumns,
    Tail,
    Texts,
    event_columns,
    number,
    read_csv,
    read_events,
    read_table,
)

if TYPE_CHECKING:
    from edgefl.results.age import Ages
    from edgefl.results.timeline import Timeline

MARKS = (SUMMARY, EVENTS, METRICS)
SEED = re.compile(r"seed(\d+)")


# ---------------------------------------------------------------------- names
def seed_name(seed: int, several: bool) -> str:
    """Return the directory of a seed below its strategy: "seed3", or "" if there is only one."""
    return f"seed{seed}" if several else ""


def title(run: Path) -> str:
    """Return the display name of a run: "fedavg" or "fedavg seed 3"."""
    path = run.resolve()
    match = SEED.fullmatch(path.name)
    return f"{path.parent.name} seed {match[1]}" if match else path.name


def strategy_folder(run: Path) -> Path:
    """Return the directory of a run's strategy: of a seed's run, the one above it."""
    path = run.resolve()
    return path.parent if SEED.fullmatch(path.name) else path


# ---------------------------------------------------------------------- directories
def is_run(path: Path) -> bool:
    """Return whether ``path`` is the directory of one run, finished or not."""
    return any((path / mark).is_file() for mark in MARKS)


def runs_of(strategy: Path) -> list[Path]:
    """Return the run in this directory, or the seeds' runs one level below, by number.

    [] if there is no run.
    """
    if is_run(strategy):
        return [strategy]
    if not strategy.is_dir():
        return []
    seeds = [
        (int(match[1]), child)
        for child in strategy.iterdir()
        if (match := SEED.fullmatch(child.name)) and is_run(child)
    ]
    return [child for _, child in sorted(seeds)]


def find(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the run directories of each strategy by its display name.

    ``paths``: directories of runs, of strategies, or of several strategies. A name is as long as it
    must be to be unique, and says if the algorithm was rebuilt without the paper's equations.
    UserError if a path holds no run.
    """
    strategies = {
        strategy: runs for path in paths for strategy, runs in _strategies_in(Path(path)).items()
    }
    names = {strategy: _names(strategy) for strategy in strategies}
    counts = [Counter(of_strategy[place] for of_strategy in names.values()) for place in (0, 1)]
    named: dict[str, list[Path]] = {}
    for strategy, runs in strategies.items():
        candidates = zip(counts, names[strategy])
        unique = next((name for count, name in candidates if count[name] == 1), str(strategy))
        rebuilt = read_config(runs[0]).get("run", {}).get("reconstructed", False)
        named[f"{unique} (reconstructed)" if rebuilt else unique] = runs
    return named


def _names(strategy: Path) -> tuple[str, str]:
    """Return a short and a longer name; a single seed's directory also names its strategy."""
    folders = strategy.resolve().parts
    own = 2 if SEED.fullmatch(folders[-1]) else 1
    return "/".join(folders[-own:]), "/".join(folders[-own - 1 :])


def _strategies_in(path: Path) -> dict[Path, list[Path]]:
    """Return the runs of each strategy in a directory, in the order of its config."""
    if runs := runs_of(path):
        return {path: runs}
    if not path.is_dir():
        raise missing(path)
    strategies = {child: runs for child in sorted(path.iterdir()) if (runs := runs_of(child))}
    if not strategies:
        raise UserError(
            f"{path}: no run in it: expected the directory of an experiment, such as runs/NAME, or"
            f" of a run, which has {' or '.join(MARKS)}"
        )
    return dict(sorted(strategies.items(), key=lambda item: _place(item[1][0])))  # stable


def _place(run: Path) -> int:
    """Return the strategy's position in the run's config; the last if it has none."""
    config = read_config(run)
    names = [entry_name(entry) for entry in config.get("strategies", [])]
    own = config.get("run", {}).get("strategy")
    return names.index(own) if own in names else sys.maxsize


def entry_name(entry: dict[str, Any]) -> str:
    """Return the name of a config's strategy, as ``StrategyEntry.name`` does."""
    return str(entry.get("label") or str(entry.get("strategy")).split(":")[-1].lower())


def missing(path: Path) -> UserError:
    """Return the error about a path that is no directory; it names one that is nearly so."""
    if path.exists():
        return UserError(f"{path}: is a file, expected the directory of a run, such as runs/NAME")
    near = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [each.name for each in near if each.is_dir()]
    hint = nearest(path.name, names)  # a list of all names would be too long
    return UserError(f"{path}: no such directory{hint if 'nearest' in hint else ''}")


# ---------------------------------------------------------------------- files
# what readers take for tables; "edges" comes before the table that is in it
TABLES = ("run", "evaluation", "medium", "edges", "edges.availability")


def read_config(run: Path) -> dict[str, Any]:
    """Return a run's config.toml; {} if it is missing or incomplete.

    UserError if one of TABLES, or an entry of ``strategies``, is no table.
    """
    try:
        config = parsed((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # unreadable, or not valid TOML or text
        return {}
    for name in TABLES:
        found: Any = config
        for key in name.split("."):
            found = found.get(key, {})
        if not isinstance(found, dict):
            raise UserError(f"{run / CONFIG}: {name}: expected a table, found {found!r:.60}")
    found = config.get("strategies", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UserError(f"{run / CONFIG}: strategies: expected tables, found {found!r:.60}")
    return config


def read_summary(run: Path) -> dict[str, Any]:
    """Return a run's summary.json; {} if the run has not ended, or it is damaged.

    OSError if the system does not let it be read: the run may well have ended.
    """
    try:
        found = orjson.loads((run / SUMMARY).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def began_unix_s(run: Path) -> float:
    """Return the Unix time of emulated second 0; 0.0 if the run has none, or is unfinished."""
    return number(read_summary(run).get("began_unix_s")) or 0.0


def mark_of(path: Path) -> object:
    """Return what differs when the file has changed since; None if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file and rename it, so that readers never see half a file.

    UserError if the system refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        OwnDisk().replace(path, data)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file: None as an empty field, floats in columns of seconds with 9 decimals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(column, value) for column, value in zip(columns, row)] for row in rows)
    replace_file(path, text.getvalue().encode())


def _field(column: str, value: Any) -> str:
    if value is None:
        return ""
    in_seconds = column.removesuffix("_mean").removesuffix("_std").endswith("_s")
    return f"{value:.9f}" if in_seconds else str(value)


def pushes_late(events: Path) -> dict[int, int]:
    """Return how many pushed models came too late to each task whose update says so."""
    found, tail = {}, Tail(events)
    while chunk := tail.read_bytes(AT_ONCE):
        for line in chunk.split(b"\n"):
            if b'"pushes_late"' in line:
                row = orjson.loads(line)
                if row.get("event") == "update_arrived":
                    found[row["task"]] = int(row["numbers"].get("pushes_late", 0))
    return found


class RunFiles:
    """The files of one run, finished or not; each is read once, when it is needed.

    UserError names a damaged row. ``texts``: those of all columns.
    """

    def __init__(self, path: Path, only: Collection[str] | None = NEEDED) -> None:
        """``only``: see EventColumns."""
        self.path, self.texts, self._only = path, Texts(), only
        self._tables: dict[str, TableColumns] = {}

    @cached_property
    def events(self) -> EventColumns:
        """The rows of events.jsonl."""
        return event_columns(self.path / EVENTS, self.texts, self._only)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The same as dicts. This takes much time and memory: see ``has_decisions`` before."""
        return read_events(self.path / EVENTS)

    def has_decisions(self, do: str) -> bool:
        """Whether there is a decision of this kind, such as "report"."""
        return bool((self.events.decisions.texts_of("do") == self.texts.number(do)).any())

    @cached_property
    def metrics(self) -> list[dict[str, str]]:
        """The rows of metrics.csv."""
        return read_csv(self.path / METRICS)

    def table(self, name: str) -> TableColumns:
        """The rows of a CSV file; none if it is missing."""
        if name not in self._tables:
            self._tables[name] = read_table(self.path / name, self.texts)
        return self._tables[name]

    @cached_property
    def timeline(self) -> Timeline:
        """What each edge does over time."""
        from edgefl.results import timeline  # few readers need it

        with undamaged(self.path):
            return timeline.of_columns(self.events, self.table(SLOTS), self.table(LINKS))

    @cached_property
    def ages(self) -> Ages:
        """The age of the models on the edges, and of merged updates."""
        from edgefl.results import age  # few readers need it

        pushes = (self.events.rows.texts_of("fact") == self.texts.number("push_arrived")).any()
        with undamaged(self.path):
            late = pushes_late(self.path / EVENTS) if pushes else {}
            return age.of_columns(self.events, self.table(LINKS), late)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's config.toml; {} if it is missing."""
        return read_config(self.path)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's summary.json; {} if the run has not ended."""
        return read_summary(self.path)
