"""``edgefl hosts``: the hosts of an inventory."""

from __future__ import annotations

import typer

from edgefl.commands import hosts_check, hosts_install

app = typer.Typer(no_args_is_help=True, help="The hosts of an inventory: what they are and need.")


@app.callback()
def hosts() -> None:
    """The hosts of an inventory: what they are and need."""


app.command()(hosts_check.check)
app.command()(hosts_install.install)
app.command()(hosts_install.wheels)
