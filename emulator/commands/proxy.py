"""``emulator proxy``: emulated links in front of any TCP program, without root."""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant
from emulator.clock import precise_timers
from emulator.commands import options
from emulator.errors import BadValue
from emulator.host import host_facts, real_time_priority
from emulator.proxy.record import BusyFile, Log
from emulator.proxy.routes import (
    Address,
    Route,
    address_text,
    parse_address,
    parse_map,
    proxy_ways,
)
from emulator.units import parse_rate

if TYPE_CHECKING:
    from emulator.proxy.proxy import Proxy

Listen = Annotated[
    str | None, typer.Option(help="Where programs connect to, such as 127.0.0.1:9000.")
]
To = Annotated[
    str | None, typer.Option(help="The program behind the link, such as 127.0.0.1:8000.")
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="One more device with its own link; may be repeated.",
        metavar="LISTEN=TO",
    ),
]
UpRate = Annotated[
    str | None,
    typer.Option(help="Rate from the client to the program, such as 2mbit. Default: not shaped."),
]
DownRate = Annotated[
    str | None,
    typer.Option(help="Rate from the program to the client, such as 20mbit. Default: not shaped."),
]
LossText = Annotated[
    str | None,
    typer.Option(help="Share of lost packets, such as 1%; it lowers the rate to the TCP goodput."),
]
TraceUp = Annotated[
    Path | None,
    typer.Option(help="The rate as a trace (mahimahi, or .csv of seconds,bit_s); --up caps it."),
]
TraceDown = Annotated[
    Path | None, typer.Option(help="The same for the other direction; --down caps it.")
]
SharedUp = Annotated[
    str | None,
    typer.Option(help="A rate that all links share fairly, in addition to their own rates."),
]
SharedDown = Annotated[str | None, typer.Option(help="The same for the other direction.")]
Seconds = Annotated[float | None, typer.Option(help="Stop after this time. Default: at Ctrl-C.")]
LogFile = Annotated[
    Path | None, typer.Option(help="Write all connections and a summary to this JSON file.")
]
BusyFileName = Annotated[
    Path | None,
    typer.Option(
        help="Write a row to this CSV file for each period in which a link has bytes under way."
    ),
]
Pacing = Annotated[
    str,
    typer.Option(
        help=(
            "Who spaces the bytes of links: process; kernel (Linux, constant rates, no root); auto"
            " (the kernel where it can)."
        )
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the jitter.", min=0)]


def proxy(
    listen: Listen = None,
    to: To = None,
    maps: Maps = None,
    profile: options.Profile = None,
    up: UpRate = None,
    down: DownRate = None,
    latency: options.Latency = None,
    jitter: options.JitterText = None,
    loss: LossText = None,
    trace_up: TraceUp = None,
    trace_down: TraceDown = None,
    shared_up: SharedUp = None,
    shared_down: SharedDown = None,
    seconds: Seconds = None,
    log: LogFile = None,
    busy: BusyFileName = None,
    seed: Seed = 0,
    pacing: Pacing = "process",
) -> None:
    """Put emulated links in front of a TCP program.

    All connections to one listening address share one link, like the programs of a device. In each
    direction, bytes pass the device's own link, then the shared rate, then the latency. Only the
    bytes of a connection are delayed, not its opening.
    """
    if seconds is not None and not 0 < seconds < 1e9:
        raise BadValue(f"seconds {seconds:g}: expected a number above 0")
    link = {"up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    pairs = _addresses(listen, to, maps or [])
    traces = [_trace(file) for file in (trace_up, trace_down)]
    routes = [
        Route(*pair, *proxy_ways(profile, link, seed * 2**20 + 2 * index, traces))
        for index, pair in enumerate(pairs)
    ]
    shared = [
        None if text is None else Constant(parse_rate(text)) for text in (shared_up, shared_down)
    ]
    _serve(routes, shared, seconds, log, busy, pacing)


def _addresses(
    listen: str | None, to: str | None, maps: list[str]
) -> list[tuple[Address, Address]]:
    if (listen is None) != (to is None):
        raise BadValue("--listen and --to: expected both, or --map LISTEN=TO")
    pairs = [parse_map(text) for text in maps]
    if listen is not None and to is not None:
        pairs.insert(0, (parse_address(listen, "listen"), parse_address(to, "to")))
    if not pairs:
        raise BadValue(
            "nothing to carry: give --listen 127.0.0.1:9000 --to 127.0.0.1:8000, or --map"
            " 127.0.0.1:9000=127.0.0.1:8000"
        )
    return pairs


def _trace(file: Path | None) -> Capacity | None:
    if file is None:
        return None
    from emulator.capacity.trace import read_trace

    trace = read_trace(file)
    typer.echo(f"emulator: {trace.name} {trace.repeats}", err=True)
    for warning in trace.warnings:
        typer.echo(f"emulator: warning: {warning}", err=True)
    return trace


def _serve(
    routes: list[Route],
    shared: list[Constant | None],
    seconds: float | None,
    log_path: Path | None,
    busy_path: Path | None,
    pacing: str,
) -> None:
    if not sys.platform.startswith("linux"):
        raise BadValue("proxy: needs Linux (it waits with epoll)")
    from emulator.proxy.proxy import Proxy

    if log_path is not None and log_path == busy_path:
        raise BadValue(f"--busy {busy_path}: expected another file than that of --log")
    log = None if log_path is None else Log(log_path)
    busy = None
    try:
        busy = None if busy_path is None else BusyFile(busy_path)
        proxy = Proxy(routes, shared[0], shared[1], log, busy, pacing)
        _announce(proxy, routes, shared, seconds, pacing)
    except BaseException:
        for output in (log, busy):
            if output is not None:
                output.abandon()
        raise
    gc.freeze()  # the collector then skips imported objects, which would take milliseconds
    problems: list[str] = []
    try:
        proxy.run(seconds, sys.stderr if sys.stderr.isatty() else None)
    finally:  # the files before what is printed: stdout may be closed
        for close in (
            *([] if log is None else [lambda: log.close(_summary(proxy))]),
            *([] if busy is None else [busy.finish]),
        ):
            try:
                close()
            except BadValue as error:
                problems.append(str(error))
    try:
        _report(proxy, log)
    finally:
        if problems:
            raise BadValue("; ".join(problems))


def _announce(
    proxy: Proxy,
    routes: list[Route],
    shared: list[Constant | None],
    seconds: float | None,
    pacing: str,
) -> None:
    """Prepare this process, and say what it does."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda *_: proxy.stop())
    slack = "1 ns" if precise_timers() else "default"
    priority = real_time_priority()
    proxy.traffic.fidelity.host.update(host_facts(), priority=priority, timer_slack=slack)
    for address, route in zip(proxy.addresses, routes):
        typer.echo(
            f"listening on {address_text(address)}, to {address_text(route.to)}: up"
            f" {route.up}, down {route.down}"
        )
    for each in proxy.pacing() if pacing != "process" else ():
        reason = f" ({each['reason']})" if each["reason"] else ""
        typer.echo(f"{each['listen']} {each['direction']}: paced by the {each['pacer']}{reason}")
    for direction, capacity in zip(("up", "down"), shared):
        if capacity is not None:
            typer.echo(f"shared by all {direction}: {capacity.rate_bit_s / 1e6:g} Mbit/s")
    typer.echo(f"priority {priority}, timer slack {slack}")
    typer.echo(
        f"Next: let a program connect to {address_text(proxy.addresses[0])};"
        f" {'Ctrl-C ends' if seconds is None else f'ends after {seconds:g} s'}"
    )
    sys.stdout.flush()


def _summary(proxy: Proxy) -> dict[str, object]:
    """The members of the log that are not connections."""
    known = proxy.traffic.fidelity.summary()
    judged = {name: known[name] for name in ("verdict", "reasons", "wake_lag_ms", "host")}
    chunks = {"chunks": known["transfers"], "chunk_lag_ms": known["transfer_lag_ms"]}
    return {
        "began_unix_s": proxy.began_unix_s,
        "summary": proxy.traffic.totals.as_json(),
        "pacing": proxy.pacing(),
        "fidelity": judged | chunks,
    }


def _report(proxy: Proxy, log: Log | None) -> None:
    totals, fidelity = proxy.traffic.totals, proxy.traffic.fidelity
    if sys.stderr.isatty():
        typer.echo("", err=True)
    typer.echo(
        f"{totals.opened} connections ({totals.failed} not closed properly), {totals.up_bytes}"
        f" bytes up, {totals.down_bytes} bytes down"
    )
    if by_kernel := sum(link["kernel_bytes"] for link in proxy.pacing()):
        typer.echo(f"the kernel paced {by_kernel} bytes")
    typer.echo(f"{fidelity.verdict}{''.join(f'; {reason}' for reason in fidelity.reasons())}")
    if log is None:
        typer.echo("Next: use --log FILE to keep a record of every connection")
    else:
        typer.echo(
            f"Next: see the record of every connection and the lateness of chunks in {log.path}"
        )
