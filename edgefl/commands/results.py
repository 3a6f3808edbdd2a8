"""``edgefl compare``, ``edgefl plot``, ``edgefl replay``: what run directories have to tell."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from edgefl.commands import aggregation, dissemination, show
from edgefl.errors import UserError

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...", help="Run directories, or the experiment's directory above them."
    ),
]


def compare(runs: Runs) -> None:
    """Compare runs, finished or not, in a table."""
    from edgefl.results import compare as results
    from edgefl.results.table import table

    rows = results.load(*runs)
    if not rows:
        raise UserError(
            f"{runs[0]}: no run directory here (expected one with events.jsonl, or a directory of"
            " such)"
        )
    console = Console()
    console.print(table(rows, console.width))
    dissemination.tell(console, runs)
    aggregation.tell(console, runs)
    show.hint(f"edgefl plot {' '.join(map(str, runs))}")


class Figure(str, Enum):
    accuracy = "accuracy"
    timeline = "timeline"
    staleness = "staleness"
    loss = "loss"
    runtimes = "runtimes"
    controls = "controls"
    aggregation = "aggregation"
    distillation = "distillation"


KINDS = (
    "Of slotted schemes: timeline, staleness, loss. Of fedasmu: controls, of wkafl: aggregation, of"
    " fedecho: distillation."
)
OF = {  # whose runs have such a figure; those of the slots say it themselves
    "controls": "fedasmu, fedssmu and their ablations",
    "aggregation": "wkafl and what it is compared with",
    "distillation": "strategies that distil, as fedecho does",
}


def plot(
    runs: Runs,
    out: Annotated[
        Optional[Path],
        typer.Option(
            "--out",
            metavar="FILE.png",
            help="The figure; a PDF goes beside it.",
            show_default="KIND.png",
        ),
    ] = None,
    kind: Annotated[Figure, typer.Option(help=KINDS)] = Figure.accuracy,
) -> None:
    """Draw accuracy over emulated time and over bytes sent, or another figure."""
    from edgefl.reports.aggregation import figures as aggregation_plot
    from edgefl.reports.by_label import figures as runtime_plot
    from edgefl.reports.dissemination import figures as controls_plot
    from edgefl.reports.distillation import figures as distillation_plot
    from edgefl.reports.slots import figures as slots_plot
    from edgefl.results import plots

    draw = {
        "accuracy": plots.accuracy,
        "timeline": slots_plot.timeline,
        "staleness": slots_plot.staleness,
        "loss": slots_plot.loss,
        "runtimes": runtime_plot.runtimes,
        "controls": controls_plot.controls,
        "aggregation": aggregation_plot.aggregation,
        "distillation": distillation_plot.distillation,
    }[kind.value]
    paths = draw(runs, show.png(out or Path(f"{kind.value}.png")))
    if not paths:
        raise UserError(f"{runs[0]}: nothing to draw; --kind {kind.value} is of {OF[kind.value]}")
    for path in paths:
        show.line(str(path))
    show.hint(f"edgefl compare {' '.join(map(str, runs))}")


def replay(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A strategy's run directory, recorded with record.payloads=true."
        ),
    ],
) -> None:
    """Give a recorded run to a fresh strategy: same decisions, bit-equal weights, or say where
    they part.
    """
    from edgefl.hosts.setup.replay_run import replay_run

    result = replay_run(run)
    show.line(
        f"{run}: {result.events} events, the same decisions, {result.version} versions, bit-equal"
        " weights"
    )
    show.hint(f"edgefl compare {run}")
