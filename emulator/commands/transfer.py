"""``emulator transfer``: when the bytes of a transfer arrive over a link, and what a trace does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant
from emulator.capacity.trace import Trace, read_trace
from emulator.commands.options import rate_text
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import (
    FOREVER,
    NS_PER_S,
    parse_duration,
    parse_rate,
    parse_size,
    seconds_text,
)

STARTS = 8  # moments of a period, evenly spaced
SHOWN_SILENCES = 5


def transfer(
    size: Annotated[
        str, typer.Argument(help="Bytes to carry, such as 0.25MB or 256KiB.", metavar="SIZE")
    ],
    rate: Annotated[
        str | None, typer.Option(help="Rate of the link, such as 2mbit or 500kbit.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --rate: the rate over time (mahimahi, or .csv of seconds,bit_s).",
            metavar="FILE",
        ),
    ] = None,
    latency: Annotated[str, typer.Option(help="One-way delay, such as 30ms.")] = "0ms",
) -> None:
    """Show when the first and the last byte of a transfer arrive over a link.

    With --trace: show facts of the trace, and how long the transfer takes from several starts.
    """
    size_bytes, delay_ns = parse_size(size), parse_duration(latency)
    if (rate is None) == (trace is None):
        raise BadValue("expected either --rate, such as 2mbit, or --trace FILE")
    if rate is not None:
        rate_bit_s = parse_rate(rate)
        lines = _at_a_rate(size_bytes, rate_bit_s, delay_ns)
        follow = (
            f"ten times as fast: emulator transfer {size} --rate {10 * rate_bit_s}bit --latency"
            f" {latency}"
        )
    elif trace is not None:
        lines = _along(read_trace(trace), size_bytes, delay_ns)
        follow = (
            "the same in front of a program: emulator proxy --listen 127.0.0.1:9000 --to"
            f" 127.0.0.1:8000 --trace-up {trace} --latency {latency}"
        )
    for line in lines:
        typer.echo(line)
    typer.echo(f"Next: {follow}")


def _at_a_rate(size_bytes: int, rate_bit_s: int, delay_ns: int) -> list[str]:
    first_ns, last_ns = _arrivals(Constant(rate_bit_s), size_bytes, delay_ns)
    return [
        f"{size_bytes} bytes at {rate_bit_s} bit/s, {seconds_text(delay_ns)} s away",
        f"first byte  {_moment(first_ns)}",
        f"last byte   {_moment(last_ns)}",
    ]


def _along(trace: Trace, size_bytes: int, delay_ns: int) -> list[str]:
    """Facts of the trace, and one line per start."""
    lines = [
        f"{trace.name} {trace.repeats}",
        f"mean rate   {rate_text(round(float(f'{trace.mean_bit_s:.4g}')))}",
        f"silent      {silent_text(trace)}",
        f"{size_bytes} bytes, {seconds_text(delay_ns)} s away, started at several moments:",
        f"{'start':>15}    {'first byte after':>18}  {'last byte after':>18}",
    ]
    for start_ns in _starts(trace):
        arrivals = _arrivals(trace, size_bytes, delay_ns, start_ns)
        first, last = (_moment(ns - start_ns if ns < FOREVER else ns) for ns in arrivals)
        lines.append(f"{seconds_text(start_ns):>15} s  {first}  {last}")
    return lines


def silent_text(trace: Trace) -> str:
    """How much of a period has no service, and its longest parts."""
    longest = sorted(trace.silences, key=lambda silence: -silence[1])
    if not longest:
        return "never"
    whole_ns = sum(length_ns for _, length_ns in longest)
    stretches = ", ".join(
        f"{length_ns / NS_PER_S:.10g} s from {begin_ns / NS_PER_S:.10g} s on"
        for begin_ns, length_ns in longest[:SHOWN_SILENCES]
    )
    return (
        f"{whole_ns / NS_PER_S:.10g} s of a period ({100 * whole_ns / trace.period_ns:.3g} %), in"
        f" {len(longest)} part{'s' * (len(longest) > 1)}, the longest: {stretches}"
    )


def _starts(trace: Trace) -> list[int]:
    """Evenly spaced moments of the first period, and the start of the longest silence."""
    worst = max(trace.silences, key=lambda silence: silence[1], default=(0, 0))[0]
    return sorted({worst, *(place * trace.period_ns // STARTS for place in range(STARTS))})


def _arrivals(
    capacity: Capacity, size_bytes: int, delay_ns: int, start_ns: int = 0
) -> tuple[int, int]:
    """When the first and the last byte arrive of a transfer that is offered at ``start_ns``."""
    network = Network()
    network.add_link("edge", "up", Link(capacity, Latency(delay_ns)))
    whole = Transfer(number=0, edge="edge", direction="up", size=size_bytes, kind="file")
    network.offer(whole, now=start_ns)
    return network.due_at(whole, min(1, size_bytes)), network.due_at(whole, size_bytes)


def _moment(ns: int) -> str:
    return f"{seconds_text(ns):>16} s" if ns < FOREVER else "never (not within 292 years)"
