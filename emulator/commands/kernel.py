"""``emulator kernel``: run a program behind a link that the Linux kernel shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.commands import options
from emulator.errors import BadValue

Command = Annotated[
    list[str], typer.Argument(help="The program and its arguments, after --.", metavar="COMMAND")
]
UpRate = Annotated[
    str | None, typer.Option(help="Payload rate from COMMAND to this host, such as 2mbit.")
]
DownRate = Annotated[
    str | None, typer.Option(help="Payload rate from this host to COMMAND, such as 20mbit.")
]
LossText = Annotated[
    str | None,
    typer.Option(help="Share of frames lost in each direction, such as 1% or 0.01."),
]
Shaper = Annotated[str | None, typer.Option(help="htb or tbf. Default: htb if the kernel has it.")]
Seed = Annotated[
    int, typer.Option(help="Seed of jitter and losses that are made in user space.", min=0)
]
LogFile = Annotated[
    Path | None, typer.Option(help="Write the setup and the measurements to this JSON file.")
]

app = typer.Typer(
    help=(
        "Links made by the Linux kernel (tc) in a separate network namespace. Needs root; without"
        " root use emulator proxy."
    ),
    rich_markup_mode=None,
)


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=(
        "Example: emulator kernel run --profile lte -- sh -c 'curl -O"
        " http://$EMULATOR_HOST_ADDRESS:8000/model.bin'"
    ),
)
def run(
    command: Command,
    profile: options.Profile = None,
    up: UpRate = None,
    down: DownRate = None,
    latency: options.Latency = None,
    jitter: options.JitterText = None,
    loss: LossText = None,
    shaper: Shaper = None,
    no_latency: options.NoLatency = False,
    seed: Seed = 0,
    log: LogFile = None,
) -> int:
    """Run COMMAND in a network namespace behind the link, and return its exit status.

    The link is the only connection of the namespace. COMMAND gets the address of this host in
    EMULATOR_HOST_ADDRESS and its own in EMULATOR_OWN_ADDRESS. Servers on this host must listen on
    EMULATOR_HOST_ADDRESS or 0.0.0.0.
    """
    from emulator.lab.programs import run_behind_link
    from emulator.lab.topology import kernel_ways

    link = {"up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    if profile is None and all(value is None for value in link.values()):
        raise BadValue(
            "nothing to emulate: give --profile, or one of --up, --down, --latency, --jitter,"
            " --loss"
        )
    return run_behind_link(
        kernel_ways(profile, **link),
        command,
        shaper=shaper,
        latency=not no_latency,
        seed=seed,
        log=log,
        say=lambda line: typer.echo(f"emulator: {line}", err=True),
    )


@app.command()
def check() -> int:
    """Check what this system has of the things that kernel mode needs.

    Exit status 0: it can shape rates. Exit status 2: it cannot, and the message says why.
    """
    from emulator.lab.attached import examine
    from emulator.lab.system import choose, require_tools
    from emulator.lab.topology import UNSHAPED, KernelWay

    system = examine()
    for line in system.lines():
        typer.echo(line)
    require_tools(system, "kernel mode")
    shaper = choose(system, KernelWay(1_000_000), UNSHAPED).shaper
    typer.echo(f"rates         {shaper}")
    try:
        delay = choose(system, KernelWay(None, 1_000_000), UNSHAPED).delay
        typer.echo(f"latency       {delay}")
    except BadValue as error:
        typer.echo(f"latency       no: {error}")
    typer.echo("Next: emulator kernel run --up 2mbit --down 20mbit --latency 30ms -- COMMAND")
    return 0
