"""Measure how exact emulated links are: real sockets against closed forms, late and early.

    python scripts/benchmarks/emulator_accuracy.py [--quick | --tiny] [--json FILE] [--only PART]

Parts: app (the coordinator process with edges that echo), proxy (`emulator proxy`), tdma, kernel
(`emulator kernel`, with root), same (one link in all three), busy (with a busy loop on every core).
Errors are absolute values; "ahead of the curve" is how early bytes were. All goals are for an idle
machine with 2 cores, except those of the part "busy".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import combinations

import emulator_churn as churn
import emulator_kernel as kernel
import emulator_slots as slots
from emulator_app import AppNetwork, measure, shots
from emulator_kernel import KernelLinks, middle_ms
from emulator_proxy import ProxyLinks
from emulator_proxy import measure as through_proxy
from emulator_rows import Cell, Extent
from table import Row, arguments, host_line, load, report, run, say

SAME_GOAL = "<= 2"


def same_rows(extent: Extent) -> Iterator[Row]:
    """The same link in the in-app network, the proxy and the kernel."""
    size, repeat = {
        Extent.TINY: (50_000, 1),
        Extent.QUICK: (1_000_000, 1),
        Extent.FULL: (1_000_000, 5),
    }[extent]
    cell = Cell("", 10, size, repeat=repeat, up_only=True)
    middle = {
        "in-app": middle_ms(shots(cell, measure(cell))),
        "proxy": middle_ms(through_proxy(cell, "up")[0]),
    }
    why = kernel.why_not()
    if why is None:
        middle["kernel"] = middle_ms(kernel.measure(cell, "up"))
    for name, ms in middle.items():
        yield Row(f"{cell.name}, {name}: median time", ms, "ms")
    for one, other in combinations(middle, 2):
        difference = 100 * abs(middle[one] - middle[other]) / cell.ideal_ms
        yield Row(f"{cell.name}: {one} against {other}", difference, "%", SAME_GOAL)
    if why is not None:
        yield Row(f"{cell.name}, kernel", f"not measured: {why}")


def proxy_rows(extent: Extent) -> Iterator[Row]:
    yield from ProxyLinks(extent).rows()
    yield from churn.rows(extent)


def busy_rows(extent: Extent) -> Iterator[Row]:
    yield from AppNetwork(extent).busy_rows()
    yield from ProxyLinks(extent).busy_rows()
    yield from slots.busy_rows(extent)


PARTS: dict[str, Callable[[Extent], Iterator[Row]]] = {
    "app": lambda extent: AppNetwork(extent).rows(),
    "proxy": proxy_rows,
    "tdma": slots.rows,
    "kernel": lambda extent: KernelLinks(extent).rows(),
    "same": same_rows,
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
    options, host = parser.parse_args(), host_line()
    rows: list[Row] = []
    parts, began_s = options.only or list(PARTS), time.monotonic()
    for number, part in enumerate(parts, 1):
        say(
            f"{part}: part {number} of {len(parts)}, {time.monotonic() - began_s:.0f} s so far"
            f" (load {load()})"
        )
        rows += PARTS[part](options.extent)
    report("Emulated links", host, [*rows, Row("load after", float(load()))], options.json)


if __name__ == "__main__":
    run(main)
