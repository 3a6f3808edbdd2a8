"""The tables of a report that no command prints: what was run, verdicts, hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from edgefl.config.experiment import StrategyEntry
from edgefl.errors import listed
from edgefl.html_report.html_tables import HtmlTable, of_rows
from edgefl.html_report.reported_runs import ReportedRun
from edgefl.loading.file import FACTS
from edgefl.results import energy
from edgefl.results.compare import UNFINISHED
from edgefl.results.comparison import Comparison, SeedEstimate, against
from edgefl.results.differences import NO_CONFIG
from edgefl.results.forms import probability
from edgefl.results.statistics import CONFIDENCE
from edgefl.results.summary import FAITHFUL, STRAINED, VIRTUAL
from edgefl.results.table import BAD
from emulator.energy.account import STATES

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
    return HtmlTable(
        title=table.title,
        headings=tuple(table.headings[place] for place in kept),
        numbers=tuple(table.numbers[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
        notes=table.notes,
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
