"""``emulator calibrate``: time this host, and show which devices it can emulate in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import psutil
import typer

from emulator.calibrate import (
    COMMAND_REPEAT,
    STEP_REPEAT,
    Playable,
    Timing,
    time_command,
    time_step,
)
from emulator.commands.options import check_outputs
from emulator.errors import BadValue
from emulator.host import host_facts
from emulator.plain_text import write_file
from emulator.profiles import REFERENCE_STEP

BUSY_LOAD = 0.5  # from this load on, the host is busy: half a core is in use


def calibrate(
    command: Annotated[
        str | None, typer.Option(help="Time this program. Default: a built-in torch step.")
    ] = None,
    samples: Annotated[
        float | None, typer.Option(help="Samples that one run of the command processes (1).")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            help=(
                f"Number of timed runs. Default: {COMMAND_REPEAT} of a command, {STEP_REPEAT} of"
                " the step."
            )
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers to this file.")
    ] = None,
) -> None:
    """Time a program or a training step, to find how fast an emulated device can be here."""
    if samples is not None and command is None:
        raise BadValue(
            f"--samples {samples:g}: expected only with --command; the built-in step has its own"
        )
    check_outputs(None, json=json_file)
    load = psutil.getloadavg()[0]
    if command is None:
        timing = time_step(STEP_REPEAT if repeat is None else repeat)
    else:
        timing = time_command(
            command,
            1.0 if samples is None else samples,
            COMMAND_REPEAT if repeat is None else repeat,
        )
    host = host_facts()
    for line in lines(command, timing, load, host):
        typer.echo(line)
    if json_file is not None:
        playable = Playable.on(timing, int(str(host["cores"])))
        content = {
            "command": command,
            "step": REFERENCE_STEP if command is None else None,
            "repeat": len(timing.times_ns),
            "samples": timing.samples,
            "median_ns": timing.median_ns,
            "p90_ns": timing.p90_ns,
            "samples_per_s_median": timing.samples_per_s(timing.median_ns),
            "samples_per_s_p90": timing.samples_per_s(timing.p90_ns),
            "plays_samples_per_s": playable.samples_per_s,
            "plays_devices": playable.devices,
            "load": load,
            "host": host,
        }
        data = (json.dumps(content, indent=2) + "\n").encode()
        write_file(json_file, data, f"--json {json_file}")
    typer.echo("Next: the named devices and the sources of their speeds: emulator profiles")


def lines(command: str | None, timing: Timing, load: float, host: dict[str, object]) -> list[str]:
    """The report as text lines; ``load``: the load average of the last minute."""
    cores = int(str(host["cores"]))
    playable = Playable.on(timing, cores)
    report = [f"timed    {command or REFERENCE_STEP}, {len(timing.times_ns)} times"]
    for name, ns in (("median", timing.median_ns), ("p90", timing.p90_ns)):
        report.append(f"{name:<8} {ns / 1e6:.3f} ms, {_plain(timing.samples_per_s(ns))} samples/s")
    kept = (
        "one of them reserved for the network"
        if cores > 1
        else "shared with the network: expect overruns"
    )
    report.append(f"host     {cores} core{'s' * (cores > 1)}, {kept}; {host['cpu_model']}")
    if load >= BUSY_LOAD:
        report.append(
            f"busy     other programs were running (load {load:.1f}); an idle host may be faster"
        )
    slower = playable.samples_per_s / 10
    report.append(
        f"emulates {playable.devices} of {_plain(playable.samples_per_s)} samples/s at once, or"
        f" {playable.at_a_time(slower)} of {_plain(slower)}: the total speed of the devices that"
        " train at once must not be higher"
    )
    if command is None:
        report.append(
            "         at once "
            + ", ".join(f"{count} {name}" for name, count in playable.profiles().items())
        )
    report.append(
        "to paste into a config (the fastest device; use less if more of them train at once):"
    )
    return [*report, f"samples_per_s = {_plain(playable.samples_per_s)}"]


def _plain(number: float) -> str:
    """Format without an exponent, so that it can be pasted into a config."""
    return (
        f"{number:.0f}"
        if number >= 100
        else f"{number:.10f}".rstrip("0").rstrip(".")
        if number < 1e-3
        else f"{number:.3g}"
    )
