"""``edgefl compare``: many runs in one table, against a baseline, for the terminal or a paper."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from edgefl.commands import show
from edgefl.errors import UserError
from edgefl.reports.family import families

if TYPE_CHECKING:
    from edgefl.results.comparison import Comparison

ANSWER, OUTPUT = "What is compared", "What is printed and written"


class WhichAccuracy(StrEnum):
    """Which accuracy of a run is compared."""

    final = "final"
    best = "best"
    convergence = "convergence"


class StatisticsMethod(StrEnum):
    """How intervals and p are computed."""

    auto = "auto"
    resampling = "resampling"
    t = "t"


class RecordsOf(StrEnum):
    """What a row of a file is."""

    schemes = "schemes"
    runs = "runs"


Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Show differences, speed-ups and paired tests against this strategy or run, too.",
        rich_help_panel=ANSWER,
    ),
]
X = Annotated[
    str | None,
    typer.Option(
        "--x",
        metavar="X",
        help="What is counted until the target: emulated_s, version, bytes, joules or wall_s.",
        show_default="emulated_s",
        rich_help_panel=ANSWER,
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        metavar="ACCURACY",
        help="Another target accuracy than that of the runs, such as 0.85.",
        rich_help_panel=ANSWER,
    ),
]
OfAccuracy = Annotated[
    WhichAccuracy,
    typer.Option(
        help="The last one, the best one, or the mean over the last tenth of the run's time.",
        rich_help_panel=ANSWER,
    ),
]
Method = Annotated[
    StatisticsMethod,
    typer.Option(
        help="Bootstrap intervals and permutation tests, or Student's. auto: t below six seeds.",
        rich_help_panel=ANSWER,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse runs that differ in more than the strategy.",
        rich_help_panel=ANSWER,
    ),
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown.", rich_help_panel=OUTPUT)
]
Latex = Annotated[
    bool,
    typer.Option(
        "--latex", help="Print a LaTeX tabular (package booktabs).", rich_help_panel=OUTPUT
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns of --markdown and --latex, such as accuracy,speed_up,bytes_up.",
        rich_help_panel=OUTPUT,
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the numbers as CSV.", rich_help_panel=OUTPUT),
]
Parquet = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the numbers as Parquet.", rich_help_panel=OUTPUT),
]
Rows = Annotated[
    RecordsOf, typer.Option(help="The rows of --csv and --parquet.", rich_help_panel=OUTPUT)
]


def compare(
    runs: Runs,
    baseline: Baseline = None,
    x: X = None,
    target: Target = None,
    accuracy: OfAccuracy = WhichAccuracy.final,
    method: Method = StatisticsMethod.auto,
    strict: Strict = False,
    markdown: Markdown = False,
    latex: Latex = False,
    columns: Columns = None,
    csv: Csv = None,
    parquet: Parquet = None,
    rows: Rows = RecordsOf.schemes,
) -> None:
    """Compare runs, finished or not, in a table; over several seeds with confidence intervals."""
    from edgefl.results import differences
    from edgefl.results.comparison import Question, answer

    check_target(target)
    if markdown and latex:
        raise UserError("--markdown and --latex: expected one of them, since both print")
    if columns is not None and not (markdown or latex):
        raise UserError("--columns: expected with --markdown or --latex")
    found = answer(runs, Question(baseline, x, target, accuracy.value, method.value))
    if strict:
        differences.refuse({each.name: each.differs for each in found.schemes})
    if markdown or latex:
        _print_markup(found, columns, latex)
    else:
        _print_tables(found, runs)
    for path in _written(found, csv, parquet, rows):
        if not (markdown or latex):
            show.line(f"numbers: {path}")
    if not (markdown or latex):
        from edgefl.commands.resume import go_on_of  # it takes long, and `edgefl report` needs none

        again = go_on_of(runs[0]) if len(runs) == 1 else ""
        if again:
            show.hint(again)
        else:
            show.hint_about("plot", runs)


def check_target(target: float | None) -> None:
    """Raise UserError unless ``--target`` is an accuracy."""
    if target is not None and not 0 < target <= 1:
        raise UserError(f"--target {target:g}: expected an accuracy up to 1, such as 0.9 for 90 %")


def _print_tables(found: Comparison, runs: list[Path]) -> None:
    from edgefl.results import grid, table

    console = Console()
    console.print(table.table(found.rows, console.width))
    if found.is_more_than_rows:
        show.table(console, table.table_over_seeds(found))
        for note in grid.notes_on_statistics(found):
            show.line(note)
    for note in grid.notes_on_configs(found):
        show.line(note)
    for family in families().values():
        show.table(console, family.table(runs))


def _print_markup(found: Comparison, columns: str | None, latex: bool) -> None:
    """Print nothing but the table, so that it can be sent to a file."""
    from edgefl.results import grid

    keys = [] if columns is None else [key.strip() for key in columns.split(",")]
    chosen = grid.grid(found, keys)
    made_by = shlex.join(["edgefl", *sys.argv[1:]])
    typer.echo(grid.latex(chosen, made_by) if latex else grid.markdown(chosen), nl=False)


def _written(
    found: Comparison, csv: Path | None, parquet: Path | None, rows: RecordsOf
) -> Iterator[Path]:
    """Write the files that are asked for, and yield them."""
    from edgefl.results import compare, comparison

    numbers = (comparison.of_runs if rows is RecordsOf.runs else comparison.of_schemes)(found)
    if csv is not None:
        compare.write_records(numbers, csv)
        yield csv
    if parquet is not None:
        comparison.write_parquet(numbers, parquet)
        yield parquet
