"""Several runs side by side: as rows, as a table for the terminal, as comparison.csv."""

from __future__ import annotations

import csv
import io
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
from rich import box
from rich.table import Table
from rich.text import Text

from edgefl.results import rundirs, summary
from edgefl.results.tail import is_torn, read_csv, read_events

UNFINISHED = "unfinished"
COLOURS = {"faithful": "green", "strained": "yellow", UNFINISHED: "red"}


@dataclass(frozen=True, slots=True)
class Row:
    """One run; the fields are the columns of comparison.csv. ``verdict`` is "unfinished" if the run left no summary."""

    name: str
    strategy: str
    clock: str | None
    seed: int | None
    final_accuracy: float | None
    convergence_accuracy: float | None
    best_accuracy: float | None
    target_accuracy: float | None
    time_to_target_s: float | None
    versions: int
    updates_applied: int
    updates_discarded: int
    bytes_up: int
    bytes_down: int
    staleness_mean: float | None
    staleness_max: int | None
    emulated_s: float | None
    wall_s: float | None
    verdict: str
    reasons: str


def load(*paths: Path) -> list[Row]:
    """A row for each run directory given, or found one level below; UserError if a path holds no run."""
    return [load_run(run, name) for name, run in rundirs.find(paths).items()]


def load_run(run: Path, name: str) -> Row:
    """The run's summary.json; without one, what its events and metrics give, marked unfinished."""
    facts = _read_summary(run / "summary.json")
    if facts is None:
        facts = _unfinished(run)
    mean, largest = summary.staleness_stats(facts.get("staleness", {}))
    fidelity = facts.get("fidelity", {})
    numbers = {key: facts.get(key) for key in (
        "clock", "seed", "final_accuracy", "convergence_accuracy", "best_accuracy", "target_accuracy", "time_to_target_s", "emulated_s", "wall_s")}
    counts = {key: facts.get(key, 0) for key in ("versions", "updates_applied", "bytes_up", "bytes_down")}
    return Row(
        name=name,
        strategy=facts.get("strategy", run.resolve().name),
        updates_discarded=sum(facts.get("updates_discarded", {}).values()),
        staleness_mean=mean,
        staleness_max=largest,
        verdict=fidelity.get("verdict", UNFINISHED),
        reasons="; ".join(fidelity.get("reasons", ())),
        **numbers,
        **counts,
    )


def table(rows: Sequence[Row]) -> Table:
    """For the terminal, fit for 80 columns; below it the reasons of every verdict that is not "faithful"."""
    notes = Text("\n").join(_note(row) for row in rows if row.reasons)
    shown = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, caption=notes if notes else None, caption_justify="left", caption_style="")
    unit = byte_unit(max((max(row.bytes_up, row.bytes_down) for row in rows), default=0))
    columns = {"strategy\n": [Text(row.name) for row in rows], **_columns(rows, unit)}
    for heading, cells in columns.items():
        widest = max((len(cell) for cell in cells), default=0)
        shown.add_column(heading, justify="left" if heading == "strategy\n" else "right", overflow="fold", min_width=widest)
    shown.add_column("verdict\n", no_wrap=True)
    for row, *cells in zip(rows, *columns.values()):
        shown.add_row(*cells, Text(row.verdict, style=COLOURS.get(row.verdict, "")))
    return shown


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """comparison.csv: a row for each run; seconds with 9 decimals, empty where there is nothing to tell."""
    text = io.StringIO()
    columns = [field.name for field in fields(Row)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_field(column, getattr(row, column)) for column in columns])
    replace_file(path, text.getvalue().encode())


def replace_file(path: Path, data: bytes) -> None:
    """Write by temporary name and rename: a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def byte_unit(most: float) -> tuple[float, str]:
    """The SI unit (size in bytes, name) that suits values up to ``most``."""
    return next(((size, unit) for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if most >= size), (1, "B"))


def _read_summary(path: Path) -> dict[str, Any] | None:
    try:
        facts = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return facts if isinstance(facts, dict) else None


def _unfinished(run: Path) -> dict[str, Any]:
    metrics, links = read_csv(run / "metrics.csv"), read_csv(run / "links.csv")
    torn = [name for name in ("events.jsonl", "metrics.csv", "links.csv") if is_torn(run / name)]
    reason = "no complete summary.json: the run crashed or still runs; read as far as it got" + (f" (torn last line in {', '.join(torn)})" if torn else "")
    return {
        **summary.outcome(metrics, _target(run / "config.toml")),
        **summary.counters(read_events(run / "events.jsonl")),
        "bytes_up": sum(int(row["bytes"]) for row in links if row["direction"] == "up"),
        "bytes_down": sum(int(row["bytes"]) for row in links if row["direction"] == "down"),
        "fidelity": {"verdict": UNFINISHED, "reasons": [reason]},
    }


def _target(config: Path) -> float | None:
    try:
        return summary.number(tomllib.loads(config.read_text(encoding="utf-8")).get("evaluation", {}).get("target_accuracy"))
    except (FileNotFoundError, tomllib.TOMLDecodeError):
        return None


def _note(row: Row) -> Text:
    return Text.assemble((f"{row.name}: {row.verdict}: ", COLOURS.get(row.verdict, "")), row.reasons)


def _columns(rows: Sequence[Row], unit: tuple[float, str]) -> dict[str, list[str]]:
    """Heading -> the cells below it."""
    size, name = unit
    columns = {
        "acc.\nfinal": [_share(row.final_accuracy) for row in rows],
        "acc.\nbest": [_share(row.best_accuracy) for row in rows],
        _target_heading(rows): [_seconds(row.time_to_target_s) for row in rows],
        "ver-\nsions": [str(row.versions) for row in rows],
        "up-\ndates": [str(row.updates_applied) for row in rows],
        "disc.\n": [str(row.updates_discarded) for row in rows],
        f"up\n{name}": [_three_digits(row.bytes_up / size) for row in rows],
        f"down\n{name}": [_three_digits(row.bytes_down / size) for row in rows],
        "stale\navg/max": ["-" if row.staleness_mean is None else f"{row.staleness_mean:.1f}/{row.staleness_max}" for row in rows],
        "emul.\ns": [_seconds(row.emulated_s) for row in rows],
    }
    if not any(row.updates_discarded for row in rows):
        del columns["disc.\n"]
    return columns


def _target_heading(rows: Sequence[Row]) -> str:
    targets = {row.target_accuracy for row in rows} - {None}
    return (f"to {targets.pop():g}" if len(targets) == 1 else "target") + "\ns"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value else "0"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _field(column: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9f}" if column.endswith("_s") else str(value)
