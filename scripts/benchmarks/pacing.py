"""Cost of pacing: emulated links, against raw ZeroMQ that sends the same pieces without a schedule.

A real coordinator and echoing edges, as in ``protocol.py``. Each link carries a model down and up.

    python scripts/benchmarks/pacing.py [--json FILE] [--case 100x2] [--against DIR]
        [--busy [--carrier proxy] [--rate 2] [--csv FILE]]

``--busy`` measures instead how many links are carried faithfully while a busy loop runs on each
core: by a run and by ``emulator proxy``, with each pacer, as an ordinary user without real-time
priority; and by tc in network namespaces (``emulator lab``, as root). Each case doubles its links
until 1 % of the transfers are late by more than the verdict allows. Both ends of the proxy and of
tc have real-time priority, because they are the instrument; the edges of a run do not. ``--csv
FILE`` writes links and Mbit/s per core for each rate.

``--against DIR`` also measures the pacing of another checkout of edgefl, in turns with this one:
the first case there and here, and the other cases against the first one there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import orjson
from emulator_app import measure as measure_app
from emulator_kernel import measure_many as shaped
from emulator_proxy import measure_many as proxied
from emulator_rows import Cell, Extent, Shot, busy_cores
from protocol import BARE, MB, experiment, run
from reference import raw_rounds
from table import TIMES, Row, arguments, host_line, new_file, report, say
from table import run as run_bench

from edgefl.clocks.processes import keep_freed_memory
from edgefl.config.experiment import NetworkSection
from edgefl.errors import UserError
from edgefl.exchange.pacer import LARGEST_PIECE, SMALLEST_PIECE, PiecePlan
from emulator.errors import Unavailable
from emulator.fidelity import Fidelity
from emulator.host import cores as cpus
from emulator.proxy.proxy import PACERS
from emulator.units import NS_PER_S, to_ns

CASES = {"2x2": (2, 2.0), "100x2": (100, 2.0), "300x1": (300, 1.0)}  # links, Mbit/s
SECONDS = 2.0  # of each transfer
BUSY_MBIT_S, FEWEST, MOST = (2.0, 5.0, 20.0, 100.0), 5, 640  # rates and links with --busy
LABS = 254  # hosts of one lab
CARRYING = "CPU while all links carry bytes"
# CPU of pacing as a multiple of the bare loop: a wake-up serves few of the pieces that it waits for
PIECE_GOAL = "<= 8"
# CPU as a multiple of the other checkout's: the same links, and three times the links at half the
# rate against its first case
SAME_GOAL, MORE_GOAL = "<= 0.65", "<= 1.0"
# One run by the code of the checkout in which this is started, told as a line of JSON. A checkout
# of 22 November 2026 looks for a file that its own benchmark does not write.
ELSEWHERE = """
import json, sys, tempfile
from pathlib import Path
from protocol import BARE, experiment, run
from edgefl.clocks.processes import keep_freed_memory
links, mbit_s, size, rounds = json.loads(sys.argv[1])
keep_freed_memory()
emulated = {"kind": "emulated", "up_mbit_s": mbit_s, "down_mbit_s": mbit_s}
with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
    (Path(folder) / "frozen.txt").touch()
    outcome = run(size // 4, experiment(links, rounds, BARE, emulated), Path(folder))
print(json.dumps([outcome.cpu_s, outcome.summary["fidelity"]["wake_lag_ms"]["p99"]]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """``cpu_s``: of the coordinator; ``pieces`` and ``link_s``: of all transfers together."""

    cpu_s: float
    pieces: int
    link_s: float
    late_p99_ms: float

    @property
    def piece_us(self) -> float:
        return 1e6 * self.cpu_s / self.pieces

    @property
    def link_second_us(self) -> float:
        return 1e6 * self.cpu_s / self.link_s


def piece_bytes(links: int, mbit_s: float) -> int:
    """The length of the pieces while all these links carry a transfer."""
    section = NetworkSection()
    plan = PiecePlan(to_ns(section.window_ms / 1000), to_ns(section.piece_ms / 1000))
    wanted = int(mbit_s * 1e6) * plan.length_ns(links) // (8 * NS_PER_S)
    return min(max(wanted, SMALLEST_PIECE), LARGEST_PIECE)


def transfer_bytes(mbit_s: float) -> int:
    return int(mbit_s * MB / 8 * SECONDS) // 4 * 4


def cost(links: int, mbit_s: float, rounds: int, cpu_s: float, late_p99_ms: float) -> Cost:
    pieces = 2 * rounds * links * -(-transfer_bytes(mbit_s) // piece_bytes(links, mbit_s))
    return Cost(cpu_s, pieces, 2 * rounds * links * SECONDS, late_p99_ms)


def paced(links: int, mbit_s: float, rounds: int) -> Cost:
    """Measure ``rounds`` rounds in which every link carries SECONDS down and up."""
    emulated = {"kind": "emulated", "up_mbit_s": mbit_s, "down_mbit_s": mbit_s}
    config = experiment(links, rounds, BARE, emulated)
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        outcome = run(transfer_bytes(mbit_s) // 4, config, Path(folder))
    late = outcome.summary["fidelity"]["wake_lag_ms"]["p99"]
    return cost(links, mbit_s, rounds, outcome.cpu_s, late)


def paced_by(checkout: Path, links: int, mbit_s: float, rounds: int) -> Cost:
    """The same, by the code of another checkout. Its pieces may have another length."""
    paths = os.pathsep.join([str(checkout), str(checkout / "scripts" / "benchmarks")])
    work = orjson.dumps([links, mbit_s, transfer_bytes(mbit_s), rounds])
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, work],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
    )
    return cost(links, mbit_s, rounds, *orjson.loads(done.stdout))


def measure(case: str, rounds: int, turns: int, other: Path | None) -> tuple[list[Row], float]:
    """Measure pacing, the bare loop and the ``other`` checkout in turns: the load changes.

    Returns the rows, and the CPU (% of a core) of the other checkout; 0 without one.
    """
    links, mbit_s = CASES[case]
    piece, size = piece_bytes(links, mbit_s), int(mbit_s * MB / 8 * SECONDS)
    say(f"{links} links of {mbit_s:g} Mbit/s, pieces of {piece} bytes: pacing, raw ZeroMQ")
    costs, others, bare_us = list[Cost](), list[Cost](), list[float]()
    for _ in range(turns):
        if other is not None:
            others.append(paced_by(other, links, mbit_s, rounds))
        costs.append(paced(links, mbit_s, rounds))
        raw = raw_rounds(links, size, rounds, piece)
        bare_us.append(1e6 * raw.cpu_s / (2 * links * -(-size // piece)))
    piece_us = median(cost.piece_us for cost in costs)
    name = f"{links} links of {mbit_s:g} Mbit/s"
    rows = [
        Row(f"{name}: CPU per piece", piece_us, "us"),
        Row(f"{name}: CPU per piece, bare loop", median(bare_us), "us"),
        Row(f"{name}: CPU per piece / bare loop", piece_us / median(bare_us), TIMES, PIECE_GOAL),
        *told(name, costs, links),
    ]
    if not others:
        return rows, 0.0
    return rows + told(f"{name}, the other checkout", others, links), share(others, links)


def share(costs: list[Cost], links: int) -> float:
    """CPU while all links carry bytes, in % of a core."""
    return 100 * median(cost.link_second_us for cost in costs) * links / 1e6


def told(name: str, costs: list[Cost], links: int) -> list[Row]:
    return [
        Row(f"{name}: CPU per link-second", median(c.link_second_us for c in costs), "us"),
        Row(f"{name}: {CARRYING}", share(costs, links), "% of a core"),
        Row(f"{name}: lateness of pieces, p99", median(c.late_p99_ms for c in costs), "ms"),
    ]


def measured(cases: list[str], rounds: int, turns: int, other: Path | None) -> list[Row]:
    """All rows of these cases; the ``other`` checkout does the first one."""
    rows, theirs = list[Row](), 0.0
    for number, case in enumerate(cases):
        found, base = measure(case, rounds, turns, None if number else other)
        rows, theirs = rows + found, theirs or base
        if other is not None:
            ours = next(row.value for row in found if row.name.endswith(CARRYING))
            assert isinstance(ours, float)
            name = f"CPU of {case} / {cases[0]} of the other checkout"
            rows.append(Row(name, ours / theirs, TIMES, MORE_GOAL if number else SAME_GOAL))
    return rows


def faithful_run(cell: Cell, pacing: str) -> bool:
    seen = measure_app(cell, priority=False, more={"network": {"pacing": pacing}})
    say(f"  {seen.fidelity['verdict']} {seen.fidelity['reasons'][:1]}")
    return bool(seen.fidelity["verdict"] == "faithful")


def faithful(shots: list[Shot]) -> bool:
    """Whether an experiment with these transfers would be faithful."""
    fidelity = Fidelity()
    for shot in shots:
        fidelity.transfer(round(1e6 * shot.error_ms), round(1e6 * shot.ideal_ms))
    say(f"  {fidelity.verdict} {fidelity.reasons()}")
    return fidelity.verdict == "faithful"


CARRIERS: dict[str, dict[str, Callable[[Cell], bool]]] = {
    "run": {
        f"run, {pacing}": lambda cell, pacing=pacing: faithful_run(cell, pacing)
        for pacing in PACERS[:2]
    },
    "proxy": {
        f"proxy, {pacing}": lambda cell, pacing=pacing: faithful(
            proxied(cell, [], pacing, priority=False)[0]
        )
        for pacing in PACERS[:2]
    },
    "tc": {"tc in namespaces": lambda cell: cell.links < LABS and faithful(shaped(cell))},
}


def faithful_links(carries: Callable[[Cell], bool], mbit_s: float) -> int:
    """The most links, doubled from FEWEST on, that are faithful; 0: not even the fewest."""
    links, most = FEWEST, 0
    while links <= MOST and carries(Cell("", mbit_s, transfer_bytes(mbit_s), links, repeat=1)):
        most, links = links, 2 * links
    return most


def busy_rows(carriers: list[str], rates: list[float], csv_file: Path | None) -> list[Row]:
    rows, lines, cores = list[Row](), ["carrier,mbit_s,links,mbit_s_per_core"], cpus()
    with busy_cores(Extent.FULL):
        for mbit_s in rates:
            for group in carriers:
                for carrier, carries in CARRIERS[group].items():
                    name = f"cores busy, {carrier}, links of {mbit_s:g} Mbit/s"
                    try:
                        links = faithful_links(carries, mbit_s)
                    except Unavailable as error:
                        rows.append(Row(name, f"not measured: {error}"))
                        continue
                    rows.append(Row(f"{name}: most that are faithful", links, ""))
                    rows.append(Row(f"{name}: faithful Mbit/s per core", links * mbit_s / cores))
                    lines.append(f'"{carrier}",{mbit_s:g},{links},{links * mbit_s / cores:g}')
                    if csv_file is not None:
                        csv_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--case", choices=[*CASES], action="append", help="links x Mbit/s (default: all but 2x2)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of each turn")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of each case")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout, whose pacing is measured too"
    )
    parser.add_argument("--busy", action="store_true", help="how many links, beside busy loops")
    parser.add_argument("--carrier", choices=CARRIERS, action="append", help="with --busy")
    parser.add_argument("--rate", type=float, action="append", metavar="MBIT_S", help="with --busy")
    parser.add_argument("--csv", type=new_file, metavar="FILE", help="with --busy")
    chosen, host = parser.parse_args(), host_line()
    if min(chosen.rounds, chosen.turns) < 1:
        raise UserError("--rounds, --turns: expected 1 or more")
    if min(chosen.rate or BUSY_MBIT_S) <= 0:
        raise UserError(f"--rate {min(chosen.rate):g}: expected a number above 0")
    keep_freed_memory()  # as the warm parent does for its edges
    if chosen.busy:
        rates = chosen.rate or list(BUSY_MBIT_S)
        rows = busy_rows(chosen.carrier or list(CARRIERS), rates, chosen.csv)
        report("Faithful links beside busy cores", host, rows, chosen.json)
        return
    other = None if chosen.against is None else chosen.against.resolve()
    if other is not None and not (other / "scripts" / "benchmarks" / "protocol.py").is_file():
        raise UserError(f"--against {chosen.against}: expected a checkout of edgefl")
    rows = measured(chosen.case or list(CASES)[1:], chosen.rounds, chosen.turns, other)
    report("Cost of pacing", host, rows, chosen.json)


if __name__ == "__main__":
    run_bench(main)
