"""``edgefl plot``, ``edgefl replay``: the results in run directories."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.errors import UserError, needs
from edgefl.reports.registry import families

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]


FAMILIES = families().values()
Figure = Enum(  # type: ignore[misc]  # its members are found in a folder
    "Figure",
    {kind: kind for kind in ("accuracy", *(kind for each in FAMILIES for kind in each.KINDS))},
    type=str,
)
ACCURACY = Figure("accuracy")
KINDS = "; ".join(f"{', '.join(each.KINDS)}: of {each.OF}" for each in FAMILIES if each.KINDS)


def plot(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.png",
            help="The figure; a PDF is written next to it.",
            show_default="KIND.png",
        ),
    ] = None,
    kind: Annotated[Figure, typer.Option(help=KINDS)] = ACCURACY,
) -> None:
    """Draw accuracy over emulated time and over bytes sent, or another figure."""
    family = next((each for each in FAMILIES if kind.value in each.KINDS), None)
    with needs("lab", "a figure"):
        from edgefl.results import plots

        draw = plots.accuracy if family is None else family.figures()[kind.value]
    paths = draw(runs, show.png(out or Path(f"{kind.value}.png")))
    if not paths and family is not None:
        raise UserError(f"{runs[0]}: nothing to draw; --kind {kind.value} is for {family.OF}")
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
    """Replay a recorded run with a fresh strategy: are decisions and weights bit-equal?

    Reports the first difference, if any.
    """
    from edgefl.hosts.setup.replay_run import replay_run

    result = replay_run(run, show.line)
    show.line(
        f"{run}: {result.events} events, the same decisions, {result.version} versions, bit-equal"
        " weights"
    )
    show.hint(f"edgefl compare {run}")
