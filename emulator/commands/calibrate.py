"""``emulator calibrate``: time this host, and show which devices it can emulate in time."""

from __future__ import annotations

import json
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Report:
    """The timed workload, its times, and the host."""

    command: str | None  # None: the built-in step
    timing: Timing
    load: float  # load average of the last minute
    host: dict[str, object]

    @property
    def cores(self) -> int:
        return int(str(self.host["cores"]))

    @property
    def playable(self) -> Playable:
        return Playable.on(self.timing, self.cores)


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
    report = Report(command, timing, load, host_facts())
    for line in lines(report):
        typer.echo(line)
    if json_file is not None:
        _write(json_file, report)
    typer.echo("Next: the named devices and the sources of their speeds: emulator profiles")


def lines(report: Report) -> list[str]:
    """The report as text lines."""
    timing, playable = report.timing, report.playable
    said = [
        f"timed    {REFERENCE_STEP if report.command is None else report.command},"
        f" {len(timing.times_ns)} times"
    ]
    for name, ns in (("median", timing.median_ns), ("p90", timing.p90_ns)):
        said.append(f"{name:<8} {ns / 1e6:.3f} ms, {_plain(timing.samples_per_s(ns))} samples/s")
    kept = (
        "one of them reserved for the network"
        if report.cores > 1
        else "shared with the network: expect overruns"
    )
    said.append(
        f"host     {report.cores} core{'s' * (report.cores > 1)}, {kept};"
        f" {report.host['cpu_model']}"
    )
    if report.load >= BUSY_LOAD:
        said.append(
            f"busy     other programs were running (load {report.load:.1f}); an idle host may be"
            " faster"
        )
    slower = playable.samples_per_s / 10
    said.append(
        f"emulates {playable.devices} of {_plain(playable.samples_per_s)} samples/s at once, or"
        f" {playable.at_a_time(slower)} of {_plain(slower)}: the total speed of the devices that"
        " train at once must not be higher"
    )
    if report.command is None:
        said.append(
            "         at once "
            + ", ".join(f"{count} {name}" for name, count in playable.profiles().items())
        )
    said.append(
        "to paste into a config (the fastest device; use less if more of them train at once):"
    )
    return [*said, f"samples_per_s = {_plain(playable.samples_per_s)}"]


def _plain(number: float) -> str:
    """Format without an exponent, so that it can be pasted into a config."""
    return (
        f"{number:.0f}"
        if number >= 100
        else f"{number:.10f}".rstrip("0").rstrip(".")
        if number < 1e-3
        else f"{number:.3g}"
    )


def _write(path: Path, report: Report) -> None:
    timing, playable = report.timing, report.playable
    content = {
        "command": report.command,
        "step": REFERENCE_STEP if report.command is None else None,
        "repeat": len(timing.times_ns),
        "samples": timing.samples,
        "median_ns": timing.median_ns,
        "p90_ns": timing.p90_ns,
        "samples_per_s_median": timing.samples_per_s(timing.median_ns),
        "samples_per_s_p90": timing.samples_per_s(timing.p90_ns),
        "plays_samples_per_s": playable.samples_per_s,
        "plays_devices": playable.devices,
        "load": report.load,
        "host": report.host,
    }
    write_file(path, (json.dumps(content, indent=2) + "\n").encode(), f"--json {path}")
