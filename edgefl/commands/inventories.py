"""The INVENTORY argument, and the option about host keys, of commands that use hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

InventoryPath = Annotated[
    Path, typer.Argument(metavar="INVENTORY", help="The hosts (TOML): docs/how-to/several-machines")
]
AcceptKeys = Annotated[
    bool,
    typer.Option("--accept-new-host-keys", help="Accept the ssh keys of hosts not known yet."),
]
