"""Runs as rows of numbers, their spread over seeds, comparison.csv and comparison_seeds.csv."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of, target_in
from edgefl.errors import UserError, undamaged
from edgefl.results import energy, rundirs, summary
from edgefl.results.summary import DIVERGED, FAILED, INTERRUPTED, STRAINED
from edgefl.results.tail import is_torn, read_csv, read_events
from edgefl.results.warnings import warnings

UNFINISHED = summary.UNFINISHED


Record = dict[str, Any]  # a row of a file, by its columns


@dataclass(frozen=True, slots=True)
class Row:
    """One run; the fields are the columns of comparison.csv.

    The seeds of a scheme share their ``name``. ``verdict``: see ``summary.verdict``; "unfinished"
    if the run has no summary; ``finished`` is the reason why it ended. The accuracies and their
    target are those of the run's ``metric``, if that is another score; the columns are then named
    after it.
    """

    name: str
    strategy: str
    clock: str | None
    seed: int | None
    final_accuracy: float | None
    convergence_accuracy: float | None
    best_accuracy: float | None
    stability: float | None
    target_accuracy: float | None
    time_to_target_s: float | None
    versions: int
    updates_received: int | None  # None: an old run that did not count it
    updates_applied: int
    updates_discarded: int
    bytes_up: int
    bytes_down: int
    staleness_mean: float | None
    staleness_max: int | None
    emulated_s: float | None
    wall_s: float | None
    finished: str | None
    verdict: str
    reasons: str
    warnings: str = ""  # all of them in one line
    resumptions: int = 0
    outage_s: float = 0.0  # wall seconds between a break and the resumption, all together
    joules: float | None = None  # None: its config has no powers
    joules_to_target: float | None = None
    joules_kind: str | None = None  # "modelled" or "measured"
    raw_bytes_up: int | None = None  # without compression; None: the run has none
    raw_bytes_down: int | None = None
    # the emulated seconds over which ``convergence_accuracy`` is the mean; None: a run of an older
    # version, where it is the mean of the last ten evaluations
    convergence_from_s: float | None = None
    convergence_to_s: float | None = None
    metric: str = ACCURACY.name  # which score ``final_accuracy`` and the others are

    @property
    def score(self) -> Score:
        return SCORES.get(self.metric, ACCURACY)

    @property
    def mark(self) -> str:
        """The verdict, or "interrupted" if the run was broken off before its own end."""
        return summary.INTERRUPTED if self.finished in summary.BROKEN_OFF else self.verdict


def load(*paths: Path) -> list[Row]:
    """Load every run in ``paths`` or below, the seeds of a scheme one after another.

    UserError if a path holds no run.
    """
    rows: list[Row] = []
    for name, runs in rundirs.find(paths).items():
        for run in runs:
            with undamaged(run):
                rows.append(row := load_run(run, name))
            _check_numbers(row, run / "summary.json")
    return rows


def _check_numbers(row: Row, path: Path) -> None:
    for field in fields(row):
        value = getattr(row, field.name)
        if field.type in ("int", "int | None", "float", "float | None") and not isinstance(
            value, (int, float, NoneType)
        ):
            raise UserError(f"{path}: {field.name}: expected a number, found {value!r:.60}")


def load_run(run: Path, name: str) -> Row:
    """Load a run's summary.json, or else what its events and metrics give, as "unfinished"."""
    facts = rundirs.read_summary(run) or _unfinished(run)
    mean, largest = summary.staleness_stats(facts.get("staleness", {}))
    fidelity = facts.get("fidelity", {})
    score = score_of(facts)
    numbers: dict[str, Any] = {
        key: facts.get(in_words_of(key, score))
        for key in (
            "clock",
            "seed",
            "final_accuracy",
            "convergence_accuracy",
            "best_accuracy",
            "stability",
            "target_accuracy",
            "time_to_target_s",
            "updates_received",
            "emulated_s",
            "wall_s",
            "finished",
        )
    }
    used, raw = facts.get("energy", {}), facts.get("compression", {})
    begin_s, end_s = facts.get("convergence_window_s") or (None, None)
    counts = {
        key: facts.get(key, 0) for key in ("versions", "updates_applied", "bytes_up", "bytes_down")
    }
    return Row(
        name=name,
        strategy=facts.get("strategy") or rundirs.title(run).split(" seed ")[0],
        updates_discarded=sum(facts.get("updates_discarded", {}).values()),
        staleness_mean=mean,
        staleness_max=largest,
        verdict=summary.verdict(facts),
        reasons="; ".join(fidelity.get("reasons", ())),
        warnings="; ".join(facts.get("warnings", ())),
        resumptions=len(outages := facts.get("resumed", ())),
        outage_s=sum(each["outage_s"] for each in outages),
        joules=used.get("joules"),
        joules_to_target=used.get("joules_to_target"),
        joules_kind=used.get("kind"),
        raw_bytes_up=raw.get("raw_bytes_up"),
        raw_bytes_down=raw.get("raw_bytes_down"),
        convergence_from_s=begin_s,
        convergence_to_s=end_s,
        metric=score.name,
        **numbers,
        **counts,
    )


def schemes(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group ``rows`` by name: one list per scheme, one row per seed."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return found


def note_on_energy(rows: Iterable[Row]) -> str:
    """Return "energy is modelled", or where else the joules are from; "" without joules."""
    kinds = sorted({row.joules_kind for row in rows if row.joules_kind})
    return f"energy is {' or '.join(kinds)}" if kinds else ""


def run_record(row: Row, rows: Iterable[Row]) -> Record:
    """Return a run's columns of comparison.csv; ``rows``: all runs of the file.

    It has columns of joules only if a run has joules.
    """
    names = (field.name for field in fields(Row))
    return {name: getattr(row, name) for name in names if is_told(name, rows)}


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write comparison.csv, one row per run: seconds with 9 decimals, a missing value empty."""
    score = common_score(rows)
    records = [run_record(row, rows) for row in rows]
    write_records(
        [{in_words_of(name, score): value for name, value in each.items()} for each in records],
        path,
    )


def write_records(records: Sequence[Record], path: Path) -> None:
    """Write rows with the same keys as a CSV file; None is an empty field."""
    write_table(path, list(records[0]), ([*record.values()] for record in records))


def in_words_of(quantity: str, score: Score) -> str:
    """Return the name of a quantity of another score: "final_accuracy" is "final_f1" for F1."""
    if quantity.endswith(f"_{ACCURACY.name}"):
        return quantity.removesuffix(ACCURACY.name) + score.name
    return quantity


def common_score(rows: Iterable[Row]) -> Score:
    """Return the score of all runs. UserError if they have different ones."""
    found = {row.metric: row for row in rows}
    if len(found) > 1:
        told = ", ".join(f"{row.name} {row.score.title}" for row in found.values())
        raise UserError(
            f"the runs have different evaluation.metric ({told}): expected runs with the same one"
        )
    return next((row.score for row in found.values()), ACCURACY)


def is_told(quantity: str, rows: Iterable[Row]) -> bool:
    """Return whether files have a column of this quantity: of joules only if a run has them."""
    if quantity == "metric":
        return False  # the names of the columns say it
    return not quantity.startswith("joules") or any(row.joules is not None for row in rows)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file: None as an empty field, floats in columns of seconds with 9 decimals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(column, value) for column, value in zip(columns, row)] for row in rows)
    replace_file(path, text.getvalue().encode())


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file and rename it, so that readers never see half a file.

    UserError if the system refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def byte_unit(most: float) -> tuple[float, str]:
    """Return the SI unit for values up to ``most`` bytes: (size in bytes, name)."""
    return next(
        (
            (size, unit)
            for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
            if most >= size
        ),
        (1, "B"),
    )


def _unfinished(run: Path) -> dict[str, Any]:
    metrics, links, config = (
        read_csv(run / "metrics.csv"),
        read_csv(run / "links.csv"),
        rundirs.read_config(run),
    )
    torn = [
        name
        for name in ("events.jsonl", "metrics.csv", "links.csv", "energy.csv")
        if is_torn(run / name)
    ]
    reason = "no complete summary.json: the run crashed or still runs; values so far" + (
        f" (torn last line in {', '.join(torn)})" if torn else ""
    )
    events = read_events(run / "events.jsonl")
    counted = summary.counters(events, links)
    evaluation = config.get("evaluation", {})
    latest_s = max((t for row in events if (t := summary.number(row.get("t")))), default=None)
    target, score = summary.number(target_in(evaluation)), score_of(evaluation)
    outcome = summary.outcome(metrics, target, score, latest_s)
    return {
        "seed": config.get("seed"),
        **outcome,
        **counted,
        "resumed": [each for each in events if each.get("fact") == "resumed"],
        "energy": energy.so_far(run, metrics, outcome["time_to_target_s"]),
        "warnings": warnings(counted),
        "fidelity": {"verdict": UNFINISHED, "reasons": [reason]},
    }


def _field(column: str, value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.9f}"
        if column.removesuffix("_mean").removesuffix("_std").endswith("_s")
        else str(value)
    )


QUANTITIES = (
    "final_accuracy",
    "convergence_accuracy",
    "best_accuracy",
    "stability",
    "time_to_target_s",
    "versions",
    "updates_received",
    "updates_applied",
    "updates_discarded",
    "bytes_up",
    "bytes_down",
    "staleness_mean",
    "emulated_s",
    "wall_s",
    "joules",
    "joules_to_target",
)


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a quantity that ``n`` of ``of`` runs have.

    ``mean`` is None unless all have it (survivorship bias). ``deviation`` is
    sqrt(sum (x - mean)^2 / (n - 1)), None for a single run.
    """

    n: int
    of: int
    mean: float | None
    deviation: float | None


def spread(values: Sequence[float | None]) -> Spread:
    """Return the spread of ``values``; None stands for a run without the number.

    For example, a run that never reaches the target has no time to it.
    """
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):
        return Spread(len(there), len(values), None, None)
    mean = math.fsum(there) / len(there)
    squares = math.fsum((value - mean) ** 2 for value in there)
    return Spread(
        len(there),
        len(values),
        mean,
        math.sqrt(squares / (len(there) - 1)) if len(there) > 1 else None,
    )


def spread_of(rows: Sequence[Row], quantity: str) -> Spread:
    """Return the spread of a field of ``Row`` over a scheme's runs."""
    return spread([getattr(row, quantity) for row in rows])


def worst_mark(rows: Sequence[Row]) -> str:
    """Return the worst mark of a scheme's runs, since a mean is no better than its runs."""
    found = {row.mark for row in rows}
    worse = (FAILED, DIVERGED, UNFINISHED, INTERRUPTED, STRAINED)
    return next((bad for bad in worse if bad in found), rows[0].mark)


def scheme_record(name: str, of_scheme: Sequence[Row], rows: Iterable[Row]) -> Record:
    """Return a scheme's columns of comparison_seeds.csv but the verdict.

    Every quantity has its mean, its sample standard deviation, and the number of runs that have it.
    ``rows``: all runs of the file.
    """
    first = of_scheme[0]
    found: dict[str, Any] = {"name": name, "strategy": first.strategy, "clock": first.clock}
    found["runs"] = len(of_scheme)
    for quantity in QUANTITIES:
        if is_told(quantity, rows):
            over = spread_of(of_scheme, quantity)
            parts = {"mean": over.mean, "std": over.deviation, "n": over.n}
            found |= {f"{quantity}_{part}": value for part, value in parts.items()}
    return found


def write_seeds_csv(rows: Sequence[Row], path: Path) -> None:
    """Write comparison_seeds.csv, one row per scheme."""
    found = schemes(rows).items()
    write_records(
        [scheme_record(name, of, rows) | {"verdict": worst_mark(of)} for name, of in found], path
    )
