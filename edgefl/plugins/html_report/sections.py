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

from edgefl.config.experiment import StrategyEntry
from edgefl.config.toml import parsed
from edgefl.errors import listed
from edgefl.loading.file import FACTS
from edgefl.record.files import EXPERIMENT
from edgefl.results import energy
from edgefl.results.compare import Comparison, Row, SeedEstimate, against
from edgefl.results.differences import NO_CONFIG
from edgefl.results.figures.base import open_runs
from edgefl.results.statistics import CONFIDENCE
from edgefl.results.summary import FAITHFUL, STRAINED, UNFINISHED, VIRTUAL
from edgefl.results.tables import BAD, probability
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
    """ "ver-\\nsions" is "versions", "acc.\\nfinal" is "acc. final"."""
    return " ".join(text.replace("-\n", "").split())


def _lines(cell: object) -> Lines:
    return tuple(_text(cell).split("\n"))


def _text(cell: object) -> str:
    return "" if cell is None else cell.plain if isinstance(cell, Text) else str(cell)


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run. ``name``: of its scheme, ``title``: with the seed if there are several.

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
        found = self.config.get(FACTS)
        return found if isinstance(found, dict) else {}


def of_comparison(found: Comparison, paths: Sequence[Path]) -> list[ReportedRun]:
    """Return the runs of a comparison of ``paths``."""
    runs = open_runs(paths)
    return [
        ReportedRun(
            name=scheme.name,
            title=f"{scheme.name} seed {row.seed}" if len(scheme.rows) > 1 else scheme.name,
            directory=files.path,
            row=row,
            summary=files.summary,
            config=files.config,
        )
        for scheme in found.schemes
        for files, row in zip(runs[scheme.name], scheme.rows)
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


def glance(found: Comparison) -> list[tuple[str, str]]:
    """Return the most important facts: (what, value)."""
    several = len(found.schemes) != len(found.rows)
    of_schemes = f" of {counted(len(found.schemes), 'scheme')}" * several
    facts = [("runs", f"{len(found.rows)}{of_schemes}")]
    marks = [row.mark for row in found.rows]
    facts += [(f"{bad} runs", f"{n} of {len(marks)}") for bad in BAD if (n := marks.count(bad))]
    on_wall = [row.mark for row in found.rows if row.clock != VIRTUAL]
    if on_wall:
        facts.append(("faithful runs", f"{on_wall.count(FAITHFUL)} of {len(on_wall)}"))
    times = _means({each.name: each.to_target for each in found.schemes})
    if times and found.target is not None:
        first = min(times, key=times.__getitem__)
        told = f"{first}, after {times[first]:.4g} emulated s"
        what = f"first to {found.score.title} {found.target:g}"
        facts.append((what, told + _doubt(found, first, "speed_up")))
    ends = _means({each.name: each.accuracy for each in found.schemes})
    if ends:
        falls, title = found.score.falls, found.score.title
        best = (min if falls else max)(ends, key=ends.__getitem__)
        end = f"{'lowest' if falls else 'highest'} final {title}"
        facts.append((end, f"{ends[best]:.3f} ({best}){_doubt(found, best, 'gain')}"))
    return facts


def _doubt(found: Comparison, best: str, effect: Literal["gain", "speed_up"]) -> str:
    """Return from which schemes the best one cannot be told; "" if it can be told from all.

    It can be told from another one if the paired test over seeds, adjusted for the number of
    schemes, has p below 1 - CONFIDENCE.
    """
    if len(found.schemes) == 1:
        return ""
    itself = next(each for each in found.schemes if each.name == best)
    others = [each for each in against(found.schemes, itself, found.question) if each.name != best]
    tested = {each.name: getattr(each, effect).adjusted for each in others}
    if all(p is None for p in tested.values()):
        return "; too few seeds to tell it from the others"
    unclear = [
        name if p is None else f"{name} (p = {probability(p)})"
        for name, p in tested.items()
        if p is None or p >= 1 - CONFIDENCE
    ]
    return f"; cannot be told from {listed(unclear)}" if unclear else ""


def counted(number: int, what: str) -> str:
    """Return "1 scheme" or "2 schemes"."""
    return f"{number} {what}{'s' * (number != 1)}"


def _means(estimates: Mapping[str, SeedEstimate]) -> dict[str, float]:
    """Return the means of the schemes all of whose runs have the number."""
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
    """Return a table with the options of each scheme, as its config has them."""
    rows = []
    for name, run in {run.name: run for run in reversed(runs)}.items():
        entries = {StrategyEntry(**entry).name: entry for entry in run.config.get("strategies", ())}
        entry = entries.get(run.facts.get("strategy", ""), {})
        options = [
            f"{key} = {words(value)}"
            for key, value in entry.items()
            if key not in ("strategy", "label")
        ]
        method = entry.get("strategy", run.row.strategy)
        rows.append((name, method, ", ".join(options) or "defaults"))
    return of_rows(("name", "strategy", "options"), rows[::-1])


def verdicts(runs: Sequence[ReportedRun]) -> HtmlTable:
    """Return a table with the verdict of each run and the numbers that it is made from."""
    headings = (
        *("run", "verdict", "transfers", "late, p99 ms", "late, max ms", "tasks"),
        *("overran", "stalls", "stalled s"),
    )
    rows = []
    for run in runs:
        # the virtual clock computes its times, so there is nothing to be late for
        fidelity = {} if run.row.clock == VIRTUAL else run.summary.get("fidelity", {})
        late = fidelity.get("transfer_lag_ms", {})
        numbers = ("tasks", "compute_overruns", "stalls", "stalled_s")
        rows.append(
            (
                *(run.title, run.row.mark, fidelity.get("transfers")),
                *(late.get("p99"), late.get("max")),
                *(fidelity.get(name) for name in numbers),
            )
        )
    return _without_empty(of_rows(headings, rows))


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


def hosts(runs: Sequence[ReportedRun]) -> HtmlTable | None:
    """Return a table of the hosts that edges have told about; None if they have told nothing."""
    headings = (
        *("run", "host", "edges", "model", "CPU", "cores", "memory GB", "system", "Python"),
        *("torch", "GPUs", "CPU mean %", "CPU max %", "max °C", "throttled"),
    )
    rows = [
        _host(run.title, host)
        for run in runs
        for host in run.summary.get("hosts", ())
        if isinstance(host, dict)
    ]
    return _without_empty(of_rows(headings, rows)) if rows else None


def _host(title: str, host: Mapping[str, Any]) -> tuple[Any, ...]:
    cpu, heat = host.get("cpu_percent") or {}, host.get("temperature_c") or {}
    throttled = host.get("throttled")
    told = None if throttled is None else ", ".join(f"{k}: {n}" for k, n in throttled.items())
    memory = host.get("memory_bytes")
    return (
        *(title, host.get("host"), len(host.get("edges", ())), host.get("model") or None),
        *(host.get("cpu"), host.get("cores"), None if memory is None else round(memory / GB, 1)),
        *(host.get("system"), host.get("python"), host.get("torch")),
        host.get("gpus") or None,
        *(cpu.get("mean"), cpu.get("max"), heat.get("max"), "no" if told == "" else told),
    )


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


def machines(runs: Sequence[ReportedRun]) -> HtmlTable | None:
    """Return a table of the machines that ran the coordinator, or the whole virtual run."""
    rows = []
    for run in runs:
        host = run.facts.get("host", {})
        memory = host.get("memory_bytes")
        rows.append(
            (
                *(run.title, host.get("cpu_model"), host.get("cores")),
                *(None if memory is None else round(memory / GB, 1), host.get("kernel")),
                *(host.get("python"), host.get("coordinator_priority")),
            )
        )
    headings = ("run", "CPU", "cores", "memory GB", "system", "Python", "coordinator's priority")
    facts = {row[1:] for row in rows}
    if len(facts) == 1:  # one machine: once is enough
        rows = [("all runs", *rows[0][1:])]
    table = _without_empty(of_rows(headings, rows))
    return table if len(table.headings) > 1 else None


def without_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config that can be run again, without folders and names of the first machine."""
    return {key: value for key, value in config.items() if key != FACTS}


def differing(found: Comparison) -> HtmlTable | None:
    """Return in what the configs of the schemes differ, apart from the strategy; None if in
    nothing.
    """
    rows = []
    for scheme in found.schemes:
        for each in scheme.differs:
            values = (words(each.value), words(each.instead))
            told = (UNREADABLE, None) if each.key == NO_CONFIG else values
            rows.append((scheme.name, each.key, *told, ", ".join(each.runs) or "all"))
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


@dataclass(frozen=True, slots=True)
class Again:
    """How to run one experiment again.

    ``config``: the TOML text to save as ``file``. ``own``: the user's own code and traces, (name,
    digest). ``notes``: sentences.
    """

    title: str
    version: str
    file: str
    command: str
    config: str
    own: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def of_experiments(runs: Sequence[ReportedRun]) -> list[Again]:
    """Return how to repeat the experiments that ``runs`` are of, each once."""
    found = experiments(runs)
    return [_again(config, of, len(found) > 1) for config, of in found if config]


def _again(config: Mapping[str, Any], runs: Sequence[ReportedRun], several: bool) -> Again:
    """Return how to repeat ``runs``; ``several``: there are other experiments, too."""
    facts = config.get(FACTS)
    facts = facts if isinstance(facts, Mapping) else {}
    clock = str(facts.get("clock", runs[0].row.clock or WALL))
    command = str(facts.get("command", "run"))
    name = str(config.get("name", runs[0].name))
    file, titles = f"{name}.toml", list(dict.fromkeys(run.name for run in runs))
    notes = [SAME_BYTES if clock == VIRTUAL else SAME_SPEED]
    notes += {"launch": [INVENTORY], "coordinator": [EDGES]}.get(command, [])
    return Again(
        title=f"{name}: {listed(titles)}" if several else name,
        version=_version(facts, runs),
        file=file,
        command=_command(command, file, clock),
        config=tomli_w.dumps(without_facts(config)),
        own=tuple((str(path), str(digest)) for path, digest in _own(facts).items()),
        notes=tuple(notes),
    )


def _command(command: str, file: str, clock: str) -> str:
    given = shlex.quote(file)
    match command:
        case "launch":
            return f"edgefl launch INVENTORY {given}"
        case "coordinator":
            return f"edgefl coordinator {given}"
    return f"edgefl run {given} --clock {clock}"


def _own(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    found = facts.get("digests", {})
    return found if isinstance(found, Mapping) else {}


def _version(facts: Mapping[str, Any], runs: Sequence[ReportedRun]) -> str:
    """Return "edgefl 0.1.0, commit 68b68a584401", as far as it was noted."""
    version = f"edgefl {facts['edgefl']}" if "edgefl" in facts else "edgefl"
    commits = {str(run.facts.get("git_commit", UNKNOWN)) for run in runs} - {UNKNOWN}
    return version + (f", commit {' and '.join(sorted(commits))}" if commits else "")
