"""``emulator profiles``: the named links and devices, with the source of every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from emulator import profiles as named
from emulator.profile_table import DEVICES, LINKS, REFERENCE_STEP, SOURCES, ProfileFigure


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one, with the source of every number.", metavar="NAME"),
    ] = None,
) -> None:
    """List the named links and devices, and the sources of their numbers."""
    if name is None:
        _list()
    elif named.known(name) in LINKS:
        _show(name, LINKS[name], _link_lines(named.link_profile(name)))
        typer.echo(
            "\nNext: such a link in front of a program: emulator proxy --listen 127.0.0.1:9000"
            f" --to 127.0.0.1:8000 --profile {name}"
        )
    else:
        _show(
            name,
            {"samples_per_s": DEVICES[name]},
            [f"samples_per_s = {named.device_profile(name).samples_per_s:g}"],
        )
        typer.echo("\nNext: how many such devices this host can emulate: emulator calibrate")


def rate_text(rate_bit_s: int) -> str:
    """Format a rate, such as '7.6 Mbit/s'."""
    for size, unit in ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if rate_bit_s >= size:
            return f"{rate_bit_s / size:.10g} {unit}"
    return f"{rate_bit_s} bit/s"


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
    typer.echo("\nsources")
    for key, text in SOURCES.items():
        typer.echo(f"{key:<14} {text}")
    typer.echo(
        "\nNext: the source of each number of a profile: emulator profiles lte; the speed of this"
        " host: emulator calibrate"
    )


def _sources(figures: Iterable[ProfileFigure]) -> str:
    return ", ".join(dict.fromkeys(figure.source for figure in figures))


def _show(name: str, figures: Mapping[str, ProfileFigure], lines: list[str]) -> None:
    typer.echo(name)
    for key, figure in figures.items():
        typer.echo(f"{key:<14} {figure.value:<10} {figure.remark}")
        typer.echo(f"{'':<14} {'':<10} {SOURCES[figure.source]}")
    typer.echo("\nto paste into a config (change any value):")
    for line in lines:
        typer.echo(line)


def _link_lines(link: named.LinkProfile) -> list[str]:
    rates = [f"up_mbit_s = {link.up_bit_s / 1e6:g}", f"down_mbit_s = {link.down_bit_s / 1e6:g}"]
    return [
        *rates,
        f"latency_ms = {link.latency_ns / 1e6:g}",
        f"jitter_ms = {link.jitter_ns / 1e6:g}",
        f"loss = {link.loss:g}",
    ]
