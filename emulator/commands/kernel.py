"""``emulator kernel``: run a program behind a link that the Linux kernel shapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.commands import options
from emulator.errors import BadValue

if TYPE_CHECKING:
    from emulator.kernel.commands import KernelShape

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
    from emulator.kernel import run as kernel

    shape = _shape(
        profile, {"up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    )
    return kernel.run(
        shape,
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
    from emulator.kernel import probe as kernel_check
    from emulator.kernel.commands import KernelShape, KernelWay

    system = kernel_check.examine()
    for line in system.lines():
        typer.echo(line)
    kernel_check.require_tools(system)
    rated = KernelShape(KernelWay(1_000_000), KernelWay())
    delayed = KernelShape(KernelWay(None, 1_000_000), KernelWay())
    typer.echo(f"rates         {kernel_check.choose(system, rated, None).shaper}")
    try:
        typer.echo(f"latency       {kernel_check.choose(system, delayed, None).delay}")
    except BadValue as error:
        typer.echo(f"latency       no: {error}")
    typer.echo("Next: emulator kernel run --up 2mbit --down 20mbit --latency 30ms -- COMMAND")
    return 0


def _shape(profile: str | None, said: dict[str, str | None]) -> KernelShape:
    """Both directions, from a profile with overrides or only from the options."""
    from emulator import profiles
    from emulator.kernel.commands import KernelShape, KernelWay
    from emulator.profiles import LINKS

    if profile is None and all(value is None for value in said.values()):
        raise BadValue(
            "nothing to emulate: give --profile, or one of --up, --down, --latency, --jitter,"
            " --loss"
        )
    # Without a profile, fields that are not given mean "not shaped". Any profile serves to check
    # the texts.
    link = profiles.link_profile(profile or next(iter(LINKS)), **said)
    rest = {
        name: getattr(link, name) if profile or said[key] is not None else 0
        for key, name in _FIELDS.items()
    }
    rates = [
        rate if profile or said[key] is not None else None
        for key, rate in (("up", link.up_bit_s), ("down", link.down_bit_s))
    ]
    up, down = (KernelWay(rate, **rest) for rate in rates)
    return KernelShape(up, down)


_FIELDS = {"latency": "latency_ns", "jitter": "jitter_ns", "loss": "loss"}
