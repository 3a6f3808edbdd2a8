"""``emulator tdma``: rounds, staleness and intentional delay on a TDMA channel.

It uses the closed forms where they exist, and can draw a figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from emulator.commands.options import check_outputs, figures
from emulator.errors import BadValue
from emulator.plain_text import write_file
from emulator.tdma.closed_form import Round, Tdma, simulate

SHOWN_ROUNDS = 6

Devices = Annotated[int, typer.Option("--N", help="Devices.", show_default=False)]
PerRound = Annotated[
    int, typer.Option("--S", help="Devices that upload in a round.", show_default=False)
]
Horizon = Annotated[
    int, typer.Option("--T", help="Slots in which models are counted.", show_default=False)
]
ComputeSlots = Annotated[
    int, typer.Option("--tau-comp", help="Slots that a device computes.", show_default=False)
]
TransferSlots = Annotated[int, typer.Option("--r", help="Slots of a transfer.")]
IntentionalDelay = Annotated[
    str,
    typer.Option(
        help="Intentional delay in rounds: a number, or auto for the longest that loses no slot.",
        metavar="auto|K",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Also write the numbers to this file.", metavar="FILE"),
]
FigureFile = Annotated[
    Path | None,
    typer.Option(help="Draw the timeline to this .png, .pdf or .svg file.", metavar="FILE"),
]


def tdma(
    devices: Devices,
    per_round: PerRound,
    horizon: Horizon,
    compute: ComputeSlots,
    transfer: TransferSlots = 1,
    delay: IntentionalDelay = "0",
    json_file: JsonFile = None,
    figure: FigureFile = None,
) -> None:
    """Show rounds, staleness and intentional delay on a TDMA channel."""
    if figure is not None and figure == json_file:
        raise BadValue(f"--figure {figure}: expected another file than that of --json")
    check_outputs(figure, json=json_file)
    channel = _channel(devices, per_round, transfer, compute, delay)
    facts = numbers(channel, horizon)
    files: dict[Path, bytes] = {}
    if json_file is not None:
        files[json_file] = (json.dumps(facts, indent=2) + "\n").encode()
    if figure is not None:
        files[figure] = figures().timeline(channel, figure.suffix[1:].lower())
    for line in lines(channel, facts):
        typer.echo(line)
    for path, data in files.items():
        write_file(path, data)
    again = (
        f"emulator tdma --N {devices} --S {per_round} --r {transfer} --tau-comp {compute} --T"
        f" {horizon}"
    )
    if not channel.delay and channel.auto_delay:
        typer.echo(f"Next: fresher updates in the same slots: {again} --delay auto")
    elif figure is None:
        typer.echo(f"Next: draw it: {again} --delay {delay} --figure timeline.png")
    else:
        typer.echo(f"Next: open {figure}")


def numbers(channel: Tdma, horizon: int) -> dict[str, object]:
    """The content of the ``--json`` file.

    ``staleness`` is one number, or the list of values that occur in the long run. ``d_star`` is
    null if no delay is possible.
    """
    settled = channel.settled_staleness()
    return {
        "N": channel.devices,
        "S": channel.per_round,
        "r": channel.slots_per_transfer,
        "tau_comp": channel.compute_slots,
        "T": horizon,
        "G": channel.groups,
        "comm_slots": channel.comm_slots,
        "mean_slots_per_round": channel.mean_slots_per_round(),
        "models_by_T": channel.models_by(horizon),
        "staleness": settled[0] if len(settled) == 1 else list(settled),
        "alpha": channel.delay,
        "alpha_auto": channel.auto_delay,
        "d_star": channel.d_star,
    }


def lines(channel: Tdma, facts: dict[str, object]) -> Iterator[str]:
    """The report as text lines, with the first rounds."""
    stale = f"{facts['staleness']} rounds, reached in round {facts['staleness']}"
    if isinstance(facts["staleness"], list):
        stale = (
            f"mixed: {' and '.join(map(str, facts['staleness']))} rounds, as S does not divide N"
        )
    idle = (
        "computing is hidden behind the turns of others"
        if facts["mean_slots_per_round"] == channel.comm_slots
        else "the rest idle: no device is ready"
    )
    unavoidable = (
        "none is possible"
        if channel.d_star is None
        else (
            f"auto: {channel.auto_delay}; no staleness below d* = {channel.d_star} without idle"
            " slots"
        )
    )
    groups = f"{channel.groups} group{'s' if channel.groups > 1 else ''} of {channel.per_round}"
    yield (
        f"{channel.devices} devices in {groups}; {channel.compute_slots} slots to compute,"
        f" {channel.slots_per_transfer} to transfer"
    )
    yield (
        f"slots per round    {facts['mean_slots_per_round']:g} in the long run,"
        f" {channel.comm_slots} of them to communicate ({idle})"
    )
    yield f"intentional delay  {channel.delay} rounds ({unavoidable})"
    yield f"staleness          {stale}"
    yield f"models by slot T   {facts['models_by_T']}, w_0 included, by slot {facts['T']}"
    yield "round  uploads        broadcast      devices (staleness)"
    for done in islice(simulate(channel), SHOWN_ROUNDS):
        yield _row(done)
    yield "..."


def _row(done: Round) -> str:
    shown = [
        f"{upload.device} ({stale})" for upload, stale in zip(done.uploads[:8], done.staleness)
    ]
    more = f", and {len(done.uploads) - 8} more" if len(done.uploads) > 8 else ""
    uploads, broadcast = (
        _span(done.uploads[0].slot, done.broadcast_slot),
        _span(done.broadcast_slot, done.end_slot),
    )
    return f"{done.number:>5}  {uploads:<13}  {broadcast:<13}  {', '.join(shown)}{more}"


def _span(begin: int, end: int) -> str:
    return str(begin) if end - begin == 1 else f"{begin} to {end - 1}"


def _channel(devices: int, per_round: int, transfer: int, compute: int, delay: str) -> Tdma:
    plain = Tdma(devices, per_round, transfer, compute)
    if delay == "auto":
        return Tdma(devices, per_round, transfer, compute, plain.auto_delay)
    if not (delay.isascii() and delay.isdigit() and len(delay) < 10):
        raise BadValue(
            f"--delay {delay!r}: expected auto, or a number of rounds from 0 to {plain.groups - 1}"
        )
    return Tdma(devices, per_round, transfer, compute, int(delay))
