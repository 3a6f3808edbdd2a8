"""The parts of a report: its runs, tables that no command prints, and how to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w
from rich.table import Table
from rich.text import Text

from edgefl.config.file import FACTS
from edgefl.config.toml import parsed
from edgefl.errors import listed
from edgefl.record.files import EXPERIMENT
from edgefl.results import energy
from edgefl.results.compare import Comparison, Row, SeedEstimate, against
from edgefl.results.differences import NO_CONFIG, in_short
from edgefl.results.figures.base import Runs, open_runs
from edgefl.results.run_files import entry_name
from edgefl.results.statistics import CONFIDENCE, Reached
from edgefl.results.summary import (
    AXES,
    FAITHFUL,
    STRAINED,
    UNFINISHED,
    VIRTUAL,
    evaluations,
    to_target,
)
from edgefl.results.tables import BAD, grid, notes, probability
from emulator.energy.account import STATES

Lines = tuple[str, ...]  # of a cell


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """A table: ``headings`` and ``numbers`` (whether it holds numbers) by column, ``rows`` of
    cells, and ``notes`` below it.
    """

    title: str
    headings: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[Lines, ...], ...]
    notes: Lines = ()


def of_terminal(table: Table) -> HtmlTable:
    """Return a table that a command prints; a column that is aligned to the right holds numbers."""
    columns = [[_lines(cell) for cell in column.cells] for column in table.columns]
    return HtmlTable(
        title=_text(table.title),
        headings=tuple(_heading(_text(column.header)) for column in table.columns),
        numbers=tuple(column.justify == "right" for column in table.columns),
        rows=tuple(zip(*columns)),
        notes=tuple(line for line in _lines(table.caption) if line),
    )


def of_rows(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> HtmlTable:
    """Return a table of these values; None is an empty cell. A column of numbers says so."""
    columns = list(zip(*rows)) or [() for _ in headings]
    return HtmlTable(
        title="",
        headings=tuple(headings),
        numbers=tuple(all(isinstance(each, int | float | None) for each in of) for of in columns),
        rows=tuple(tuple(_value(each) for each in row) for row in rows),
    )


def _value(value: object) -> Lines:
    if value is None:
        return ("",)
    return (f"{value:.6g}" if isinstance(value, float) else str(value),)


def _heading(text: str) -> str:
    """A heading of two lines in one."""
    return " ".join(text.split())


def _lines(cell: object) -> Lines:
    return tuple(_text(cell).split("\n"))


def _text(cell: object) -> str:
    return "" if cell is None else cell.plain if isinstance(cell, Text) else str(cell)


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run. ``name``: of its strategy, ``title``: with the seed if there are several.

    ``summary`` is {} if the run has not ended in order, ``config`` is {} if it is damaged.
    """

    name: str
    title: str
    directory: Path
    row: Row
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the run in its config: clock, commit, host."""
        found: dict[str, Any] = self.config.get(FACTS, {})
        return found


def of_comparison(found: Comparison, paths: Sequence[Path]) -> list[ReportedRun]:
    """Return the runs of a comparison of ``paths``."""
    runs = open_runs(paths)
    return [
        ReportedRun(
            name=strategy.name,
            title=f"{strategy.name} seed {row.seed}" if len(strategy.rows) > 1 else strategy.name,
            directory=files.path,
            row=row,
            summary=files.summary,
            config=files.config,
        )
        for strategy in found.strategies
        for files, row in zip(runs[strategy.name], strategy.rows)
    ]


def experiments(runs: Iterable[ReportedRun]) -> list[tuple[dict[str, Any], list[ReportedRun]]]:
    """Return the configs that ``runs`` are of, {} if one cannot be read, each with its runs.

    It is the experiment.toml above the runs. Where there is none (old runs, those of a sweep, runs
    that were copied alone), runs whose configs differ only in the seed are one experiment.
    """
    begun: dict[Path, list[ReportedRun]] = {}
    alone: list[tuple[dict[str, Any], list[ReportedRun]]] = []
    for run in runs:
        folders = run.directory.resolve().parents[:2]
        above = next((folder for folder in folders if (folder / EXPERIMENT).is_file()), None)
        if above is not None:
            begun.setdefault(above, []).append(run)
            continue
        same = next((of for config, of in alone if config == without_seed(run.config)), None)
        if same is None:
            alone.append((without_seed(run.config), same := []))
        same.append(run)
    return [
        *((_asked(folder) or of[0].config, of) for folder, of in begun.items()),
        *((_of_seeds(of), of) for _, of in alone),
    ]


def without_seed(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without its seeds and without facts about one run."""
    return {key: value for key, value in config.items() if key not in ("seed", "seeds", FACTS)}


def _of_seeds(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """Return the config of runs that differ in their seeds at most."""
    config = runs[0].config
    seeds = list(dict.fromkeys(run.config.get("seed") for run in runs))
    if len(seeds) == 1:
        return config
    return {
        "seeds" if key == "seed" else key: seeds if key == "seed" else value
        for key, value in config.items()
    }


def _asked(folder: Path) -> dict[str, Any]:
    """Return the tables of an experiment.toml; {} if it is damaged."""
    try:
        return parsed((folder / EXPERIMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


# What a reader wants to know first; the rest is in the whole config.
SETUP = (
    *("task", "data", "partition", "unlabelled", "model", "training", "edges", "links", "devices"),
    *("groups", "medium", "faults", "stop", "evaluation"),
)
UNREADABLE = "missing or damaged"
LONGEST = 300  # characters of a value
GB = 1e9


def what(runs: Sequence[ReportedRun]) -> list[str]:
    """Return what all runs have in common, in short phrases."""
    phrases = [[*in_short(run.config), f"{run.row.clock or WALL} clock"] for run in runs]
    return [each for each in phrases[0] if all(each in of for of in phrases)]


def results(found: Comparison, files: Runs) -> HtmlTable:
    """Return the answer: who reaches the target when and after how many bytes, and the verdicts."""
    keys = ["name", "verdict", "to_target", "accuracy", "bytes_up", "bytes_down"]
    columns = grid(found, keys).columns
    shown = [columns[key] for key in keys]
    if found.target is None:
        del shown[2]
    else:
        shown.insert(3, grid(_over_bytes(found, files), ["to_target"]).columns["to_target"])
    return HtmlTable(
        title="",
        headings=tuple(column.heading for column in shown),
        numbers=tuple(not column.left for column in shown),
        rows=tuple(zip(*([(cell,) for cell in column.cells] for column in shown))),
        notes=tuple(notes(found)),
    )


def _over_bytes(found: Comparison, files: Runs) -> Comparison:
    """Return the comparison with the bytes to the target in place of the seconds."""
    axis, score, strategies = AXES["bytes"], found.score, []
    for strategy in found.strategies:
        over = [evaluations(run.metrics, score.name, axis) for run in files[strategy.name]]
        reached = tuple(Reached(to_target(of, found.target, score), None) for of in over)
        mean = SeedEstimate.of([each.x for each in reached], found.question.method)
        strategies.append(replace(strategy, reached=reached, to_target=mean))
    return replace(found, axis=axis, strategies=tuple(strategies))


def glance(found: Comparison) -> list[tuple[str, str]]:
    """Return the most important facts: (what, value)."""
    runs, strategies = len(found.rows), len(found.strategies)
    of = f" of {strategies} {'strategy' if strategies == 1 else 'strategies'}"
    facts = [("runs", f"{runs}{of * (runs != strategies)}")]
    marks = [row.mark for row in found.rows]
    facts += [(f"{bad} runs", f"{n} of {len(marks)}") for bad in BAD if (n := marks.count(bad))]
    on_wall = [row.mark for row in found.rows if row.clock != VIRTUAL]
    if on_wall:
        facts.append(("faithful runs", f"{on_wall.count(FAITHFUL)} of {len(on_wall)}"))
    times = _means({each.name: each.to_target for each in found.strategies})
    if times and found.target is not None:
        first = min(times, key=times.__getitem__)
        told = f"{first}, after {times[first]:.4g} emulated s"
        what = f"first to {found.score.title} {found.target:g}"
        facts.append((what, told + _doubt(found, first, "speed_up")))
    ends = _means({each.name: each.accuracy for each in found.strategies})
    if ends:
        falls, title = found.score.falls, found.score.title
        best = (min if falls else max)(ends, key=ends.__getitem__)
        end = f"{'lowest' if falls else 'highest'} final {title}"
        facts.append((end, f"{ends[best]:.3f} ({best}){_doubt(found, best, 'gain')}"))
    return facts


def _doubt(found: Comparison, best: str, effect: Literal["gain", "speed_up"]) -> str:
    """Return from which strategies the best one cannot be told; "" if it can be told from all.

    It can be told from another one if the paired test over seeds, adjusted for the number of
    strategies, has p below 1 - CONFIDENCE.
    """
    if len(found.strategies) == 1:
        return ""
    itself = next(each for each in found.strategies if each.name == best)
    others = [
        each for each in against(found.strategies, itself, found.question) if each.name != best
    ]
    tested = {each.name: getattr(each, effect).adjusted for each in others}
    if all(p is None for p in tested.values()):
        return "; too few seeds to tell it from the others"
    unclear = [
        name if p is None else f"{name} (p = {probability(p)})"
        for name, p in tested.items()
        if p is None or p >= 1 - CONFIDENCE
    ]
    return f"; cannot be told from {listed(unclear)}" if unclear else ""


def _means(estimates: Mapping[str, SeedEstimate]) -> dict[str, float]:
    """Return the means of the strategies all of whose runs have the number."""
    means = {name: each.spread.mean for name, each in estimates.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def setup(config: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the parts of a config that say what was run: (part, its keys and values)."""
    shown = []
    for part in SETUP:
        value = config.get(part)
        if isinstance(value, Mapping):
            shown.append((part, [(k, words(each)) for k, each in value.items() if each != []]))
        elif isinstance(value, list):
            shown += [(part, [(str(place), words(each))]) for place, each in enumerate(value, 1)]
        elif value is not None:
            shown.append((part, [("", words(value))]))
    return shown


def words(value: Any) -> str:
    """Return a value of a config as a reader would write it; long ones are cut."""
    if value is None:
        return "not given"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def strategies(runs: Sequence[ReportedRun]) -> HtmlTable:
    """Return a table with the options of each strategy, as its config has them."""
    rows = []
    for name, run in {run.name: run for run in reversed(runs)}.items():
        entries = {entry_name(entry): entry for entry in run.config.get("strategies", ())}
        entry = entries.get(run.facts.get("strategy", ""), {})
        options = [
            f"{key} = {words(value)}"
            for key, value in entry.items()
            if key not in ("strategy", "label")
        ]
        method = entry.get("strategy", run.row.strategy)
        rows.append((name, method, ", ".join(options) or "defaults"))
    return of_rows(("name", "strategy", "options"), rows[::-1])


# heading -> where the number stands in [fidelity] of summary.json
OF_VERDICT = {
    "transfers": "transfers",
    "late, p99 ms": "transfer_lag_ms.p99",
    "late, max ms": "transfer_lag_ms.max",
    "tasks": "tasks",
    "overran": "compute_overruns",
    "stalls": "stalls",
    "stalled s": "stalled_s",
}


def verdicts(runs: Sequence[ReportedRun]) -> HtmlTable:
    """Return a table with the verdict of each run and the numbers that it is made from."""
    rows = []
    for run in runs:
        # the virtual clock computes its times, so there is nothing to be late for
        fidelity = {} if run.row.clock == VIRTUAL else run.summary.get("fidelity", {})
        rows.append((run.title, run.row.mark, *_values(fidelity, OF_VERDICT)))
    return _without_empty(of_rows(("run", "verdict", *OF_VERDICT), rows))


def _values(facts: Mapping[str, Any], paths: Mapping[str, str]) -> list[Any]:
    """Return the values at ``paths``, such as "cpu_percent.max"; None where there is none."""
    found = []
    for path in paths.values():
        value: Any = facts
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        found.append(value)
    return found


def energy_of(runs: Sequence[ReportedRun]) -> HtmlTable | None:
    """Return a table of the joules of all edges, by state; None if no run has any."""
    rows = []
    for run in runs:
        by_edge = energy.joules(run.directory) or {}
        measured = run.summary.get("energy", {}).get("measured_joules")
        states = [
            round(sum(each.get(f"{state}_j", 0.0) for each in by_edge.values()), 3)
            for state in STATES
        ]
        if by_edge or measured is not None:
            modelled = [run.row.joules, *states] if by_edge else [None] * (len(STATES) + 1)
            rows.append((run.title, *modelled, measured))
    headings = ("run", "modelled J", *(f"{state} J" for state in STATES), "measured J")
    return _without_empty(of_rows(headings, rows)) if rows else None


def reasons(runs: Sequence[ReportedRun]) -> list[tuple[str, str, list[str]]]:
    """Return (run, verdict, its reasons) of every run that is not faithful."""
    return [
        (
            run.title,
            UNFINISHED if run.row.verdict == UNFINISHED else STRAINED,
            run.summary.get("fidelity", {}).get("reasons") or [one_line],
        )
        for run in runs
        if (one_line := run.row.reasons)
    ]


# heading -> where the value stands in a host of summary.json
OF_HOST = {
    "host": "host",
    "edges": "edges",
    "model": "model",
    "CPU": "cpu",
    "cores": "cores",
    "memory GB": "memory_gb",
    "system": "system",
    "Python": "python",
    "torch": "torch",
    "GPUs": "gpus",
    "CPU mean %": "cpu_percent.mean",
    "CPU max %": "cpu_percent.max",
    "max °C": "temperature_c.max",
    "throttled": "throttled",
}


def hosts(runs: Sequence[ReportedRun]) -> HtmlTable | None:
    """Return a table of the hosts that edges have told about; None if they have told nothing."""
    rows = []
    for run in runs:
        for host in run.summary.get("hosts", ()):
            if isinstance(host, dict):
                slowed = host.get("throttled")
                shown = _with_memory(host) | {"edges": len(host.get("edges", ()))}
                shown |= {key: host.get(key) or None for key in ("model", "gpus")}
                if slowed is not None:
                    shown["throttled"] = ", ".join(f"{k}: {n}" for k, n in slowed.items()) or "no"
                rows.append((run.title, *_values(shown, OF_HOST)))
    return _without_empty(of_rows(("run", *OF_HOST), rows)) if rows else None


def _with_memory(host: Mapping[str, Any]) -> dict[str, Any]:
    memory = host.get("memory_bytes")
    return {**host, "memory_gb": None if memory is None else round(memory / GB, 1)}


def _without_empty(table: HtmlTable) -> HtmlTable:
    """Return the table without the columns that are empty in all rows."""
    kept = [
        place
        for place in range(len(table.headings))
        if any(row[place] != ("",) for row in table.rows)
    ]
    return replace(
        table,
        headings=tuple(table.headings[place] for place in kept),
        numbers=tuple(table.numbers[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


OF_MACHINE = {
    "CPU": "cpu_model",
    "cores": "cores",
    "memory GB": "memory_gb",
    "system": "kernel",
    "Python": "python",
    "coordinator's priority": "coordinator_priority",
}


def machines(runs: Sequence[ReportedRun]) -> HtmlTable | None:
    """Return a table of the machines that ran the coordinator, or the whole virtual run."""
    rows = [
        (run.title, *_values(_with_memory(run.facts.get("host", {})), OF_MACHINE)) for run in runs
    ]
    if len({row[1:] for row in rows}) == 1:  # one machine: once is enough
        rows = [("all runs", *rows[0][1:])]
    table = _without_empty(of_rows(("run", *OF_MACHINE), rows))
    return table if len(table.headings) > 1 else None


def differing(found: Comparison) -> HtmlTable | None:
    """Return in what the configs of the strategies differ, apart from the strategy; None if in
    nothing.
    """
    rows = []
    for strategy in found.strategies:
        for each in strategy.differs:
            values = (words(each.value), words(each.instead))
            told = (UNREADABLE, None) if each.key == NO_CONFIG else values
            rows.append((strategy.name, each.key, *told, ", ".join(each.runs) or "all"))
    headings = ("strategy", "key", "value", "of the others", "runs")
    return of_rows(headings, rows) if rows and len(found.rows) > 1 else None


WALL = "wall"
UNKNOWN = "unknown"  # the commit of an edgefl that is no checkout
SAME_BYTES = "Under the virtual clock the same version and seed write the same bytes on any host."
SAME_SPEED = (
    "On the wall clock the times of a second run are close but not equal; the verdict says whether"
    " the host kept up."
)
INVENTORY = "INVENTORY is the file with your own hosts."
EDGES = "Start the edges on their machines with edgefl edge --connect tcp://HOST:PORT --id NAME."


def of_experiments(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Return how to repeat the experiments that ``runs`` are of, each once, as the template has it.

    ``config``: the TOML text to save as ``file``. ``own``: the user's own code and traces, (name,
    digest). ``notes``: sentences.
    """
    found = experiments(runs)
    return [_again(config, of, len(found) > 1) for config, of in found if config]


def _again(config: Mapping[str, Any], runs: Sequence[ReportedRun], several: bool) -> dict[str, Any]:
    """Return how to repeat ``runs``; ``several``: there are other experiments, too."""
    facts = config.get(FACTS, {})
    clock = str(facts.get("clock", runs[0].row.clock or WALL))
    command = str(facts.get("command", "run"))
    name = str(config.get("name", runs[0].name))
    file, titles = f"{name}.toml", list(dict.fromkeys(run.name for run in runs))
    notes = [SAME_BYTES if clock == VIRTUAL else SAME_SPEED]
    notes += {"launch": [INVENTORY], "coordinator": [EDGES]}.get(command, [])
    digests = facts.get("digests", {})
    return {
        "title": f"{name}: {listed(titles)}" if several else name,
        "version": _version(facts, runs),
        "file": file,
        "command": _command(command, file, clock),
        # without folders and names of the first machine
        "config": tomli_w.dumps({key: value for key, value in config.items() if key != FACTS}),
        "own": [*digests.items()] if isinstance(digests, Mapping) else [],
        "notes": notes,
    }


def _command(command: str, file: str, clock: str) -> str:
    given = shlex.quote(file)
    match command:
        case "launch":
            return f"edgefl launch INVENTORY {given}"
        case "coordinator":
            return f"edgefl coordinator {given}"
    return f"edgefl run {given} --clock {clock}"


def _version(facts: Mapping[str, Any], runs: Sequence[ReportedRun]) -> str:
    """Return "edgefl 0.1.0, commit 68b68a584401", as far as it was noted."""
    version = f"edgefl {facts['edgefl']}" if "edgefl" in facts else "edgefl"
    commits = {str(run.facts.get("git_commit", UNKNOWN)) for run in runs} - {UNKNOWN}
    return version + (f", commit {' and '.join(sorted(commits))}" if commits else "")
