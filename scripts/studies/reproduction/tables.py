"""The result files: rows and curves of runs as CSV, read from run directories, written and read.

ENTRY.csv has a row per run, ENTRY-curves.csv at most CURVE_POINTS evaluations of each table run.
Numbers have DIGITS digits, also in memory, so that a study that goes on from the files decides as
one that never stopped. Files are replaced as a whole: an interruption leaves the old or the new.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from edgefl.errors import undamaged
from edgefl.record.files import METRICS, SUMMARY
from edgefl.results.compare import replace_file
from edgefl.results.summary import evaluations, number, staleness_stats
from edgefl.results.tail import read_csv
from edgefl.sweep.metrics import facts_of, late_accuracy
from reproduction.entry import Entry, Measure, Scale
from reproduction.results import NUMBERS, CurveRow, RunRow

CURVE_POINTS, DIGITS = 60, 9
HEAD = ("scale", "part", "method", "role", "seed", "setting", "fidelity")
TAIL = ("cpu_s", "wall_s", "digest", "machine", "made_by")
VALUES = ("accuracy", "loss", "train_loss")
CURVE = ("scale", "part", "method", "seed", "emulated_s", "version", *VALUES)
MACHINES = "machines.csv"
BETWEEN, EQUALS = "; ", "="


# ------------------------------------------------------------------ from a run directory
def numbers_of(run: Path, measures: Mapping[str, Measure]) -> dict[str, float | None]:
    """Return NUMBERS and the measures of a finished run."""
    with undamaged(run / SUMMARY):
        facts = facts_of(run)
        rows = read_csv(run / METRICS)
        losses = _train_losses(rows)
        found: dict[str, Any] = {name: facts.get(name) for name in NUMBERS}
        found |= {
            "late_accuracy": late_accuracy(evaluations(rows), facts["emulated_s"]),
            "final_train_loss": losses[-1] if losses else None,
            "late_train_loss": _late(losses),
            "updates_discarded": sum(facts.get("updates_discarded", {}).values()),
            "staleness_mean": staleness_stats(facts.get("staleness", {}))[0],
        }
    found |= {name: measure(run) for name, measure in measures.items()}
    return {name: rounded(number(value)) for name, value in found.items()}


def fidelity_of(run: Path, clock: str) -> str:
    """Return faithful or strained for a run on the wall clock, else ""."""
    return "" if clock == "virtual" else str(facts_of(run)["fidelity"]["verdict"])


def curve_of(run: Path, scale: Scale, part: str, method: str, seed: int) -> list[CurveRow]:
    """Return at most CURVE_POINTS evaluations of a run, evenly spaced, with first and last."""
    return _thinned(points_of(run, CurveRow(scale, part, method, seed, 0.0, 0, None, None, None)))


def points_of(run: Path, like: CurveRow) -> list[CurveRow]:
    """Return all evaluations of a run in order of time, as rows of the run that ``like`` is of."""
    with undamaged(run / METRICS):
        found = sorted(read_csv(run / METRICS), key=lambda row: number(row["emulated_s"]) or 0.0)
        return [
            replace(
                like,
                emulated_s=rounded(number(row["emulated_s"])) or 0.0,
                version=int(row["version"]),
                accuracy=rounded(number(row.get("accuracy"))),
                loss=rounded(number(row.get("test_loss"))),
                train_loss=rounded(number(row.get("train_loss"))),
            )
            for row in found
        ]


def rounded(value: float | None) -> float | None:
    """Return a number as the files have it."""
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _train_losses(rows: Sequence[Mapping[str, str]]) -> list[float | None]:
    """Return the train losses in order of time; None for one that is not finite."""
    there = [row for row in rows if row.get("train_loss")]
    ordered = sorted(there, key=lambda row: number(row["emulated_s"]) or 0.0)
    return [number(row["train_loss"]) for row in ordered]


def _late(losses: Sequence[float | None]) -> float | None:
    """Return the mean of the last fifth; None without losses, or if one is not finite."""
    last = losses[-max(len(losses) // 5, 1) :]
    there = [loss for loss in last if loss is not None]
    return fmean(there) if last and len(there) == len(last) else None


def _thinned(rows: Sequence[Any]) -> list[Any]:
    if len(rows) <= CURVE_POINTS:
        return list(rows)
    last = len(rows) - 1
    return [rows[round(place * last / (CURVE_POINTS - 1))] for place in range(CURVE_POINTS)]


# ------------------------------------------------------------------ files
class Tables:
    """The result files of one entry in ``folder``: rows and curves of all scales."""

    def __init__(self, folder: Path, entry: Entry) -> None:
        """Read what is there. UserError if a file is damaged."""
        self.entry = entry
        self.path = folder / f"{entry.name}.csv"
        self.curves_path = folder / f"{entry.name}-curves.csv"
        measures = [name for part in entry.parts for name in part.measures]
        self.columns = list(dict.fromkeys((*NUMBERS, *measures)))
        self._places = {
            (part.name, method.shown): place
            for place, (part, method) in enumerate(
                (part, method) for part in entry.parts for method in part.methods
            )
        }
        self.rows: list[RunRow] = []
        self.curves: list[CurveRow] = []
        if self.path.is_file():
            with undamaged(self.path):
                self.rows = [_row(each) for each in _read(self.path)]
        if self.curves_path.is_file():
            with undamaged(self.curves_path):
                self.curves = [_curve(each) for each in _read(self.curves_path)]

    def put(self, row: RunRow, curve: Sequence[CurveRow] = ()) -> None:
        """Add a run, in place of the same one, and write the files; the curve comes first."""
        self.rows = [each for each in self.rows if key_of(each) != key_of(row)] + [row]
        if curve:
            keys = {_curve_key(each) for each in curve}
            kept = [each for each in self.curves if _curve_key(each) not in keys]
            self.curves = [*kept, *curve]
        self.write()

    def replace(self, rows: Sequence[RunRow]) -> None:
        """Take ``rows`` in place of the same runs, and write the files."""
        new = {key_of(row): row for row in rows}
        self.rows = [new.get(key_of(row), row) for row in self.rows]
        self.write()

    def drop(self, scale: Scale) -> None:
        """Remove all runs of a scale, and write the files."""
        self.rows = [row for row in self.rows if row.scale is not scale]
        self.curves = [row for row in self.curves if row.scale is not scale]
        self.write()

    def write(self) -> None:
        """Write both files in an order that does not depend on the order of the runs."""
        self.rows.sort(key=self._order)
        self.curves.sort(key=lambda row: (*self._head(row), row.seed, row.emulated_s, row.version))
        _write(
            self.curves_path,
            CURVE,
            [[_text(getattr(row, column)) for column in CURVE] for row in self.curves],
        )
        columns = (*HEAD, *self.columns, *TAIL)
        _write(self.path, columns, [_cells(row, columns) for row in self.rows])

    def _order(self, row: RunRow) -> tuple[Any, ...]:
        return (*self._head(row), row.role == "result", row.seed, setting_text(row.setting))

    def _head(self, row: RunRow | CurveRow) -> tuple[Any, ...]:
        place = self._places.get((row.part, row.method), len(self._places))
        return row.scale == Scale.paper, place, row.part, row.method


Key = tuple[Scale, str, str, str, int, str]


def key_of(row: RunRow) -> Key:
    """Return what names a run: scale, part, method, role, seed, setting of a tuning run.

    A table run has one setting, so that a new best setting replaces it.
    """
    setting = setting_text(row.setting) if row.role == "tuning" else ""
    return row.scale, row.part, row.method, row.role, row.seed, setting


def setting_text(setting: Mapping[str, str]) -> str:
    """Return "mu_alpha=1.0; mu_beta=3.0"."""
    return BETWEEN.join(f"{key}{EQUALS}{value}" for key, value in setting.items())


def setting_of(text: str) -> dict[str, str]:
    """Read what ``setting_text`` returns."""
    pairs = (each.partition(EQUALS) for each in text.split(BETWEEN) if each)
    return {key: value for key, _, value in pairs}


def read_machines(folder: Path) -> dict[str, dict[str, str]]:
    """Return the facts of each machine by its id; {} without the file."""
    path = folder / MACHINES
    if not path.is_file():
        return {}
    with undamaged(path):
        return {row.pop("machine"): row for row in _read(path)}


def put_machine(folder: Path, name: str, facts: Mapping[str, str]) -> None:
    """Add a machine to machines.csv, if it is not there."""
    known = read_machines(folder)
    if name in known:
        return
    known[name] = dict(facts)
    columns = list(dict.fromkeys(key for each in known.values() for key in each))
    rows = [[key, *(each.get(column) for column in columns)] for key, each in sorted(known.items())]
    _write(folder / MACHINES, ["machine", *columns], rows)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    replace_file(path, text.getvalue().encode())


def _row(given: dict[str, str]) -> RunRow:
    numbers = {name: given[name] for name in given if name not in (*HEAD, *TAIL)}
    return RunRow(
        Scale(given["scale"]),
        given["part"],
        given["method"],
        given["role"],
        int(given["seed"]),
        setting_of(given["setting"]),
        {name: number(value) for name, value in numbers.items()},
        given["fidelity"],
        number(given["cpu_s"]),
        number(given["wall_s"]),
        given["digest"],
        given["machine"],
        given.get("made_by", ""),
    )


def _curve(given: dict[str, str]) -> CurveRow:
    return CurveRow(
        Scale(given["scale"]),
        given["part"],
        given["method"],
        int(given["seed"]),
        float(given["emulated_s"]),
        int(given["version"]),
        *(number(given[column]) for column in VALUES),
    )


def _cells(row: RunRow, columns: Sequence[str]) -> list[Any]:
    own = {name: getattr(row, name) for name in (*HEAD, *TAIL)}
    own["setting"] = setting_text(row.setting)
    return [_text({**row.numbers, **own}.get(column)) for column in columns]


def _text(value: Any) -> Any:
    """Return a number as text: ``write_table`` would give seconds nine decimals."""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value


def _curve_key(row: CurveRow) -> tuple[Scale, str, str, int]:
    return row.scale, row.part, row.method, row.seed
