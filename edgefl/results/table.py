"""The tables of ``edgefl compare`` for the terminal: of the runs, and over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from edgefl.results.compare import (
    UNFINISHED,
    Row,
    byte_unit,
    common_score,
    note_on_energy,
    schemes,
    spread_of,
    worst_mark,
)
from edgefl.results.comparison import Comparison
from edgefl.results.forms import count, plain_table, seconds, share, three_digits
from edgefl.results.grid import MISSING, grid
from edgefl.results.summary import (
    DIVERGED,
    FAILED,
    FAITHFUL,
    INTERRUPTED,
    STRAINED,
    VIRTUAL,
    interruption,
)

BAD = (FAILED, DIVERGED, INTERRUPTED, UNFINISHED)
COLOURS = {FAITHFUL: "green", STRAINED: "yellow", VIRTUAL: "", **dict.fromkeys(BAD, "red")}
RECEIVED, APPLIED, DISCARDED = "re-\nceived", "ap-\nplied", "disc.\n"  # updates
JOULES = "energy\nJ"
RAW_UP, RAW_DOWN = "raw\nup", "raw\ndown"  # without compression
NAME, VERDICT = "strategy\n", "verdict\n"
NARROWEST_NAME = 8
# order in which columns are left out in a narrow terminal
LEFT_OUT_FIRST = (
    RAW_DOWN,
    RAW_UP,
    RECEIVED,
    "acc.\nbest",
    "stale\navg/max",
    "emul.\ns",
    DISCARDED,
    "ver-\nsions",
    "down\n",
    "up\n",
)


def table(rows: Sequence[Row], width: int = 80) -> Table:
    """Return the comparison as a table of at most ``width`` characters.

    If it is too wide, names are wrapped and then columns are left out, with a note; the verdict
    always stays. Rows with the same name are the seeds of a scheme: the cell has the mean and below
    it the sample standard deviation. The lines below the table give the reasons of every verdict
    that is not "faithful", and the warnings.
    """
    found = schemes(rows)
    columns = _columns(found)
    left_out = _make_room(columns, width)
    energy = note_on_energy(rows)
    notes = [
        *_notes(rows, found),
        *([Text(energy, style="dim")] if energy else []),
        *(
            [Text(f"no room in {width} columns for: {', '.join(left_out)}", style="dim")]
            if left_out
            else []
        ),
    ]
    shown = plain_table()
    shown.caption = Text("\n").join(notes) if notes else None
    widths = {heading: _width(heading, cells) for heading, cells in columns.items()}
    widths[NAME] = max(NARROWEST_NAME, min(widths[NAME], width - _total(widths) + widths[NAME]))
    for heading in columns:
        shown.add_column(
            heading,
            justify="left" if heading in (NAME, VERDICT) else "right",
            overflow="fold",
            width=widths[heading],
        )
    for runs, *cells in zip(found.values(), *columns.values()):
        shown.add_row(
            Text(cells[0]), *cells[1:-1], Text(cells[-1], style=COLOURS.get(worst_mark(runs), ""))
        )
    return shown


def _columns(found: dict[str, list[Row]]) -> dict[str, list[str]]:
    """Return for each heading the cells, one per scheme."""
    most = max(
        (max(row.bytes_up, row.bytes_down) for runs in found.values() for row in runs), default=0
    )
    size, unit = byte_unit(most)

    def cells(quantity: str, form: Callable[[float], str]) -> list[str]:
        return [_cell(runs, quantity, form) for runs in found.values()]

    target = _target_heading(found)
    score = common_score(row for runs in found.values() for row in runs)
    to_target_j = f"{target}\nJ"
    columns = {
        NAME: [
            name if len(runs) == 1 else f"{name}\n{len(runs)} seeds" for name, runs in found.items()
        ],
        f"{score.short}\nfinal": cells("final_accuracy", share),
        f"{score.short}\nbest": cells("best_accuracy", share),
        f"{target}\ns": cells("time_to_target_s", seconds),
        "ver-\nsions": cells("versions", count),
        RECEIVED: cells("updates_received", count),
        APPLIED: cells("updates_applied", count),
        DISCARDED: cells("updates_discarded", count),
        f"up\n{unit}": cells("bytes_up", lambda value: three_digits(value / size)),
        f"down\n{unit}": cells("bytes_down", lambda value: three_digits(value / size)),
        f"{RAW_UP} {unit}": cells("raw_bytes_up", lambda value: three_digits(value / size)),
        f"{RAW_DOWN} {unit}": cells("raw_bytes_down", lambda value: three_digits(value / size)),
        "stale\navg/max": [_staleness(runs) for runs in found.values()],
        "emul.\ns": cells("emulated_s", seconds),
        JOULES: cells("joules", three_digits),
        to_target_j: cells("joules_to_target", three_digits),
        VERDICT: [_verdict(runs) for runs in found.values()],
    }
    rows = [row for runs in found.values() for row in runs]
    for heading in (JOULES, to_target_j):
        if all(row.joules is None for row in rows):
            del columns[heading]
    if all(row.raw_bytes_up is None for row in rows):
        del columns[f"{RAW_UP} {unit}"], columns[f"{RAW_DOWN} {unit}"]
    if not any(row.updates_discarded for row in rows):
        del columns[DISCARDED]
    if all(row.updates_received in (None, row.updates_applied) for row in rows):
        del columns[RECEIVED]
    return columns


def _make_room(columns: dict[str, list[str]], width: int) -> list[str]:
    """Remove the columns that do not fit even with wrapped names; return their headings."""
    left_out: list[str] = []
    for start in LEFT_OUT_FIRST:
        widths = {heading: _width(heading, cells) for heading, cells in columns.items()}
        if _total(widths | {NAME: min(widths[NAME], NARROWEST_NAME)}) <= width:
            break
        for heading in [heading for heading in columns if heading.startswith(start)]:
            del columns[heading]
            left_out.append(" ".join(heading.replace("-\n", "").split()))
    return left_out


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(widths) - 1  # a space between two columns


def _width(heading: str, cells: Sequence[str]) -> int:
    return max(len(line) for text in (heading, *cells) for line in text.split("\n"))


def _notes(rows: Sequence[Row], found: dict[str, list[Row]]) -> list[Text]:
    """Return the lines below the table: reasons of verdicts, warnings, interrupted runs.

    Interrupted runs are named because their mean is over runs of different length.
    """
    notes = []
    for row in rows:
        several = len(found[row.name]) > 1
        name = f"{row.name} seed {row.seed}" if several else row.name
        if row.reasons:  # the host's verdict, although a failure may stand in the table
            why = UNFINISHED if row.verdict == UNFINISHED else STRAINED
            notes.append(Text.assemble((f"{name}: {why}: ", COLOURS.get(why, "")), row.reasons))
        if row.warnings:
            notes.append(Text.assemble((f"{name}: warning: ", "yellow"), row.warnings))
        if row.resumptions:
            notes.append(Text(f"{name}: {_outages(row)}", style="dim"))
        if row.mark == INTERRUPTED:
            after = f" after {seconds(row.emulated_s or 0.0)} emulated s"
            told = f"{name}: {interruption(row.finished, after)}"
            notes.append(Text(told + "; the mean still includes it" * several, style="red"))
    return notes


def _outages(row: Row) -> str:
    """Return "resumed 2 times, after 35.1 s in all, which are no emulated time"."""
    times, last = ("once", "") if row.resumptions == 1 else (f"{row.resumptions} times", " in all")
    return f"resumed {times}, after {row.outage_s:.1f} s{last}, which are no emulated time"


def _cell(runs: Sequence[Row], quantity: str, form: Callable[[float], str]) -> str:
    """Return the number, or for several seeds the mean above the deviation.

    If not all runs have the number, return "N of M".
    """
    over = spread_of(runs, quantity)
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else "-"
    if over.of == 1:
        return form(getattr(runs[0], quantity))
    return f"{form(over.mean)}\n±{_shorter(form(over.deviation or 0.0))}"


def _shorter(deviation: str) -> str:
    """Shorten "0.004" to ".004", so that the column stays as wide as its mean."""
    return (
        "0"
        if not float(deviation.strip("kM<"))
        else deviation.removeprefix("0")
        if deviation.startswith("0.")
        else deviation
    )


def _verdict(runs: Sequence[Row]) -> str:
    worst = worst_mark(runs)
    having = sum(row.mark == worst for row in runs)
    return worst if having == len(runs) else f"{worst}\n{having} of {len(runs)}"


def _staleness(runs: Sequence[Row]) -> str:
    mean = spread_of(runs, "staleness_mean").mean
    return "-" if mean is None else f"{mean:.1f}/{max(row.staleness_max or 0 for row in runs)}"


def _target_heading(found: dict[str, list[Row]]) -> str:
    targets = {row.target_accuracy for runs in found.values() for row in runs} - {None}
    return f"to {targets.pop():g}" if len(targets) == 1 else "target"


# (column of the grid, those whose cells stand below it, and what is written before them)
STACKS = (
    ("accuracy", (("accuracy_interval", ""),)),
    ("gain", (("gain_interval", ""), ("gain_p", "p "))),
    ("to_target", (("to_target_interval", ""),)),
    ("speed_up", (("speed_up_interval", ""), ("speed_up_p", "p "))),
)


def table_over_seeds(comparison: Comparison) -> Table:
    """Return one line per scheme: number, interval and p stand one below the other."""
    found = grid(comparison).columns
    baseline = comparison.baseline
    shown = plain_table("Over seeds" if baseline is None else f"Against {baseline}", gap=1)
    shown.add_column("strategy\n", overflow="fold", min_width=NARROWEST_NAME)
    columns = [found["name"].cells]
    if "seeds" in found:
        shown.add_column("seeds\n", justify="right")
        columns.append(found["seeds"].cells)
    for key, below in STACKS:
        if key not in found:
            continue
        heading = found[key].heading.replace(", ", "\n").replace(" vs ", "\nvs ")
        shown.add_column(heading if "\n" in heading else f"{heading}\n", justify="right")
        stacks = [(before, found[each].cells) for each, before in below if each in found]
        columns.append(
            tuple(
                "\n".join([cell, *_below([(before, cells[place]) for before, cells in stacks])])
                for place, cell in enumerate(found[key].cells)
            )
        )
    for cells in zip(*columns):
        shown.add_row(*map(Text, cells))
    return shown


def _below(cells: list[tuple[str, str]]) -> list[str]:
    return [f"{before}{cell}" for before, cell in cells if cell != MISSING]
