"""How exact emulated links are: over real sockets, against closed forms, as late as they are and as
early.

    python scripts/benchmarks/emulator_accuracy.py [--quick] [--json FILE] [--only PART]

Parts: app (the coordinator process with edges that echo), proxy (`emulator proxy`), tdma, kernel
(`emulator kernel`, with root), same (one link in all three), busy (with a burning process on every
core). Errors have no sign; "ahead of the curve" is how early bytes were. All goals are for an idle
machine of 2 cores, those of the part "busy" aside.
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
from emulator_rows import Cell
from table import Row, arguments, host_line, load, report, run, say

SAME_GOAL = "<= 2"


def same_rows(quick: bool) -> Iterator[Row]:
    """The same link in the in-app network, the proxy and the kernel."""
    cell = Cell("", 10, 1_000_000, repeat=1 if quick else 5, up_only=True)
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


def proxy_rows(quick: bool) -> Iterator[Row]:
    yield from ProxyLinks(quick).rows()
    yield from churn.rows()


def busy_rows(quick: bool) -> Iterator[Row]:
    yield from AppNetwork(quick).busy_rows()
    yield from ProxyLinks(quick).busy_rows()
    yield from slots.busy_rows(quick)


PARTS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "app": lambda quick: AppNetwork(quick).rows(),
    "proxy": proxy_rows,
    "tdma": slots.rows,
    "kernel": lambda quick: KernelLinks(quick).rows(),
    "same": same_rows,
    "busy": busy_rows,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer sizes and repeats: a minute and a half instead of seven",
    )
    parser.add_argument(
        "--only",
        choices=PARTS,
        action="append",
        metavar="PART",
        help=f"one of {', '.join(PARTS)}; may be repeated (all)",
    )
    options, host = parser.parse_args(), host_line()
    rows: list[Row] = []
    parts, began_s = options.only or list(PARTS), time.monotonic()
    for number, part in enumerate(parts, 1):
        say(
            f"{part}: part {number} of {len(parts)}, {time.monotonic() - began_s:.0f} s so far"
            f" (load {load()})"
        )
        rows += PARTS[part](options.quick)
    report("Emulated links", host, [*rows, Row("load after", float(load()))], options.json)


if __name__ == "__main__":
    run(main)
