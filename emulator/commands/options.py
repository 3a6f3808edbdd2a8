"""The options that ``emulator proxy`` and ``emulator kernel run`` share."""

from __future__ import annotations

from typing import Annotated

import typer

Profile = Annotated[
    str | None,
    typer.Option(
        help="A named link, see emulator profiles; the options below override its fields."
    ),
]
Latency = Annotated[str | None, typer.Option(help="Delay in each direction, such as 30ms.")]
