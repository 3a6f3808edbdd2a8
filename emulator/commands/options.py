"""The options that ``emulator proxy`` and ``emulator kernel run`` share."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

Profile = Annotated[
    Optional[str],
    typer.Option(
        help="A named link, see emulator profiles; the options below override its fields."
    ),
]
Latency = Annotated[Optional[str], typer.Option(help="Delay in each direction, such as 30ms.")]
