"""``emulator traces``: published recordings of links: list them, get them, look at any trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.capacity.trace import RateStatistics, statistics_of
from emulator.commands.options import check_outputs, figures, rate_text
from emulator.commands.transfer import silent_text
from emulator.errors import BadValue, valid_name
from emulator.plain_text import write_file
from emulator.traces.formats import FORMATS, NATIVE, any_trace
from emulator.traces.published import PUBLISHED, obtain
from emulator.units import NS_PER_S, parse_duration, parse_rate

TracePath = Annotated[
    Path,
    typer.Argument(
        help="A trace: mahimahi, .csv of seconds,bit_s, or a published format.", metavar="FILE"
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Its format: {', '.join([*NATIVE, *FORMATS])}. Default: known by its first line.",
        metavar="FORMAT",
    ),
]
Direction = Annotated[
    str | None, typer.Option(help="up or down, where a file has both.", metavar="WAY")
]
Series = Annotated[
    str | None,
    typer.Option(help="UNIT/TARGET of a file of fcc-webget. Default: the longest one."),
]
Window = Annotated[str, typer.Option(help="Statistics are over windows of this length.")]
OutageRate = Annotated[str, typer.Option("--outage", help="A window below this rate is an outage.")]
FigurePath = Annotated[
    Path | None, typer.Option(help="Draw it to this .png, .pdf or .svg file.", metavar="FILE")
]
CsvPath = Annotated[
    Path | None,
    typer.Option("--csv", help="Write it as a trace for a config.", metavar="FILE.csv"),
]

app = typer.Typer(
    help="Published recordings of mobile and fixed links. None of them is part of the package.",
    rich_markup_mode=None,
)


@app.command("list", epilog="Example: emulator traces list")
def list_traces() -> None:
    """List the published traces, with their licences."""
    typer.echo(f"{'name':<18} {'format':<14} title")
    for name, entry in PUBLISHED.items():
        typer.echo(f"{name:<18} {entry.collection.format_name:<14} {entry.title}")
    typer.echo("\nformat         licence, page, what to cite")
    for collection in dict.fromkeys(entry.collection for entry in PUBLISHED.values()):
        typer.echo(f"{collection.format_name:<14} {collection.licence}; {collection.page}")
        typer.echo(f"{'':<14} {collection.citation}")
        if collection.note:
            typer.echo(f"{'':<14} note: {collection.note}")
    open_names = [
        name for name, entry in PUBLISHED.items() if not all(file.checksum for file in entry.files)
    ]
    typer.echo(
        f"\nwithout a published checksum, so the first get records it: {', '.join(open_names)}"
    )
    typer.echo("Next: get one: emulator traces get verizon-lte-short")


@app.command("get", epilog="Example: emulator traces get starlink-road --from ~/Downloads")
def get_trace(
    name: Annotated[str, typer.Argument(help="A name of emulator traces list.", metavar="NAME")],
    to: Annotated[
        Path, typer.Option(help="Folder for the traces, made if it is missing.", metavar="DIR")
    ] = Path("traces"),
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Take copies of the published files from this folder; download nothing.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Download a published trace, check it, and convert it to files for a config."""
    entry = PUBLISHED[valid_name("published trace", name, PUBLISHED)]
    obtained, checked = obtain(name, entry, to, None if origin is None else origin.expanduser())
    typer.echo(f"{name}: {entry.title}")
    for found in checked:
        agrees = "as expected" if found.compared else "recorded now: the publisher gives none"
        typer.echo(f"checksum  {found.checksum} ({agrees})")
    typer.echo(f"licence   {entry.collection.licence}")
    typer.echo(f"cite      {entry.collection.citation}")
    if entry.collection.note:
        typer.echo(f"note      {entry.collection.note}")
    for one in obtained:
        way = {"up": "uplink", "down": "downlink"}.get(one.direction, "rate")
        typer.echo(f"{way:<9} {one.path}")
        for remark in one.remarks:
            typer.echo(f"{'':<9} {remark}")
    typer.echo(f"Next: look at it: emulator traces show {obtained[-1].path}")


@app.command("show", epilog="Example: emulator traces show drive.csv --figure drive.png")
def show_trace(
    file: TracePath,
    format_name: FormatName = None,
    direction: Direction = None,
    series: Series = None,
    window: Window = "1s",
    outage: OutageRate = "100kbit",
    figure: FigurePath = None,
    csv: CsvPath = None,
) -> None:
    """Show mean, percentiles and outages of a trace; draw it; convert it."""
    if csv is not None and csv.suffix.lower() != ".csv":
        raise BadValue(f"--csv {csv}: expected a name that ends in .csv")
    check_outputs(figure, csv=csv)
    window_ns, outage_bit_s = parse_duration(window), parse_rate(outage)
    if window_ns == 0:
        raise BadValue(f"--window {window}: expected more than 0")
    trace, recording = any_trace(file, format_name, direction, series)
    if csv is not None and recording is None:
        raise BadValue(f"--csv {csv}: {file} is a trace for a config as it is")
    numbers = statistics_of(trace, window_ns, outage_bit_s)
    typer.echo(f"{trace.name} {trace.repeats}")
    for remark in recording.remarks if recording else ():
        typer.echo(f"note        {remark}")
    for line in _lines(numbers):
        typer.echo(line)
    typer.echo(f"silent      {silent_text(trace)}")
    if csv is not None and recording is not None:
        write_file(csv, recording.csv().encode())
        typer.echo(f"written     {csv}")
    if figure is not None:
        drawn = figures().rate_figure(numbers, file.name, figure.suffix[1:].lower())
        write_file(figure, drawn)
        typer.echo(f"Next: open {figure}")
    elif recording is not None and csv is None:
        typer.echo(f"Next: a trace for a config: emulator traces show {file} --csv {file.stem}.csv")
    else:
        typer.echo(f"Next: a transfer along it: emulator transfer 1MB --trace {csv or file}")


def _lines(numbers: RateStatistics) -> list[str]:
    percentiles = "  ".join(f"p{each} {_rate(rate)}" for each, rate in numbers.percentiles.items())
    seconds = numbers.window_ns / NS_PER_S
    outages = (
        f"{100 * numbers.outage_share:.3g} % of windows below {_rate(numbers.outage_bit_s)}, the"
        f" longest {numbers.longest_outage_ns / NS_PER_S:.10g} s"
        if numbers.outage_share
        else f"no window below {_rate(numbers.outage_bit_s)}"
    )
    return [
        f"mean rate   {_rate(numbers.mean_bit_s)}",
        f"windows     {len(numbers.rates_bit_s)} of {seconds:.10g} s: {percentiles}",
        f"outage      {outages}",
    ]


def _rate(rate_bit_s: float) -> str:
    return rate_text(round(float(f"{rate_bit_s:.4g}")))
