"""``edgefl profile``: from a run on real links and devices to one that emulates them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgefl.commands import show
from edgefl.errors import listed, printable
from edgefl.plugins.profile import repeat
from edgefl.plugins.profile.repeat import Match, NativeProfile
from edgefl.results.tables import plain_table

REST_SHARE = 0.05  # of a task's time; more is worth a warning
UNEVEN = 2.0  # 95th over 5th percentile of a device's speed; more is worth a warning
MOST_NAMED = 6  # edges in a line

NativeRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Directory of a run with native links or devices, or of its experiment.",
    ),
]
RepeatOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Directory to write to.", show_default="NAME-repeat"),
]

Matched = Annotated[
    Match,
    typer.Option(
        "--match",
        help="What the rates reproduce. time: the whole time of a transfer of the same size, with"
        " round trips of the protocol and work of the programs. rate: the goodput on the wire.",
    ),
]


def profile(run: NativeRun, out: RepeatOut = None, match: Matched = Match.time) -> None:
    """Turn what a run measured of real links and devices into a config that emulates them.

    The config repeats the same experiment on one machine, on either clock.
    """
    from edgefl.clocks.setup.network import devices

    found = repeat.read(run)
    made = devices(found.experiment)
    paths = repeat.write(found, out or Path(found.experiment.name), match, made)
    console = Console()
    console.print(native_table(found))
    for warning in native_warnings(found, match):
        show.warning(warning)
    traces = len(paths) - 1
    also = f" and {traces} trace{'s' * (traces > 1)}" if traces else ""
    show.line(f"wrote {paths[0]}{also}")
    show.hint(f"edgefl run {shlex.quote(str(paths[0]))} --clock virtual")


def native_table(found: NativeProfile) -> Table:
    """Return a line for each edge with a native link or device."""
    shown = plain_table()
    shown.add_column("edge\n", overflow="fold")
    for heading in (
        "up\nMbit/s",
        "down\nMbit/s",
        "latency\nms",
        "jitter\nms",
        "samples\n/s",
        "other time\n% of a task",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for edge in found.experiment.edges.ids():
        link, device = found.links.get(edge), found.devices.get(edge)
        if link is None and device is None:
            continue
        cells = ["-"] * 6
        if link is not None:
            for at, way in enumerate(("up", "down")):
                rate = link.rates[way]
                cells[at] = f"{rate.bit_s / 1e6:.3g}" + " trace" * bool(rate.trace)
            cells[2] = f"{1e3 * link.latency_s:.2f}"
            cells[3] = f"{1e3 * link.jitter_s:.2f}" if link.jitter_s else "-"
            cells[5] = "-" if link.rest.share is None else f"{100 * link.rest.share:.1f}"
        if device is not None:
            cells[4] = f"{device.samples_per_s:.4g}"
        shown.add_row(Text(printable(edge)), *cells)
    return shown


def native_warnings(found: NativeProfile, match: Match) -> list[str]:
    """Say where rate, latency and speed cannot hold what was measured."""
    uneven = [
        f"{edge} ({device.p5:.4g} to {device.p95:.4g} samples/s)"
        for edge, device in found.devices.items()
        if device.p95 > UNEVEN * device.p5
    ]
    far = [
        f"{edge} {100 * link.rest.share:.0f} %"
        for edge, link in found.links.items()
        if match is Match.rate and link.rest.share is not None and link.rest.share > REST_SHARE
    ]
    said = []
    if uneven:
        said.append(
            "the speed of devices varied, which one number cannot hold:"
            f" {listed(uneven, MOST_NAMED)}; [devices.throttling] or [devices.bursts] may describe"
            " it"
        )
    if far:
        said.append(
            f"a part of each task is in neither rate nor latency: {listed(far, MOST_NAMED)}; the"
            " repeated run will be that much faster; --match time puts it into the rates"
        )
    return said
