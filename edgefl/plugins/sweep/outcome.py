"""What a sweep has found: its table, its CSV files, and a config of each best setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from edgefl.config.file import FACTS, dump
from edgefl.plugins.sweep.choice import GridEdge
from edgefl.plugins.sweep.search import Method, Sweep
from edgefl.plugins.sweep.settings import Setting, toml_text
from edgefl.results.compare import Row, load_run, run_record, worst_mark
from edgefl.results.run_files import is_run, replace_file, write_table
from edgefl.results.statistics import Spread, spread
from edgefl.results.tables import plain_table

RUNS_FILE, SETTINGS_FILE = "runs.csv", "settings.csv"
OF_SETTING = ("score", "best", "mean", "std", "n", "verdict")  # columns of settings.csv


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting of a method: its score, and its runs with the seeds of the table.

    ``of_metric``: the spread of the sweep's metric over these runs.
    """

    method: Method
    setting: Setting
    score: float | None
    is_best: bool
    of_metric: Spread
    runs: tuple[tuple[int, Path], ...]  # (seed, directory) of those that are done
    verdict: str


def setting_rows(sweep: Sweep) -> list[SettingRow]:
    """Return a row for each setting that was tried, method by method."""
    rows = []
    for method in sweep.methods:
        best = sweep.best(method)
        scores = {each.setting: each.score for each in method.tried}
        for setting in method.settings:
            runs = [(seed, sweep.run_of(method, setting, seed)) for seed in sweep.seeds]
            done = tuple((seed, run.directory) for seed, run in runs if run.is_done)
            rows.append(
                SettingRow(
                    method,
                    setting,
                    scores[setting],
                    best is not None and best.setting == setting,
                    spread([sweep.metric.of(directory) for _, directory in done]),
                    done,
                    worst_mark([load_run(directory, "") for _, directory in done]) if done else "",
                )
            )
    return rows


def table(sweep: Sweep, rows: Sequence[SettingRow]) -> Table:
    """Return the table of all settings; "*" marks the best one of each method."""
    keys = list(sweep.short)
    shown, metric = plain_table(), sweep.metric.name
    columns = ["strategy", *(sweep.short[key] for key in keys)]
    if sweep.best_seed is not None:
        columns += [f"{metric}\nseed {sweep.best_seed}", "best"]
    columns += [f"{metric}\nmean of seeds", "deviation", "seeds", "verdict"]
    for column in columns:
        is_text = column in ("strategy", "verdict", "best")
        shown.add_column(
            column.replace("_", "\n"), justify="left" if is_text else "right", overflow="fold"
        )
    for row in rows:
        values = dict(row.setting.values)
        cells = [row.method.name, *(toml_text(values[k]) if k in values else "" for k in keys)]
        if sweep.best_seed is not None:
            cells += [_cell(row.score), "*" if row.is_best else ""]
        cells += [_cell(row.of_metric.mean), _cell(row.of_metric.deviation)]
        cells += [_counted(row, sweep), row.verdict]
        shown.add_row(*map(Text, cells))
    return shown


def _counted(row: SettingRow, sweep: Sweep) -> str:
    """Return "3", or "2 of 3" if a run is missing or has no such number."""
    have, wanted = row.of_metric.n, len(sweep.seeds)
    return str(have) if have == wanted else f"{have} of {wanted}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def best_lines(sweep: Sweep, rows: Sequence[SettingRow]) -> list[str]:
    """Return a line for each method: its best setting, with a note if it lies at an edge."""
    if sweep.best_seed is None:
        return []
    said, name = [], sweep.metric.name
    for method in sweep.methods:
        row = next((row for row in rows if row.method is method and row.is_best), None)
        if row is None:
            said.append(f"{method.name}: no setting has a {name} on seed {sweep.best_seed}")
            continue
        values = ", ".join(f"{key} = {toml_text(value)}" for key, value in row.setting.values)
        over = row.of_metric
        seeds = "seed" if over.n == 1 else "seeds"
        mean = "" if over.mean is None else f"; mean of {over.n} other {seeds}: {over.mean:.4g}"
        said.append(
            f"best setting of {method.name} by {name} on seed {sweep.best_seed}:"
            f" {values or 'the only one'} ({_cell(row.score)}){mean}"
        )
        without = sum(each.score is None for each in rows if each.method is method)
        if without:
            said.append(f"  {without} of its settings have no {name} on this seed")
        said += [f"  {_edge(edge)}" for edge in sweep.edges(method)]
    return said


def _edge(edge: GridEdge) -> str:
    where = "largest" if edge.largest else "smallest"
    further = "" if edge.beyond is None else f"; try {toml_text(edge.beyond)}, too, or --extend 3"
    return f"{edge.axis.key} = {toml_text(edge.value)} is the {where} value that was tried{further}"


def records(sweep: Sweep, rows: Sequence[SettingRow]) -> list[dict[str, Any]]:
    """Return the rows of settings.csv by column; whether a setting is the best is a bool."""
    found = []
    for row in rows:
        values, over = dict(row.setting.values), row.of_metric
        numbers = (row.score, row.is_best, over.mean, over.deviation, over.n, row.verdict)
        of_keys = {key: values.get(key) for key in sweep.short}
        found.append({"strategy": row.method.name, **of_keys, **dict(zip(OF_SETTING, numbers))})
    return found


# ---------------------------------------------------------------------- files
def write(sweep: Sweep, rows: Sequence[SettingRow]) -> list[Path]:
    """Write runs.csv and settings.csv, and a config of each best setting; return their paths."""
    folder, keys = sweep.folder.path, list(sweep.short)
    _write_runs(sweep, rows, keys)
    found = [each | {"best": int(each["best"])} for each in records(sweep, rows)]
    lines = [list(each.values()) for each in found]
    write_table(folder / SETTINGS_FILE, ["strategy", *keys, *OF_SETTING], lines)
    written = [folder / RUNS_FILE, folder / SETTINGS_FILE]
    written += [_write_best(sweep, row) for row in rows if row.is_best]
    return written


def _write_runs(sweep: Sweep, rows: Sequence[SettingRow], keys: Sequence[str]) -> None:
    heads: list[list[Any]] = []
    runs: list[Row] = []
    for row in rows:
        values = dict(row.setting.values)
        chosen = () if sweep.best_seed is None else (sweep.best_seed,)
        for seed in (*chosen, *sweep.seeds):
            directory = sweep.run_of(row.method, row.setting, seed).directory
            if is_run(directory):
                runs.append(load_run(directory, sweep.scheme(row.method, row.setting)))
                heads.append([row.method.name, *map(values.get, keys), int(seed in chosen)])
    records = [run_record(run, runs) for run in runs]
    names = list(dict.fromkeys(name for record in records for name in record))
    lines = [[*head, *map(record.get, names)] for head, record in zip(heads, records)]
    write_table(sweep.folder.path / RUNS_FILE, ["method", *keys, "chooses", *names], lines)


def _write_best(sweep: Sweep, row: SettingRow) -> Path:
    """Write the best setting of a method as a config that ``edgefl run`` takes."""
    one = sweep.run_of(row.method, row.setting, sweep.seeds[0]).experiment
    several = {"seed": 1, "seeds": sweep.seeds} if len(sweep.seeds) > 1 else {}
    found = one.model_copy(update={"name": f"{one.name[:59]}-best", **several})
    path = sweep.folder.path / f"best-{row.method.name}.toml"
    replace_file(path, dump(found, {FACTS: {"base": str(sweep.base.resolve())}}).encode())
    return path
