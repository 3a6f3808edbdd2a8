"""``emulator profiles``: named links, devices and radios, with the source of every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from emulator import profiles as named
from emulator.commands.options import rate_text
from emulator.energy.power import (
    DEVICE_POWER,
    NEEDED_OF_RADIO,
    POWER_SOURCES,
    RADIOS,
    DevicePower,
    RadioPower,
    device_power,
    radio_power,
)
from emulator.errors import valid_name
from emulator.profiles import DEVICES, LINKS, REFERENCE_STEP, SOURCES, ProfileFigure


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one, with the source of every number.", metavar="NAME"),
    ] = None,
) -> None:
    """List the named links, devices and radios, and the sources of their numbers."""
    if name is None:
        _list()
        return
    known = valid_name("profile", name, {**LINKS, **DEVICES, **DEVICE_POWER, **RADIOS})
    typer.echo(name)
    if known in LINKS:
        _show(LINKS[name], SOURCES, _link_lines(named.link_profile(name)))
    if known in DEVICES:
        speed = f"samples_per_s = {named.device_profile(name).samples_per_s:g}"
        _show({"samples_per_s": DEVICES[name]}, SOURCES, [speed])
    if known in DEVICE_POWER:
        _show(DEVICE_POWER[name], POWER_SOURCES, _power_lines("devices.energy", device_power(name)))
    if known in RADIOS:
        _show(RADIOS[name], POWER_SOURCES, _power_lines("links.radio", radio_power(name)))
    if known in LINKS:
        typer.echo(
            "\nNext: such a link in front of a program: emulator proxy --listen 127.0.0.1:9000"
            f" --to 127.0.0.1:8000 --profile {name}"
        )
    else:
        typer.echo("\nNext: how many such devices this host can emulate: emulator calibrate")


def _list() -> None:
    typer.echo(
        f"{'link':<12} {'up':>13} {'down':>13} {'one way':>10} {'jitter':>8} {'loss':>6}  sources"
    )
    for name, figures in LINKS.items():
        link = named.link_profile(name)
        latency, jitter = (f"{ns / 1e6:g} ms" for ns in (link.latency_ns, link.jitter_ns))
        rates = f"{rate_text(link.up_bit_s):>13} {rate_text(link.down_bit_s):>13}"
        typer.echo(
            f"{name:<12} {rates} {latency:>10} {jitter:>8} {f'{100 * link.loss:g} %':>6} "
            f" {_sources(figures.values())}"
        )
    typer.echo(
        f"\n{'device':<12} {'samples/s':>13}  of {REFERENCE_STEP}; orders of magnitude, scaled from"
        " benchmarks"
    )
    for name, figure in DEVICES.items():
        typer.echo(
            f"{name:<12} {named.device_profile(name).samples_per_s:>13g}  {_sources([figure])}"
        )
    _list_power()
    typer.echo("\nsources")
    for key, text in {**SOURCES, **POWER_SOURCES}.items():
        typer.echo(f"{key:<15} {text}")
    typer.echo(
        "\nNext: the source of each number of a profile: emulator profiles lte; the speed of this"
        " host: emulator calibrate"
    )


def _sources(figures: Iterable[ProfileFigure]) -> str:
    return ", ".join(dict.fromkeys(figure.source for figure in figures))


def _list_power() -> None:
    """The power of devices and radios, for [devices.energy] and [links.radio]."""
    typer.echo(f"\n{'device':<12} {'idle':>9} {'compute':>9}  power of the whole device, in W")
    for name, figures in DEVICE_POWER.items():
        power = device_power(name)
        numbers = f"{power.idle_w:>9g} {power.compute_w:>9g}"
        typer.echo(f"{name:<12} {numbers}  {_sources(figures.values())}")
    typer.echo(f"\n{'radio':<12} {'idle':>9} {'send':>9} {'receive':>9}  in W; tail, J per Mbit")
    for name, figures in RADIOS.items():
        radio = radio_power(name)
        numbers = f"{radio.idle_w:>9g} {radio.send_w:>9g} {radio.receive_w:>9g}"
        more = ""
        if radio.tail_s:
            bits = f"{radio.send_j_mbit:g} and {radio.receive_j_mbit:g} J per Mbit"
            more = f" + {bits}; {radio.tail_w:g} W for {radio.tail_s:g} s after a transfer;"
        typer.echo(f"{name:<12} {numbers} {more} {_sources(figures.values())}")


def _show(
    figures: Mapping[str, ProfileFigure], sources: Mapping[str, str], lines: list[str]
) -> None:
    for key, figure in figures.items():
        typer.echo(f"{key:<14} {figure.value:<10} {figure.remark}")
        typer.echo(f"{'':<14} {'':<10} {sources[figure.source]}")
    typer.echo("\nto paste into a config (change any value):")
    for line in lines:
        typer.echo(line)
    typer.echo()


def _power_lines(table: str, power: DevicePower | RadioPower) -> list[str]:
    numbers = {
        key: value for key, value in asdict(power).items() if value or key in NEEDED_OF_RADIO
    }
    return [f"[{table}]", *(f"{key} = {value:g}" for key, value in numbers.items())]


def _link_lines(link: named.LinkProfile) -> list[str]:
    rates = [f"up_mbit_s = {link.up_bit_s / 1e6:g}", f"down_mbit_s = {link.down_bit_s / 1e6:g}"]
    return [
        *rates,
        f"latency_ms = {link.latency_ns / 1e6:g}",
        f"jitter_ms = {link.jitter_ns / 1e6:g}",
        f"loss = {link.loss:g}",
    ]
