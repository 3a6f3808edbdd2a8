"""The commands that look at runs: compare, plot, replay."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from edgefl.commands import completion, show
from edgefl.commands.options import OverwriteFiles, Runs, kept_aside
from edgefl.errors import UserError, nearest
from edgefl.results.families import families
from edgefl.results.figures.base import FORMATS, WIDTHS, Limits, PlotStyle, refused_limits

if TYPE_CHECKING:
    from edgefl.results.compare import Comparison

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


Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Show differences, speed-ups and paired tests against this strategy or run, too.",
        autocompletion=completion.schemes,
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
Effect = Annotated[
    float | None,
    typer.Option(
        metavar="ACCURACY",
        help="The smallest difference that matters, such as 0.01: how many seeds detect it?",
        show_default="the observed one",
        rich_help_panel=ANSWER,
    ),
]
Age = Annotated[
    bool,
    typer.Option(
        "--age",
        help="Show the age of the models on the edges and of merged updates, too.",
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
        help="Only these columns, such as final,to_target,up; a wrong name shows the nearest.",
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
    effect: Effect = None,
    age: Age = False,
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
    from edgefl.results.age import QUANTITIES
    from edgefl.results.compare import Question, answer, with_ages
    from edgefl.results.figures.base import open_runs

    if markdown and latex:
        raise UserError("--markdown and --latex: expected one of them, since both print")
    found = answer(runs, Question(baseline, x, target, accuracy.value, method.value, effect))
    if strict:
        differences.refuse({each.name: each.differs for each in found.strategies})
    keys = [] if columns is None else [key.strip() for key in columns.split(",")]
    if age or not {*keys}.isdisjoint(QUANTITIES):
        found = with_ages(found, open_runs(runs))
    if markdown or latex:
        _print_markup(found, keys, latex)
    else:
        _print_tables(found, runs, keys)
    for path in _written(found, csv, parquet, rows):
        if not (markdown or latex):
            show.line(f"numbers: {path}")
    if not (markdown or latex):
        # importing it takes long, and `edgefl report` needs none
        from edgefl.commands.running import go_on_of

        again = go_on_of(runs[0]) if len(runs) == 1 else ""
        if again:
            show.hint(again)
        else:
            show.hint_about("plot", runs)


def _print_tables(found: Comparison, runs: list[Path], keys: Sequence[str]) -> None:
    from edgefl.results import tables

    console = Console()
    if keys:
        grid = tables.grid(found, keys)
        console.print(tables.chosen(grid))
        for note in grid.notes:
            show.line(note)
        return
    of_families = (family.table(runs) for family in families().values())
    for each in tables.printed(found, console.width, of_families):
        console.print(each, soft_wrap=isinstance(each, Text))


def _print_markup(found: Comparison, keys: Sequence[str], latex: bool) -> None:
    """Print nothing but the table, so that it can be sent to a file."""
    from edgefl.results import tables

    chosen = tables.grid(found, keys)
    made_by = shlex.join(["edgefl", *sys.argv[1:]])
    typer.echo(tables.latex(chosen, made_by) if latex else tables.markdown(chosen), nl=False)


def _written(
    found: Comparison, csv: Path | None, parquet: Path | None, rows: RecordsOf
) -> Iterator[Path]:
    """Write the files that are asked for, and yield them."""
    from edgefl.results import compare as compare_runs
    from edgefl.results.typed_tables import of_records, write_parquet

    numbers = (compare_runs.of_runs if rows is RecordsOf.runs else compare_runs.of_strategies)(
        found
    )
    if csv is not None:
        compare_runs.write_records(numbers, csv)
        yield csv
    if parquet is not None:
        write_parquet(of_records(numbers), parquet, "--parquet")
        yield parquet


BOTH = {"yx": "xy", "x,y": "xy", "y,x": "xy"}  # of --log

Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The figure: .svg, .pdf, or .png with a PDF next to it.",
        show_default="KIND.png",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="png|pdf|svg", help="In place of --out's; several: png,svg."),
]
Width = Annotated[
    str,
    typer.Option(
        metavar="column|page",
        help=f"For print: {WIDTHS['column']} or {WIDTHS['page']} inches; fonts stay 8 points.",
        show_default="the figure's own",
    ),
]
Title = Annotated[str, typer.Option(metavar="TEXT", help="A title above the figure.")]
Numbers = Annotated[
    Path | None,
    typer.Option("--data", metavar="FILE.csv", help="Also write the numbers behind the figure."),
]


RunsOrNone = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]
Kind = Annotated[
    str,
    typer.Option(metavar="KIND", help="One of --list.", autocompletion=completion.kinds),
]
Listing = Annotated[
    bool, typer.Option("--list", help="List the kinds of figures, and which the runs have.")
]
PlotX = Annotated[
    str,
    typer.Option(
        "--x", help="emulated_s, version, round, bytes, joules or wall_s.", show_default="own"
    ),
]
XLimits = Annotated[
    str, typer.Option(metavar="LOW,HIGH", help="In the axis' unit; one may be empty: 10,")
]
YLimits = Annotated[str, typer.Option(metavar="LOW,HIGH", help="The same for the y axis.")]
Log = Annotated[str, typer.Option(metavar="x|y|xy", help="Logarithmic axes.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TEXT", help="Another text for a strategy, or for the axis x or y."),
]
PlotTarget = Annotated[
    float | None,
    typer.Option(metavar="ACCURACY", help="In place of the runs' target."),
]


def plot(
    runs: RunsOrNone = None,
    out: Out = None,
    kind: Kind = "accuracy",
    listing: Listing = False,
    formats: Formats = None,
    width: Width = "",
    x: PlotX = "",
    xlim: XLimits = "",
    ylim: YLimits = "",
    log: Log = "",
    title: Title = "",
    label: Labels = None,
    target: PlotTarget = None,
    data: Numbers = None,
    overwrite: OverwriteFiles = False,
) -> None:
    """Draw accuracy over emulated time and over bytes sent, or another figure of --list."""
    from edgefl.results.figures import gallery

    if listing:
        return _list(runs or [])
    if not runs:
        raise UserError("plot: expected DIR, the directory of an experiment or of a run")
    style = PlotStyle(
        width=width,
        x=x,
        xlim=limits("--xlim", xlim),
        ylim=limits("--ylim", ylim),
        log=BOTH.get(log, log),
        title=title,
        target=target,
        labels=_labels(label or ()),
    )
    gallery.find(kind)
    out, forms = files(out or Path(f"{kind}.png"), formats)
    with (
        warnings.catch_warnings(record=True) as caught,
        kept_aside(written(out, forms, data), overwrite),
    ):
        paths = gallery.write(kind, runs, out, style, forms, data)
    for text in dict.fromkeys(str(each.message) for each in caught):
        show.warning(text)
    for path in paths:
        show.line(str(path))
    show.hint_about("view", runs)


def files(out: Path, formats: Sequence[str] | None) -> tuple[Path, tuple[str, ...]]:
    """Return the figure's path without a suffix, and its formats; UserError for unknown ones."""
    own = out.suffix.removeprefix(".")
    wanted = [form.strip() for each in formats or () for form in each.split(",")]
    for form in wanted:
        if form not in FORMATS:
            expected = f"expected {', '.join(FORMATS)}"
            raise UserError(f"--format {form}: {expected}{nearest(form, FORMATS)}")
    if out.is_dir() or (own not in FORMATS and not wanted):
        raise UserError(f"--out {out}: expected a file that ends in .png, .pdf or .svg")
    plain = out.with_suffix("") if own in FORMATS else out
    return plain, tuple(wanted) or (("png", "pdf") if own == "png" else (own,))


def written(out: Path, forms: Sequence[str], numbers: Path | None) -> list[Path]:
    """Return the files of a figure: one for each format, and that of its numbers."""
    figures = [out.with_name(f"{out.name}.{form}") for form in forms]
    return figures if numbers is None else [*figures, numbers]


def limits(option: str, text: str) -> Limits | None:
    """Return the limits of an axis; None if there are none."""
    if not text:
        return None
    try:
        low, high = (float(part) if part.strip() else None for part in text.split(","))
    except ValueError:
        raise refused_limits(option, text) from None
    return low, high


def _labels(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in texts:
        name, equals, text = each.partition("=")
        if not (name and equals):
            raise UserError(f"--label {each}: expected NAME=TEXT, such as fedavg='FedAvg, ours'")
        found[name] = text
    return found


def _list(directories: Sequence[Path]) -> None:
    """Print the kinds of figures; with runs, which they have and why not the others."""
    from edgefl.results.figures import gallery
    from edgefl.results.figures.base import open_runs

    plots = gallery.plots()
    if not directories:
        show.rows([(kind, plot.about) for kind, plot in plots.items()])
        return show.hint("edgefl plot DIR --list, for the figures that runs have")
    missing = gallery.missing(open_runs(directories))
    there = [kind for kind, reason in missing.items() if not reason]
    show.rows([(kind, plots[kind].about) for kind in there])
    if len(there) < len(missing):
        show.line("")
        show.line("not of these runs:")
        show.rows([(kind, reason) for kind, reason in missing.items() if reason])
    shown = " ".join(map(str, directories))
    example = there[-1] if there else "accuracy"
    return show.hint(f"edgefl plot {shown} --kind {example} --width column")


def replay(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A strategy's run directory, recorded with record.payloads=true."
        ),
    ],
) -> None:
    """Replay a recorded run with a fresh strategy: are decisions and weights bit-equal?

    Reports the first difference, if any.
    """
    from edgefl.clocks.setup.rundir import replay_run

    result = replay_run(run, show.line)
    show.line(
        f"{run}: {result.events} events, the same decisions, {result.version} versions, bit-equal"
        " weights"
    )
    show.hint_about("compare", [run])
