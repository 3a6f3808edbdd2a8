"""``emulator lab``: a network of hosts that do not exist, in network namespaces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.commands.options import NoLatency
from emulator.errors import BadValue, valid_name

if TYPE_CHECKING:
    from emulator.lab.attached import AttachedLab

TopologyFile = Annotated[
    Path, typer.Argument(help="A TOML file of hosts, bridges and links.", metavar="TOPOLOGY")
]
Command = Annotated[
    list[str] | None,
    typer.Argument(help="A program and its arguments, after --.", metavar="COMMAND"),
]
LabName = Annotated[
    str | None,
    typer.Option("--lab", help="The lab. Default: $EMULATOR_LAB, or the only one that runs."),
]
NewName = Annotated[
    str | None, typer.Option("--name", help="Name of the lab. Default: that of the topology.")
]
OnHost = Annotated[
    str | None,
    typer.Option("--on", help="Run COMMAND on this host. Default: on this machine itself."),
]
LogFile = Annotated[
    Path | None, typer.Option(help="Write links, background traffic and lateness to this file.")
]
Detached = Annotated[bool, typer.Option("--detached", hidden=True)]
HostName = Annotated[str, typer.Argument(help="A host of the lab.", metavar="HOST")]
LinkName = Annotated[
    str,
    typer.Argument(help="A link, a bridge with a rate, or a host with one link.", metavar="LINK"),
]
Action = Annotated[str, typer.Argument(help="cut, down, restore or set.", metavar="ACTION")]
Values = Annotated[
    list[str] | None,
    typer.Argument(help="For set: up, down, rate, latency, jitter or loss.", metavar="KEY=VALUE"),
]
OldName = Annotated[
    str | None, typer.Argument(help="The lab. Default: $EMULATOR_LAB, or the only one that runs.")
]
_AS_GIVEN = {"allow_interspersed_args": False}

app = typer.Typer(
    help=(
        "A network of hosts in network namespaces on this machine, with links shaped by the kernel."
        " Needs root."
    ),
    rich_markup_mode=None,
)


@app.command(
    context_settings=_AS_GIVEN,
    epilog="Example: emulator lab run cells.toml -- edgefl launch inventory.toml quickstart.toml",
)
def run(
    topology: TopologyFile,
    command: Command = None,
    name: NewName = None,
    on: OnHost = None,
    no_latency: NoLatency = False,
    log: LogFile = None,
    detached: Detached = False,
) -> int:
    """Make the lab, run COMMAND, remove the lab, and return COMMAND's exit status.

    COMMAND gets the lab's name in EMULATOR_LAB. Without COMMAND the lab stays until Ctrl-C. What a
    killed run has left, the next call of emulator lab removes.
    """
    from emulator.lab.programs import run_lab

    return run_lab(
        topology,
        _program(command),
        name=name,
        on=on,
        latency=not no_latency,
        log=log,
        say=_say,
        detached=detached,
    )


@app.command(epilog="Example: emulator lab up cells.toml")
def up(topology: TopologyFile, name: NewName = None, no_latency: NoLatency = False) -> int:
    """Make a lab that stays in the background until emulator lab down."""
    from emulator.lab.programs import start_detached

    options = [*(["--name", name] if name else []), *(["--no-latency"] if no_latency else [])]
    lab = start_detached(topology, options, _say)
    typer.echo(f"lab {lab} is running")
    typer.echo(f"Next: emulator lab exec HOST -- COMMAND; emulator lab down {lab}")
    return 0


@app.command(epilog="Example: emulator lab down cells")
def down(lab: OldName = None) -> int:
    """End a lab, whether emulator lab up or run started it, and remove it."""
    from emulator.lab.programs import end_lab

    typer.echo(f"lab {end_lab(lab)} has ended")
    return 0


@app.command(
    "exec",
    context_settings=_AS_GIVEN,
    epilog="Example: emulator lab exec edge-1 -- ping -c 3 server",
)
def exec_(host: HostName, command: Command = None, lab: LabName = None) -> int:
    """Run COMMAND on a host of a running lab, and return its exit status."""
    from emulator.lab.programs import program

    machine = _attached(lab).host(host)
    argv = machine.argv(program(_program(command)))
    os.execvpe(argv[0], argv, machine.environment())


@app.command(
    context_settings=_AS_GIVEN,
    epilog=(
        "Examples: emulator lab link edge-1 cut; emulator lab link edge-1 restore; emulator lab"
        " link edge-1 set up=1mbit latency=80ms"
    ),
)
def link(link: LinkName, action: Action, values: Values = None, lab: LabName = None) -> int:
    """Cut, switch off, restore or change a link while the lab runs.

    cut: frames are lost, as with a cut cable, and interfaces stay up. down: interfaces go down, and
    programs get errors. restore: undo both. set: change rates and delays.
    """
    connection = _attached(lab).link(link)
    valid_name("action", action, ["cut", "down", "restore", "set"])
    if action == "set":
        connection.set(**_pairs(values or []))
    elif values:
        raise BadValue(f"{action} {' '.join(values)}: {action} takes no values")
    else:
        {"cut": connection.cut, "down": connection.down, "restore": connection.restore}[action]()
    typer.echo(str(connection))
    return 0


@app.command("list", epilog="Example: emulator lab list")
def list_() -> int:
    """List the running labs with their hosts, links and background traffic."""
    from emulator.lab.attached import running_labs

    _require()
    labs = running_labs()
    for lab in labs:
        typer.echo(str(lab))
    if not labs:
        typer.echo("no lab is running")
    return 0


def _say(line: str) -> None:
    typer.echo(f"emulator: {line}", err=True)


def _require() -> None:
    from emulator.lab.system import require_tools, tools

    require_tools(tools())


def _attached(name: str | None) -> AttachedLab:
    from emulator.lab.attached import attach

    _require()
    return attach(name)


def _program(words: list[str] | None) -> list[str]:
    """The words of COMMAND without the -- in front."""
    words = list(words or [])
    return words[1:] if words[:1] == ["--"] else words


def _pairs(values: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or key in pairs:
            raise BadValue(f"set {text!r}: expected KEY=VALUE once, such as up=2mbit")
        pairs[key] = value
    return pairs
