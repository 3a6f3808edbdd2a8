"""``edgefl replay``, and the argument of the commands that take run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]


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
    show.hint_about("compare", [run])
