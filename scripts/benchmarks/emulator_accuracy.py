"""Measure how exact emulated links are: real sockets against closed forms, late and early.

    python scripts/benchmarks/emulator_accuracy.py [--quick | --tiny] [--json FILE] [--only PART]
        [--pacing process|kernel]

Parts: app (the coordinator process with edges that echo), proxy (`emulator proxy`), tdma, kernel
(`emulator kernel`, with root), busy (with a busy loop on every core). --pacing chooses who spaces
the bytes in the parts app, proxy and busy; slots and tc have one way only.
Errors are absolute values; "ahead of the curve" is how early bytes were. All goals are for an idle
machine with 2 cores, except those of the part "busy".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import emulator_slots as slots
from emulator_app import AppNetwork
from emulator_kernel import KernelLinks
from emulator_proxy import ProxyLinks
from emulator_rows import Extent
from table import Row, arguments, host_line, load, report, run, say

from emulator.proxy.proxy import PACERS, PROCESS


def busy_rows(extent: Extent, pacing: str) -> Iterator[Row]:
    yield from AppNetwork(extent, pacing).busy_rows()
    yield from ProxyLinks(extent, pacing).busy_rows()
    if pacing == PROCESS:
        yield from slots.busy_rows(extent)


PARTS: dict[str, Callable[[Extent, str], Iterator[Row]]] = {
    "app": lambda extent, pacing: AppNetwork(extent, pacing).rows(),
    "proxy": lambda extent, pacing: ProxyLinks(extent, pacing).rows(),
    "tdma": lambda extent, _: slots.rows(extent),
    "kernel": lambda extent, _: KernelLinks(extent).rows(),
    "busy": busy_rows,
}


def main() -> None:
    parser = arguments(__doc__)
    shorter = parser.add_mutually_exclusive_group()
    shorter.add_argument(
        "--quick",
        dest="extent",
        action="store_const",
        const=Extent.QUICK,
        help="fewer sizes and repeats: 1.5 minutes instead of 7",
    )
    shorter.add_argument(
        "--tiny",
        dest="extent",
        action="store_const",
        const=Extent.TINY,
        help="one small transfer of each kind, to check that everything works; ignore the goals",
    )
    parser.set_defaults(extent=Extent.FULL)
    parser.add_argument(
        "--only",
        choices=PARTS,
        action="append",
        metavar="PART",
        help=f"one of {', '.join(PARTS)}; may be repeated (default: all)",
    )
    parser.add_argument(
        "--pacing", choices=PACERS[:2], default=PROCESS, help="who spaces the bytes"
    )
    options, host = parser.parse_args(), host_line()
    rows: list[Row] = []
    parts, began_s = options.only or list(PARTS), time.monotonic()
    for number, part in enumerate(parts, 1):
        say(
            f"{part}: part {number} of {len(parts)}, {time.monotonic() - began_s:.0f} s so far"
            f" (load {load()})"
        )
        rows += PARTS[part](options.extent, options.pacing)
    report("Emulated links", host, [*rows, Row("load after", float(load()))], options.json)


if __name__ == "__main__":
    run(main)
