"""What the runs of an entry have left: rows and curves, in memory and in CSV files.

ENTRY.csv has a row per run, ENTRY-curves.csv at most CURVE_POINTS evaluations of each table run.
Numbers have DIGITS digits, also in memory, so that a study that goes on from the files decides as
one that never stopped. Files are replaced as a whole: an interruption leaves the old or the new.
Every number of a run is None if the run does not have it: a loss that is not finite, a time to a
target that was never reached.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from edgefl.errors import undamaged
from edgefl.plugins.sweep.choice import facts_of
from edgefl.record.files import METRICS, SUMMARY
from edgefl.results.read import number, read_csv
from edgefl.results.run_files import replace_file
from edgefl.results.statistics import Spread, spread
from edgefl.results.summary import staleness_stats
from reproduction.entry import Entry, Part, Scale
from reproduction.measures import MEASURES

# The version of docs/results/rule.md under which rows are made, and the numbers whose meaning it
# changed: of rule 1, convergence_accuracy is the mean of the last ten evaluations.
RULE, OF_RULE = 2, ("convergence_accuracy",)
MORE_LOOKS = {(3,): (3, 6, 12), (5,): (5, 10)}  # of an entry that left claims undecided
WRONG = 0.05  # how often a verdict may be wrong if nothing is there, all looks together
MAIN = "main"  # the usual name of an entry's only part
RESULT, TUNING, CONFIRMING = "result", "tuning", "confirming"  # roles of runs

# Numbers of every run. Those of summary.json keep their names (docs/reference/files.md).
NUMBERS = (
    "final_accuracy",
    "convergence_accuracy",  # mean over the last tenth of the time; of rule 1: see OF_RULE
    "best_accuracy",
    "final_loss",
    "final_train_loss",
    "late_train_loss",  # mean over the last fifth of the evaluations
    "stability",
    "time_to_target_s",
    "versions",
    "updates_applied",
    "updates_discarded",
    "bytes_up",
    "bytes_down",
    "staleness_mean",
    "emulated_s",
)

CURVE_POINTS, DIGITS = 60, 9
HEAD = ("scale", "part", "method", "role", "seed", "setting", "fidelity")
TAIL = ("cpu_s", "wall_s", "digest", "machine", "made_by", "rule")
VALUES = ("accuracy", "loss", "train_loss")
CURVE = ("scale", "part", "method", "seed", "emulated_s", "version", *VALUES)
MACHINES = "machines.csv"
BETWEEN, EQUALS = "; ", "="


class NoResults(Exception):
    """There are no runs for what was asked; a claim that needs them is "not run"."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A finished run.

    ``numbers``: NUMBERS and the part's measures. ``setting``: tuned key -> its value as text.
    ``fidelity``: faithful or strained; "" under the virtual clock.
    ``cpu_s``: CPU seconds of all its processes.
    ``digest``: the commit and a digest of the config that decide its numbers, "COMMIT-cHEX".
    ``machine``: an id. Rows of earlier versions have digests of the strategy's code (s) and of the
    trainer's (t) in place of the commit; ``made_by`` is such a digest, of earlier code that was
    found to give the same numbers. ``rule``: RULE, or an earlier one.
    """

    scale: Scale
    part: str
    method: str
    role: str
    seed: int
    setting: Mapping[str, str]
    numbers: Mapping[str, float | None]
    fidelity: str = ""
    cpu_s: float | None = None
    wall_s: float | None = None
    digest: str = ""
    machine: str = ""
    made_by: str = ""
    rule: int = RULE


@dataclass(frozen=True, slots=True)
class CurveRow:
    """An evaluation of a result run."""

    scale: Scale
    part: str
    method: str
    seed: int
    emulated_s: float
    version: int
    accuracy: float | None
    loss: float | None
    train_loss: float | None


def key_in(which: str) -> tuple[str, str]:
    """Return (part, method) of "PART/METHOD", or of a "METHOD" of the part MAIN."""
    part, _, method = which.rpartition("/")
    return part or MAIN, method


def _no_others(name: str) -> Results:
    raise NoResults(f"no results of {name}")


@dataclass(frozen=True, slots=True)
class Results:
    """The results of an entry at one scale.

    ``of``: finds the results of another entry, at the same scale; NoResults if it has none.
    ``among``: how many statements share the 5 % of wrong verdicts, where one of them is enough.
    A run is asked for by its method: "METHOD" of the part MAIN, or "PART/METHOD".
    """

    entry: Entry
    scale: Scale
    rows: Sequence[RunRow] = ()
    curve_rows: Sequence[CurveRow] = ()
    of: Callable[[str], Results] = field(default=_no_others, repr=False)
    among: int = 1

    # ------------------------------------------------------------------ looks
    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds at which claims are judged; (): any number, at the small scale."""
        return self.entry.looks if self.scale is Scale.paper else ()

    @property
    def confidence(self) -> float:
        """That of an interval at one look."""
        return 1.0 - WRONG / max(len(self.looks), 1) / self.among

    @property
    def further_confidence(self) -> float:
        """That at which further seeds are judged: an entry with one look may get more of them."""
        return 1.0 - WRONG / len(MORE_LOOKS.get(self.looks, self.looks or (1,))) / self.among

    def look(self, seeds: int) -> int:
        """Return how many of so many seeds count: those of the latest look; 0: it is too early."""
        if not self.looks:
            return seeds
        return max((look for look in self.looks if look <= seeds), default=0)

    def next_look(self, seeds: int, planned: int) -> int:
        """Return how many seeds the look has at which ``seeds`` will count: ``planned`` at most."""
        return min([planned, *(look for look in self.looks if look >= seeds)])

    def refuse_mixed(self, methods: Iterable[str], column: str) -> None:
        """Raise NoResults if the numbers of ``column`` are of two versions of the rule."""
        rules = {row.rule for which in methods for row in self.runs(which)}
        if column in OF_RULE and len(rules) > 1:
            raise NoResults(f"{self.entry.name}: its runs are of two versions of the rule")

    # ------------------------------------------------------------------ runs of the table
    def runs(self, which: str) -> list[RunRow]:
        """Return the rows of a method's table runs, by seed.

        NoResults if it has none; KeyError if the entry has no such part or method.
        """
        part, method = key_in(which)
        self.entry.part(part).method(method)
        found = self._rows(part, method, RESULT)
        if not found:
            raise NoResults(f"{self.entry.name}: no runs of {method} in {part}")
        return sorted(found, key=lambda row: row.seed)

    def _rows(self, part: str, method: str, role: str) -> list[RunRow]:
        own = part, method, role
        return [row for row in self.rows if (row.part, row.method, row.role) == own]

    def has(self, which: str) -> bool:
        """Return whether the method has table runs."""
        try:
            return bool(self.runs(which))
        except NoResults:
            return False

    def values(self, which: str, column: str) -> dict[int, float | None]:
        """Return seed -> the number ``column`` of a method's table runs.

        ``column``: of NUMBERS or the part's measures. KeyError for another one.
        """
        return {row.seed: row.numbers[column] for row in self.runs(which)}

    def spread(self, which: str, column: str) -> Spread:
        """Return mean and deviation over the seeds; the mean is None unless all runs have it."""
        return spread(list(self.values(which, column).values()))

    def mean(self, which: str, column: str) -> float | None:
        """Return the mean over the seeds; None unless all runs have the number."""
        return self.spread(which, column).mean

    def is_complete(self, part: str, seeds: int | None = None) -> bool:
        """Return whether every method of the part has a run with every seed of this scale.

        ``seeds``: the first ones that are enough.
        """
        plan = self.entry.part(part)
        wanted = set(plan.seeds_at(self.scale)[:seeds])
        return all(
            wanted <= {row.seed for row in self._rows(part, each.shown, RESULT)}
            for each in plan.methods
        )

    def is_strained(self, part: str) -> bool:
        """Return whether a table run of the part on the wall clock was not faithful."""
        return any(
            row.part == part and row.role == RESULT and row.fidelity not in ("", "faithful")
            for row in self.rows
        )

    # ------------------------------------------------------------------ curves
    def curve(
        self, which: str, column: str = "accuracy", x: str = "emulated_s"
    ) -> dict[int, list[tuple[float, float]]]:
        """Return seed -> (x, value) in order; points without a finite value are left out.

        ``column``: accuracy, loss or train_loss. ``x``: emulated_s or version.
        """
        part, method = key_in(which)
        self.entry.part(part).method(method)
        found: dict[int, list[tuple[float, float]]] = {}
        for row in sorted(self.curve_rows, key=lambda row: (row.emulated_s, row.version)):
            value = getattr(row, column)
            if (row.part, row.method) == (part, method) and value is not None:
                found.setdefault(row.seed, []).append((float(getattr(row, x)), value))
        return dict(sorted(found.items()))

    # ------------------------------------------------------------------ tuning
    def tried(self, which: str, role: str = TUNING) -> list[RunRow]:
        """Return the rows of a method's tuning runs, or of those that confirm."""
        return self._rows(*key_in(which), role)

    def setting(self, which: str) -> Mapping[str, str]:
        """Return the tuned values with which the method's table runs were made."""
        return self.runs(which)[0].setting

    def parts(self) -> list[Part]:
        """Return the parts that have at least one table run."""
        there = {row.part for row in self.rows if row.role == RESULT}
        return [part for part in self.entry.parts if part.name in there]


# ------------------------------------------------------------------ from a run directory
def numbers_of(run: Path, measures: Sequence[str]) -> dict[str, float | None]:
    """Return NUMBERS and the measures of a finished run."""
    with undamaged(run / SUMMARY):
        facts = facts_of(run)
        rows = read_csv(run / METRICS)
        losses = _train_losses(rows)
        found: dict[str, Any] = {name: facts.get(name) for name in NUMBERS}
        found |= {
            "final_train_loss": losses[-1] if losses else None,
            "late_train_loss": _late(losses),
            "updates_discarded": sum(facts.get("updates_discarded", {}).values()),
            "staleness_mean": staleness_stats(facts.get("staleness", {}))[0],
        }
    found |= {name: MEASURES[name](run) for name in measures}
    return {name: rounded(number(value)) for name, value in found.items()}


def fidelity_of(run: Path, clock: str) -> str:
    """Return faithful or strained for a run on the wall clock, else ""."""
    return "" if clock == "virtual" else str(facts_of(run)["fidelity"]["verdict"])


def curve_of(run: Path, scale: Scale, part: str, method: str, seed: int) -> list[CurveRow]:
    """Return at most CURVE_POINTS evaluations of a run, evenly spaced, with first and last."""
    with undamaged(run / METRICS):
        rows = sorted(read_csv(run / METRICS), key=lambda row: number(row["emulated_s"]) or 0.0)
        found = [
            CurveRow(
                scale,
                part,
                method,
                seed,
                rounded(number(row["emulated_s"])) or 0.0,
                int(row["version"]),
                *(rounded(number(row.get(name))) for name in ("accuracy", "test_loss")),
                rounded(number(row.get("train_loss"))),
            )
            for row in rows
        ]
    if len(found) <= CURVE_POINTS:
        return found
    last = len(found) - 1
    return [found[round(place * last / (CURVE_POINTS - 1))] for place in range(CURVE_POINTS)]


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
                self.rows = [_row(each, self.columns) for each in _read(self.path)]
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

    def drop(self, scale: Scale) -> None:
        """Remove all runs of a scale, and write the files."""
        self.rows = [row for row in self.rows if row.scale is not scale]
        self.write()  # the rows first: none is ever without its curve
        self.curves = [row for row in self.curves if row.scale is not scale]
        self.write()

    def drop_settings(self, scale: Scale, part: str, best: Mapping[str, Mapping[str, str]]) -> None:
        """Remove the table runs of a part with other settings than ``best``, by method."""
        stale = {
            _curve_key(row)
            for row in self.rows
            if (row.scale, row.part, row.role) == (scale, part, RESULT)
            and row.method in best
            and dict(row.setting) != dict(best[row.method])
        }
        if stale:
            self.rows = [
                each for each in self.rows if each.role != RESULT or _curve_key(each) not in stale
            ]
            self.write()
            self.curves = [each for each in self.curves if _curve_key(each) not in stale]
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
        return (*self._head(row), row.role == RESULT, row.seed, setting_text(row.setting))

    def _head(self, row: RunRow | CurveRow) -> tuple[Any, ...]:
        place = self._places.get((row.part, row.method), len(self._places))
        return row.scale == Scale.paper, place, row.part, row.method


Key = tuple[Scale, str, str, str, int, str]


def key_of(row: RunRow) -> Key:
    """Return what names a run: scale, part, method, role, seed, and its setting if it chooses one.

    A table run has one setting, so that a new best setting replaces it.
    """
    setting = "" if row.role == RESULT else setting_text(row.setting)
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


def _row(given: dict[str, str], columns: Sequence[str]) -> RunRow:
    """Read a row; a measure that is newer than its file is None in it."""
    numbers = dict.fromkeys(columns, "")
    numbers |= {name: given[name] for name in given if name not in (*HEAD, *TAIL)}
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
        int(given.get("rule") or 1),
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
