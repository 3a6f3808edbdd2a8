"""What the runs of an entry have left: rows and curves, as rules and pages read them.

``tables`` writes and reads the files. Every number of a run is None if the run does not have it: a
loss that is not finite, a time to a target that was never reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgefl.results.compare import Spread, spread
from reproduction.entry import Entry, Part, Scale

MAIN = "main"  # the usual name of an entry's only part
RESULT, TUNING = "result", "tuning"  # roles of runs

# Numbers of every run. Those of summary.json keep their names (docs/reference/files.md).
NUMBERS = (
    "final_accuracy",
    "convergence_accuracy",  # stored results: mean of the last ten evaluations
    "late_accuracy",  # mean over the last 500 emulated s
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


class NoResults(Exception):
    """There are no runs for what was asked; a claim that needs them is "not run"."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A finished run.

    ``numbers``: NUMBERS and the part's measures. ``setting``: tuned key -> its value as text.
    ``fidelity``: faithful or strained; "" under the virtual clock.
    ``cpu_s``: CPU seconds of all its processes.
    ``digest``: of the code and the config that decide its numbers. ``machine``: an id.
    ``made_by``: the digest of the code that made it, if other code was found to give the same
    numbers since then (``confirm``); else "".
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


def _no_others(name: str) -> Results:
    raise NoResults(f"no results of {name}")


@dataclass(frozen=True, slots=True)
class Results:
    """The results of an entry at one scale.

    ``load``: finds the results of another entry, at the same scale.
    """

    entry: Entry
    scale: Scale
    rows: Sequence[RunRow] = ()
    curve_rows: Sequence[CurveRow] = ()
    load: Callable[[str], Results] = field(default=_no_others, repr=False)

    def of(self, entry: str) -> Results:
        """Return the results of another entry at the same scale. NoResults if it has none."""
        return self.load(entry)

    # ------------------------------------------------------------------ runs of the table
    def runs(self, method: str, part: str = MAIN) -> list[RunRow]:
        """Return the rows of a method's table runs, by seed.

        NoResults if it has none; KeyError if the entry has no such part or method.
        """
        self.entry.part(part).method(method)
        found = [
            row for row in self.rows if (row.part, row.method, row.role) == (part, method, RESULT)
        ]
        if not found:
            raise NoResults(f"{self.entry.name}: no runs of {method} in {part}")
        return sorted(found, key=lambda row: row.seed)

    def has(self, method: str, part: str = MAIN) -> bool:
        """Return whether the method has table runs."""
        try:
            return bool(self.runs(method, part))
        except NoResults:
            return False

    def values(self, method: str, column: str, part: str = MAIN) -> dict[int, float | None]:
        """Return seed -> the number ``column`` of a method's table runs.

        ``column``: of NUMBERS or the part's measures. KeyError for another one.
        """
        return {row.seed: row.numbers[column] for row in self.runs(method, part)}

    def spread(self, method: str, column: str, part: str = MAIN) -> Spread:
        """Return mean and deviation over the seeds; the mean is None unless all runs have it."""
        return spread(list(self.values(method, column, part).values()))

    def mean(self, method: str, column: str, part: str = MAIN) -> float | None:
        """Return the mean over the seeds; None unless all runs have the number."""
        return self.spread(method, column, part).mean

    def is_complete(self, part: str) -> bool:
        """Return whether every method of the part has a run with every seed of this scale."""
        plan = self.entry.part(part)
        wanted = set(plan.seeds_at(self.scale))
        return all(
            self.has(each.shown, part)
            and wanted <= {row.seed for row in self.runs(each.shown, part)}
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
        self, method: str, column: str = "accuracy", part: str = MAIN, x: str = "emulated_s"
    ) -> dict[int, list[tuple[float, float]]]:
        """Return seed -> (x, value) in order; points without a finite value are left out.

        ``column``: accuracy, loss or train_loss. ``x``: emulated_s or version.
        """
        self.entry.part(part).method(method)
        found: dict[int, list[tuple[float, float]]] = {}
        for row in self.curve_rows:
            value = getattr(row, column)
            if (row.part, row.method) == (part, method) and value is not None:
                found.setdefault(row.seed, []).append((float(getattr(row, x)), value))
        return {seed: sorted(points) for seed, points in sorted(found.items())}

    def at(
        self, method: str, emulated_s: float, column: str = "accuracy", part: str = MAIN
    ) -> dict[int, float | None]:
        """Return seed -> the last value up to a moment; None before the first one."""
        return {
            seed: next((value for t, value in reversed(points) if t <= emulated_s), None)
            for seed, points in self.curve(method, column, part).items()
        }

    # ------------------------------------------------------------------ tuning
    def tried(self, method: str, part: str = MAIN) -> list[RunRow]:
        """Return the rows of a method's tuning runs."""
        return [
            row for row in self.rows if (row.part, row.method, row.role) == (part, method, TUNING)
        ]

    def setting(self, method: str, part: str = MAIN) -> Mapping[str, str]:
        """Return the tuned values with which the method's table runs were made."""
        return self.runs(method, part)[0].setting

    def parts(self) -> list[Part]:
        """Return the parts that have at least one table run."""
        there = {row.part for row in self.rows if row.role == RESULT}
        return [part for part in self.entry.parts if part.name in there]
