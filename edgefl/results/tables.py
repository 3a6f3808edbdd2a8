"""Comparisons as tables: on the terminal and in HTML, as Markdown and as LaTeX.

Start with ``table``, which shows runs as ``edgefl run`` and ``edgefl compare`` do. ``grid`` is the
answer to a question about strategies: ``over_seeds`` shows it on the terminal, ``html`` in
notebooks, ``markdown`` and ``latex`` for papers. The sentences below the tables are here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape

from rich import box
from rich.table import Table
from rich.text import Text

from edgefl.config.scores import ACCURACY
from edgefl.errors import UserError, listed, nearest, printable
from edgefl.results import age
from edgefl.results.compare import (
    QUANTITIES,
    ComparedStrategy,
    Comparison,
    Row,
    SeedEstimate,
    common_score,
    spread_of,
    strategies,
    worst_mark,
)
from edgefl.results.differences import NOT_READ, in_one_line
from edgefl.results.statistics import (
    CONFIDENCE,
    ENOUGH,
    HAS_SCIPY,
    MOST_SEEDS,
    POWER,
    Interval,
    PairedEffect,
    PairedTest,
    pairs_needed,
    smallest_p,
    spread,
)
from edgefl.results.summary import (
    DIVERGED,
    FAILED,
    FAITHFUL,
    INTERRUPTED,
    STRAINED,
    UNFINISHED,
    VIRTUAL,
    interruption,
    unit_up_to,
)
from edgefl_testbed import install_command

BAD = (FAILED, DIVERGED, INTERRUPTED, UNFINISHED)
GOOD = (FAITHFUL, VIRTUAL)
COLOURS = {FAITHFUL: "green", STRAINED: "yellow", VIRTUAL: "", **dict.fromkeys(BAD, "red")}
Form = Callable[[float], str]


# ---------------------------------------------------------------------- numbers
def share(value: float) -> str:
    return f"{value:.3f}"


def count(value: float) -> str:
    """Format a count with at most five characters: 7, 7.3 (a mean), 1234, 12.3k, 1.23M."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if value >= size:
            return three_digits(value / (1e6 if unit == "M" else 1e3)) + unit
    return str(value) if isinstance(value, int) else f"{value:.{int(value < 100)}f}"


def three_digits(value: float) -> str:
    if value < 0.01:
        return "<0.01" if value else "0"
    if value < 0.1:
        return f"{value:.2f}"
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def seconds(value: float) -> str:
    return f"{value:.{2 if value < 10 else int(value < 10_000)}f}"


def probability(value: float) -> str:
    """Format a p value: 0.031, or <0.001."""
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def points(difference: float) -> str:
    """Format a difference of accuracies in percentage points, with its sign."""
    return f"{100 * difference:+.1f}"


def signed(difference: float) -> str:
    return f"{difference:+.3f}"


def times(ratio: float) -> str:
    return f"{ratio:#.3g}".rstrip(".") + TIMES if ratio < 999.5 else f"{ratio:.0f}{TIMES}"


def scaled(size: float) -> Form:
    """Return the form of a number in units of this size."""
    return lambda value: three_digits(value / size)


def plain_table(title: str | None = None, gap: int = 0) -> Table:
    """Return an empty table with a line below its headings and no other lines.

    ``gap``: spaces between two columns, in addition to the one that separates them.
    """
    return Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        show_edge=False,
        caption_justify="left",
        caption_style="",
    )


def note_on_energy(rows: Iterable[Row]) -> str:
    """Return "energy is modelled", or where else the joules are from; "" without joules."""
    kinds = sorted({row.joules_kind for row in rows if row.joules_kind})
    return f"energy is {' or '.join(kinds)}" if kinds else ""


# ---------------------------------------------------------------------- runs on the terminal
RECEIVED, APPLIED, DISCARDED = "received\n", "applied\n", "discarded\n"  # updates
STALENESS, LENGTH, VERSIONS = "staleness\nmean/max", "emulated\ns", "versions\n"
BEST = "\nbest"  # of the score
JOULES = "energy\nJ"
RAW_UP, RAW_DOWN = "raw\nup", "raw\ndown"  # without compression
NAME, VERDICT = "strategy\n", "verdict\n"
NARROWEST_NAME = 8
# parts of headings, in the order in which columns are left out in a narrow terminal
LEFT_OUT_FIRST = (
    *(RAW_DOWN, RAW_UP, RECEIVED, BEST, STALENESS, LENGTH, DISCARDED, VERSIONS, "down\n", "up\n"),
)


def table(rows: Sequence[Row], width: int = 80) -> Table:
    """Return the comparison as a table of at most ``width`` characters.

    If it is too wide, names are wrapped and then columns are left out, with a note; the verdict
    always stays. Rows with the same name are the seeds of a strategy: the cell has the mean and
    below it the sample standard deviation. The lines below the table give the reasons of every
    verdict that is not "faithful", and the warnings.
    """
    by_name = strategies(rows)
    columns = _columns_of_runs(rows, by_name)
    left_out = _make_room(columns, width)
    notes = _notes_on_runs(rows, by_name)
    if energy := note_on_energy(rows):
        notes.append(Text(energy, style="dim"))
    if left_out:
        notes.append(Text(f"no room in {width} columns for: {', '.join(left_out)}", style="dim"))
    shown = plain_table()
    shown.caption = Text("\n").join(notes) if notes else None
    widths = _widths(columns)
    widths[NAME] = max(NARROWEST_NAME, min(widths[NAME], width - _total(widths) + widths[NAME]))
    for heading in columns:
        shown.add_column(
            heading,
            justify="left" if heading in (NAME, VERDICT) else "right",
            overflow="fold",
            width=widths[heading],
        )
    for of_strategy, *cells in zip(by_name.values(), *columns.values()):
        verdict = Text(cells[-1], style=COLOURS.get(worst_mark(of_strategy), ""))
        shown.add_row(Text(cells[0]), *cells[1:-1], verdict)
    return shown


def _columns_of_runs(
    rows: Sequence[Row], by_name: Mapping[str, Sequence[Row]]
) -> dict[str, list[str]]:
    """Return for each heading the cells, one per strategy."""
    size, unit = unit_up_to(
        max((max(row.bytes_up, row.bytes_down) for row in rows), default=0), "B"
    )
    targets = {row.target_accuracy for row in rows} - {None}
    target = f"to {targets.pop():g}" if len(targets) == 1 else "target"
    score = common_score(rows)

    def cells(quantity: str, form: Form) -> list[str]:
        return [_stacked(of_strategy, quantity, form) for of_strategy in by_name.values()]

    columns = {
        NAME: [name + f"\n{len(of)} seeds" * (len(of) > 1) for name, of in by_name.items()],
        f"{score.title}\nfinal": cells("final_accuracy", share),
        f"{score.title}{BEST}": cells("best_accuracy", share),
        f"{target}\ns": cells("time_to_target_s", seconds),
        VERSIONS: cells("versions", count),
        RECEIVED: cells("updates_received", count),
        APPLIED: cells("updates_applied", count),
        DISCARDED: cells("updates_discarded", count),
        f"up\n{unit}": cells("bytes_up", scaled(size)),
        f"down\n{unit}": cells("bytes_down", scaled(size)),
        f"{RAW_UP} {unit}": cells("raw_bytes_up", scaled(size)),
        f"{RAW_DOWN} {unit}": cells("raw_bytes_down", scaled(size)),
        STALENESS: list(map(_staleness, by_name.values())),
        LENGTH: cells("emulated_s", seconds),
        JOULES: cells("joules", three_digits),
        f"{target}\nJ": cells("joules_to_target", three_digits),
        VERDICT: list(map(_verdict, by_name.values())),
    }
    needless = {
        (JOULES, f"{target}\nJ"): all(row.joules is None for row in rows),
        (f"{RAW_UP} {unit}", f"{RAW_DOWN} {unit}"): all(row.raw_bytes_up is None for row in rows),
        (DISCARDED,): not any(row.updates_discarded for row in rows),
        (f"{target}\ns",): all(row.target_accuracy is None for row in rows),
        (RECEIVED,): all(row.updates_received in (None, row.updates_applied) for row in rows),
    }
    without = {heading for headings, is_so in needless.items() if is_so for heading in headings}
    return {heading: of for heading, of in columns.items() if heading not in without}


def _make_room(columns: dict[str, list[str]], width: int) -> list[str]:
    """Remove the columns that do not fit even with wrapped names; return their headings."""
    left_out: list[str] = []
    for part in LEFT_OUT_FIRST:
        widths = _widths(columns)
        if _total(widths | {NAME: min(widths[NAME], NARROWEST_NAME)}) <= width:
            break
        for heading in [each for each in columns if part in each]:
            del columns[heading]
            left_out.append(" ".join(heading.split()))
    return left_out


def _widths(columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {
        heading: max(len(line) for text in (heading, *cells) for line in text.split("\n"))
        for heading, cells in columns.items()
    }


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(widths) - 1  # a space between two columns


def _stacked(rows: Sequence[Row], quantity: str, form: Form) -> str:
    """Return the number, or for several seeds the mean above the deviation.

    If not all runs have the number, return "N of M".
    """
    over = spread_of(rows, quantity)
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else MISSING
    if over.of == 1:
        return form(getattr(rows[0], quantity))
    deviation = form(over.deviation or 0.0)
    if not float(deviation.strip("kM<")):
        deviation = "0"
    elif deviation.startswith("0."):  # so that the column stays as wide as its mean
        deviation = deviation.removeprefix("0")
    return f"{form(over.mean)}\n±{deviation}"


def _verdict(rows: Sequence[Row]) -> str:
    worst = worst_mark(rows)
    having = sum(row.mark == worst for row in rows)
    return worst if having == len(rows) else f"{worst}\n{having} of {len(rows)}"


def _staleness(rows: Sequence[Row]) -> str:
    mean = spread_of(rows, "staleness_mean").mean
    return MISSING if mean is None else f"{mean:.1f}/{max(row.staleness_max or 0 for row in rows)}"


def _notes_on_runs(rows: Sequence[Row], by_name: Mapping[str, Sequence[Row]]) -> list[Text]:
    """Return the lines below the table: reasons of verdicts, warnings, interrupted runs.

    Interrupted runs are named because their mean is over runs of different length.
    """
    notes = []
    for row in rows:
        several = len(by_name[row.name]) > 1
        name = f"{row.name} seed {row.seed}" if several else row.name
        if row.reasons:  # the host's verdict, although a failure may stand in the table
            why = UNFINISHED if row.verdict == UNFINISHED else STRAINED
            notes.append(Text.assemble((f"{name}: {why}: ", COLOURS.get(why, "")), row.reasons))
        if row.warnings:
            notes.append(Text.assemble((f"{name}: warning: ", "yellow"), row.warnings))
        if row.final_accuracy is None and row.best_accuracy is None:
            notes.append(Text(f"{name}: no {row.score.title}: no evaluation had a finite one"))
        if row.resumptions:
            once = row.resumptions == 1
            often, last = ("once", "") if once else (f"{row.resumptions} times", " in all")
            text = f"resumed {often}, after {row.outage_s:.1f} s{last}, which are no emulated time"
            notes.append(Text(f"{name}: {text}", style="dim"))
        if row.mark == INTERRUPTED:
            after = f" after {seconds(row.emulated_s or 0.0)} emulated s"
            text = f"{name}: {interruption(row.finished, after)}"
            notes.append(Text(text + "; the mean still includes it" * several, style="red"))
    return notes


# ---------------------------------------------------------------------- ages
# heading -> of whose ages
OF_AGES = {"models": "model", "at work": "work", "updates": "update", "fresh": "fresh_update"}
LINES = {"mean": "mean", "p95": "95 %", "peak": "peak", "max": "most"}


def ages(rows: Sequence[Row]) -> Table:
    """Return a table of the ages, with the means over the seeds of each strategy.

    Updates with a fresher model have columns if there are any.
    """
    by_name = strategies(rows)
    units = {age.SECONDS: "s", age.VERSIONS: "versions"}

    def cell(of_strategy: Sequence[Row], of: str, unit: str) -> str:
        lines = []
        for number in LINES:
            over = spread([row.ages.get(age.quantity(number, of, unit)) for row in of_strategy])
            some = f"{over.n} of {over.of}" if over.n else MISSING
            lines.append(some if over.mean is None else three_digits(over.mean))
        return "\n".join(lines)

    shown = plain_table("Age since publication")
    shown.add_column("strategy\n", overflow="fold", min_width=NARROWEST_NAME)
    columns = [[Text(name) for name in by_name], [Text("\n".join(LINES.values()))] * len(by_name)]
    shown.add_column("\n")
    for heading, of in OF_AGES.items():
        for unit, word in units.items():
            cells = [cell(of_strategy, of, unit) for of_strategy in by_name.values()]
            if any(not set(each) <= {MISSING, "\n"} for each in cells):
                shown.add_column(f"{heading}\n{word}", justify="right", no_wrap=True)
                columns.append([Text(each) for each in cells])
    counted = [spread_of(of_strategy, age.COUNTED).mean for of_strategy in by_name.values()]
    shown.add_column("counted\n%", justify="right")
    columns.append([Text(MISSING if part is None else f"{100 * part:.0f}") for part in counted])
    for row in zip(*columns):
        shown.add_row(*row)
    return shown


# ---------------------------------------------------------------------- strategies as a grid
DIFFERS, NOT_FAITHFUL = "*", "†"  # marks behind a strategy's name
PLUS_MINUS, TIMES = "±", "\u00d7"
MISSING = "-"
PERCENT = 100 * CONFIDENCE
SEEDS = f"seeds for {100 * POWER:g} %"


# what a heading of ``table`` says -> the key of that column
OF_HEADINGS = {
    "strategy": "name",
    "final": "final_accuracy",
    "best": "best_accuracy",
    "target": "to_target",
    "received": "updates_received",
    "applied": "updates_applied",
    "discarded": "updates_discarded",
    "up": "bytes_up",
    "down": "bytes_down",
    "staleness": "staleness_mean",
    "emulated": "emulated_s",
    "energy": "joules",
}


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A heading with its unit, the cells, one per strategy, and how they are aligned."""

    heading: str
    cells: tuple[str, ...]
    left: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns by key, and sentences below them. Marks behind names: DIFFERS, NOT_FAITHFUL."""

    columns: dict[str, GridColumn] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns.values()]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells, strategy by strategy."""
        return list(zip(*(column.cells for column in self.columns.values())))


def grid(comparison: Comparison, keys: Sequence[str] = ()) -> Grid:
    """Return the grid with the columns ``keys``, or with those that there is something for.

    A key may also be what a heading of ``table`` says. UserError for an unknown key.
    """
    columns = _columns(comparison)
    for key in keys:
        if key not in columns and key not in OF_HEADINGS:
            near = nearest(key, [*OF_HEADINGS, *columns])
            raise UserError(f"--columns {key}: there is no such column{near}")
    chosen = [OF_HEADINGS.get(key, key) for key in keys] or _usual(comparison)
    named = dict.fromkeys(("name", *chosen))  # each once, the names first
    shows = comparison.question.accuracy == "convergence" or "convergence_accuracy" in named
    old = notes_on_old_means(comparison.rows) if shows else []
    return Grid({key: columns[key] for key in named}, (*notes(comparison), *old))


def _usual(comparison: Comparison) -> list[str]:
    """Return the columns that there is something for."""
    several, against = comparison.several_seeds, comparison.baseline is not None
    reached = comparison.target is not None
    keys = {
        "seeds": several,
        "accuracy": True,
        "accuracy_interval": several,
        "gain": against,
        "gain_interval": against and several,
        "gain_p": against and several,
        "gain_seeds": against and several,
        "to_target": reached,
        "to_target_interval": reached and several,
        "speed_up": reached and against,
        "speed_up_interval": reached and against and several,
        "speed_up_p": reached and against and several,
        "speed_up_seeds": reached and against and several,
        "joules": any(row.joules is not None for row in comparison.rows),
        "verdict": True,
    }
    return [key for key, wanted in keys.items() if wanted]


def _columns(comparison: Comparison) -> dict[str, GridColumn]:
    target = "target" if comparison.target is None else f"{comparison.target:g}"
    unit, in_unit = _unit(comparison)

    def column(
        heading: str, cell: Callable[[ComparedStrategy], str], left: bool = False
    ) -> GridColumn:
        return GridColumn(heading, tuple(map(cell, comparison.strategies)), left)

    of_baseline = f"vs {comparison.baseline}"
    is_share = comparison.score.largest == 1  # points are hundredths of a share
    gained, of_gain = ("points", points) if is_share else ("difference", signed)
    factor = "speed-up" if comparison.axis.unit == "s" else "factor"
    percent = f"{PERCENT:g} % interval"
    return {
        "name": column("strategy", marked, left=True),
        "seeds": column("seeds", lambda each: str(len(each.rows))),
        "accuracy": column(
            f"{comparison.score.title}, {comparison.question.accuracy}",
            lambda each: value(each.accuracy, share),
        ),
        "accuracy_interval": column(percent, lambda each: bounds(each.accuracy, share)),
        "gain": column(f"{gained} {of_baseline}", lambda each: effect(each.gain, of_gain)),
        "gain_interval": column(percent, lambda each: bounds(each.gain, of_gain)),
        "gain_p": column("p", lambda each: p_value(each.gain)),
        "gain_seeds": column(SEEDS, lambda each: seeds_for(each.gain)),
        "to_target": column(f"to {target}{unit}", lambda each: value(each.to_target, in_unit)),
        "to_target_interval": column(percent, lambda each: bounds(each.to_target, in_unit)),
        "speed_up": column(f"{factor} {of_baseline}", lambda each: effect(each.speed_up, times)),
        "speed_up_interval": column(percent, lambda each: bounds(each.speed_up, times)),
        "speed_up_p": column("p", lambda each: p_value(each.speed_up)),
        "speed_up_seeds": column(SEEDS, lambda each: seeds_for(each.speed_up)),
        **{name: _of_rows(comparison, name) for name in (*QUANTITIES, *age.QUANTITIES)},
        "verdict": column("verdict", lambda each: each.verdict, left=True),
    }


def _of_rows(comparison: Comparison, quantity: str) -> GridColumn:
    """Return the column of a field of ``Row``: mean and deviation."""
    spreads = [spread_of(each.rows, quantity) for each in comparison.strategies]
    heading = quantity.replace("_", " ")
    form: Form = count
    if quantity.startswith("bytes"):
        size, unit = unit_up_to(max((each.mean or 0.0 for each in spreads), default=0.0), "B")
        heading, form = f"{heading.split()[1]} ({unit})", scaled(size)
    elif quantity.endswith("_s"):
        heading, form = f"{heading.removesuffix(' s')} (s)", seconds
    elif quantity.endswith("_versions"):
        heading, form = f"{heading.removesuffix(' versions')} (versions)", three_digits
    elif quantity == age.COUNTED:
        form = share
    elif quantity == "joules":
        heading, form = "energy (J)", three_digits
    elif quantity.endswith(f"_{ACCURACY.name}"):
        heading, form = f"{heading.split()[0]} {comparison.score.title}", share
    elif quantity == "stability":
        form = share
    return GridColumn(heading, tuple(value(SeedEstimate(each, None), form) for each in spreads))


def _unit(comparison: Comparison) -> tuple[str, Form]:
    """Return the unit of x behind a heading, and how a value is shown in it."""
    unit = comparison.axis.unit
    if unit == "B":
        reached = [each.x or 0.0 for strategy in comparison.strategies for each in strategy.reached]
        size, unit = unit_up_to(max(reached, default=0.0), "B")
        return f" ({unit})", scaled(size)
    if unit == "s":
        return " (s)", seconds
    return (f" ({unit})", three_digits) if unit else (f" ({comparison.axis.label})", count)


def marked(strategy: ComparedStrategy) -> str:
    """Return the name with the marks of a strategy that differs or is not faithful."""
    unfaithful = NOT_FAITHFUL * (strategy.verdict not in GOOD)
    return f"{strategy.name} {DIFFERS * bool(strategy.differs)}{unfaithful}".rstrip()


def value(estimate: SeedEstimate, form: Form) -> str:
    """Return "0.948 ± 0.019": mean and sample deviation; "2 of 3" if not all runs have it."""
    over = estimate.spread
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else MISSING
    if over.deviation is None:
        return form(over.mean)
    shown, deviation = form(over.mean), form(over.deviation)
    with suppress(ValueError):  # no plain numbers, such as 12.3k or <0.01
        float(shown)
        deviation = f"{float(deviation):.{len(shown.partition('.')[2])}f}"
    return f"{shown} {PLUS_MINUS} {deviation}"


def bounds(found: SeedEstimate | PairedEffect | None, form: Form) -> str:
    around: Interval | None = None if found is None else found.interval
    return MISSING if around is None else f"[{form(around.low)}, {form(around.high)}]"


def effect(found: PairedEffect | None, form: Form) -> str:
    """Return the size, a bound such as "> 3.11", or "2 of 3" if not all pairs have it."""
    if found is None:
        return MISSING
    if found.size is None:
        return f"{found.having} of {found.pairs}" if found.having else MISSING
    return f"{found.bound} {form(found.size)}".strip()


def p_value(found: PairedEffect | None) -> str:
    return MISSING if found is None or found.adjusted is None else probability(found.adjusted)


def seeds_for(found: PairedEffect | None) -> str:
    """Return how many seeds 80 % power needs, or "> 1000"."""
    if found is None or found.test is None or found.test.p is None:
        return MISSING
    return f"> {MOST_SEEDS}" if found.seeds is None else str(found.seeds)


def chosen(grid: Grid) -> Table:
    """Return the grid for the terminal."""
    shown = plain_table(gap=1)
    for column in grid.columns.values():
        shown.add_column(column.heading, justify="left" if column.left else "right")
    for row in grid.rows:
        shown.add_row(*map(Text, row))
    return shown


# (column of the grid, those whose cells stand below it, and what is written before them)
STACKS = {
    "accuracy": {"accuracy_interval": ""},
    "gain": {"gain_interval": "", "gain_p": "p ", "gain_seeds": "seeds "},
    "to_target": {"to_target_interval": ""},
    "speed_up": {"speed_up_interval": "", "speed_up_p": "p ", "speed_up_seeds": "seeds "},
}


def stacked(columns: Mapping[str, GridColumn]) -> dict[str, GridColumn]:
    """Return the columns with number, interval and p in the lines of one cell."""
    found = dict(columns)
    for key, below in STACKS.items():
        cells = list(found[key].cells) if key in found else []
        for other, before in below.items() if cells else ():
            texts = found.pop(other).cells if other in found else [MISSING] * len(cells)
            cells = [
                cell if text == MISSING else f"{cell}\n{before}{text}"
                for cell, text in zip(cells, texts)
            ]
        if cells:
            found[key] = replace(found[key], cells=tuple(cells))
    return found


def over_seeds(comparison: Comparison) -> Table:
    """Return one line per strategy: number, interval and p stand one below the other."""
    columns, baseline = stacked(grid(comparison).columns), comparison.baseline
    shown = plain_table("Over seeds" if baseline is None else f"Against {baseline}", gap=1)
    shown.add_column("strategy\n", overflow="fold", min_width=NARROWEST_NAME)
    known = [key for key in ("seeds", *STACKS) if key in columns]
    for key in known:
        heading = columns[key].heading.replace(", ", "\n").replace(" vs ", "\nvs ")
        shown.add_column(heading if "\n" in heading else f"{heading}\n", justify="right")
    for row in zip(*(columns[key].cells for key in ("name", *known))):
        shown.add_row(*map(Text, row))
    return shown


# ---------------------------------------------------------------------- sentences below a grid
def notes(comparison: Comparison) -> list[str]:
    """Return the sentences below the table: how it was made, and what a reader must know."""
    found = [*notes_on_statistics(comparison), *notes_on_configs(comparison)]
    for strategy in comparison.strategies:
        if strategy.verdict not in GOOD:
            reasons = dict.fromkeys(row.reasons for row in strategy.rows if row.reasons)
            why = f": {'; '.join(reasons)}" if reasons else ""
            found.append(f"{NOT_FAITHFUL} {strategy.name}: {strategy.verdict}{why}")
    energy = note_on_energy(comparison.rows)
    return [*found, energy] if energy else found


def notes_on_statistics(comparison: Comparison) -> list[str]:
    """Return which intervals and tests the table has, and what limits them."""
    tested = comparison.baseline is not None
    lines = [*_on_methods(comparison, tested)]
    if HAS_SCIPY or not comparison.several_seeds:
        lines += _on_adjustment(comparison) if tested and lines else []
        lines += _on_few_pairs(comparison)
        lines += [_on_power(comparison)] if tested and lines else []
    lines += _on_common_seeds(comparison)
    without = comparison.target is None and tested
    return lines + ["no target accuracy, so no speed-up: --target 0.9 would give one"] * without


def notes_on_configs(comparison: Comparison) -> list[str]:
    """Return which strategies differ in more than the algorithm, alike ones together."""
    alike: dict[str, list[str]] = {}
    for strategy in comparison.strategies:
        if strategy.differs:
            alike.setdefault(in_one_line(strategy.differs), []).append(strategy.name)
    return [
        f"{DIFFERS} {listed(names)}: {what}"
        if NOT_READ in what
        else f"{DIFFERS} {listed(names)} {'differs' if len(names) == 1 else 'differ'}: {what}"
        for what, names in alike.items()
    ]


def notes_on_old_means(rows: Iterable[Row]) -> list[str]:
    """Return which runs have a convergence accuracy that is no mean over time."""
    old = dict.fromkeys(
        row.name
        for row in rows
        if row.convergence_accuracy is not None and row.convergence_to_s is None
    )
    text = f"convergence accuracy of {listed([*old])}: the mean of the last ten evaluations"
    return [text] if old else []


def _on_methods(comparison: Comparison, tested: bool) -> Iterable[str]:
    """Yield which intervals and tests the table has."""
    if not HAS_SCIPY and comparison.several_seeds:
        yield f"no intervals and tests: SciPy is not installed: {install_command('lab')}"
        return
    methods = {
        each.interval.method
        for strategy in comparison.strategies
        for each in (strategy.accuracy, strategy.to_target, strategy.gain, strategy.speed_up)
        if each is not None and each.interval is not None
    }
    if "resampling" in methods:
        p = "; p: paired permutation test" * tested
        yield f"{PERCENT:g} % intervals: bootstrap{p}"
    if "t" in methods:
        few = f" (fewer than {ENOUGH} seeds, so normal values are assumed)"
        p = "; p: paired t-test" * tested + few * (comparison.question.method == "auto")
        yield f"{PERCENT:g} % intervals: Student's t{p}"


def _tests_made(comparison: Comparison) -> list[list[PairedTest]]:
    """Return the tests with a p: of the accuracies and of the speed-ups, each adjusted alone."""
    effects = zip(*((each.gain, each.speed_up) for each in comparison.strategies))
    tests = [[each.test for each in column if each is not None] for column in effects]
    return [[test for test in column if test and test.p is not None] for column in tests]


def _on_adjustment(comparison: Comparison) -> list[str]:
    """Return for how many tests p is adjusted; those that could not be made do not count."""
    gains, speeds = map(len, _tests_made(comparison))
    if max(gains, speeds) < 2:
        return []
    of = f"{max(gains, speeds)} comparisons"
    if gains and speeds and gains != speeds:
        of = f"{gains} comparisons of the {comparison.score.title} and {speeds} of the speed-up"
    return [f"p is adjusted for {of} (Holm)"]


def _on_few_pairs(comparison: Comparison) -> list[str]:
    """Return how many seeds the permutation tests need before any p can be significant."""
    limits = []
    for tests in _tests_made(comparison):
        pairs = min((each.n for each in tests if each.method == "resampling"), default=None)
        needed = pairs_needed(len(tests))
        if pairs is not None and pairs < needed:
            limits.append((smallest_p(pairs, len(tests)), pairs, needed))
    if not limits:
        return []
    lowest, pairs, needed = max(limits)
    few = f"with {pairs} seeds no p can be below {probability(lowest)}"
    return [f"{few}: at least {needed} seeds are needed, or --method t"]


def _on_power(comparison: Comparison) -> str:
    """Return what the numbers of needed seeds are for."""
    effect = comparison.question.effect
    of = "the observed difference"
    if effect is not None:
        of = f"{100 * effect:g} points" if comparison.score.largest == 1 else f"{effect:g}"
    more = "" if effect is None or comparison.target is None else " and the observed speed-up"
    return f"seeds: for {100 * POWER:g} % power at {of}{more} (paired t-test)"


def _on_common_seeds(comparison: Comparison) -> list[str]:
    """Return which strategies share only some seeds with the baseline."""
    sizes = {each.name: len(each.rows) for each in comparison.strategies}
    alike: dict[str, list[str]] = {}
    for strategy in comparison.strategies:
        most = max(sizes[strategy.name], sizes.get(comparison.baseline or "", 0))
        if strategy.gain is not None and strategy.gain.pairs < most:
            few = f"{strategy.gain.pairs} of {most} seeds in common with {comparison.baseline}"
            alike.setdefault(few, []).append(strategy.name)
    return [f"{listed(names)}: {few}" for few, names in alike.items()]


def printed(
    comparison: Comparison, width: int, of_families: Iterable[Table | None]
) -> Iterator[Table | Text]:
    """Yield what ``edgefl compare`` prints: tables, an empty line before each but the first, and
    sentences. ``of_families``: the tables of families of strategies.
    """
    yield table(comparison.rows, width)
    if comparison.is_more_than_rows:
        yield from (Text(), over_seeds(comparison))
        yield from map(_sentence, notes_on_statistics(comparison))
    yield from map(_sentence, notes_on_configs(comparison))
    of_ages = ages(comparison.rows) if any(row.ages for row in comparison.rows) else None
    for each in (*of_families, of_ages):
        if each is not None:
            yield from (Text(), each)


def _sentence(text: str) -> Text:
    return Text(printable(text))


# ---------------------------------------------------------------------- HTML, Markdown and LaTeX
LATEX = {
    "\\": r"\textbackslash{}",
    **{each: rf"\{each}" for each in "{}_%&#$"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{each: f"${each}$" for each in "<>|"},
    '"': "''",
    PLUS_MINUS: r"$\pm$",
    TIMES: r"$\times$",
}
LATEX_MARKS = {DIFFERS: r"\ast", NOT_FAITHFUL: r"\dagger"}
LINE, BREAK = "\n", "<br>"
MARKDOWN = str.maketrans({each: f"\\{each}" for each in "\\`*_[]<>|~#$"})


def html(grid: Grid) -> str:
    """Return an HTML table for notebooks, which have their own style, with its notes below."""
    columns = stacked(grid.columns).values()

    def row(tag: str, cells: Iterable[str], style: str = "") -> str:
        ends = ("left" if column.left else "right" for column in columns)
        marked = (
            f'<{tag} style="text-align: {end}{style}">{escape(cell).replace(LINE, BREAK)}</{tag}>'
            for end, cell in zip(ends, cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    head = row("th", (column.heading for column in columns))
    cells = zip(*(column.cells for column in columns))
    rows = "".join(row("td", each, "; white-space: nowrap") for each in cells)
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in grid.notes)
    return f"<div><table><thead>{head}</thead><tbody>{rows}</tbody></table>{below}</div>"


def markdown(grid: Grid) -> str:
    """Return a table of GitHub's Markdown with its notes below, one per paragraph."""

    def escaped(text: str) -> str:
        return text.translate(MARKDOWN)

    aligned = [":--" if column.left else "--:" for column in grid.columns.values()]
    rows = [map(escaped, grid.headings), aligned, *(map(escaped, cells) for cells in grid.rows)]
    lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return "".join(lines) + "".join(f"\n{escaped(note)}\n" for note in grid.notes)


def latex(grid: Grid, made_by: str = "") -> str:
    r"""Return a ``tabular`` with the rules of booktabs, and its notes below.

    It has no ``table`` around it: caption and label are the paper's. ``made_by``: for a comment.
    """
    aligned = "".join("l" if column.left else "r" for column in grid.columns.values())
    lines = [
        "% \\usepackage{booktabs}" + f"; made by: {printable(made_by)}" * bool(made_by),
        rf"\begin{{tabular}}{{{aligned}}}",
        r"\toprule",
        " & ".join(map(_latex, grid.headings)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_latex_cell, cells)) + r" \\" for cells in grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if grid.notes:
        lines += ["", r"\smallskip", r"{\footnotesize"]
        lines += [f"\\noindent {_latex_note(note)}\\par" for note in grid.notes]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Return the text with LaTeX's own characters escaped, and a minus in place of a hyphen."""
    escaped = "".join(LATEX.get(each, each) for each in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def _latex_cell(text: str) -> str:
    """Return a cell; the marks behind a name are raised, "-" is a dash.

    The braces keep a cell that begins with [ from being an argument of the line before.
    """
    if text == MISSING:
        return "--"
    name, space, marks = text.rpartition(" ")
    if space and marks and set(marks) <= set(LATEX_MARKS):
        return f"{_latex(name)}${{}}^{{{''.join(LATEX_MARKS[each] for each in marks)}}}$"
    return f"{{{_latex(text)}}}" if text.startswith("[") else _latex(text)


def _latex_note(text: str) -> str:
    mark, _, rest = text.partition(" ")
    if mark in LATEX_MARKS:
        return f"${{}}^{{{LATEX_MARKS[mark]}}}$ {_latex(rest)}"
    return _latex(text)
