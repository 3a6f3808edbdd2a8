"""Cost of pacing: emulated links, against raw ZeroMQ that sends the same pieces without a schedule.

A real coordinator and echoing edges, as in ``protocol.py``. Each link carries a model down and up.

    python scripts/benchmarks/pacing.py [--json FILE] [--case 100x2]
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from protocol import BARE, MB, experiment, run
from reference import raw_rounds
from table import TIMES, Row, arguments, host_line, report, say
from table import run as run_bench

from edgefl.config.network import NetworkSection
from edgefl.errors import UserError
from edgefl.hosts.processes import keep_freed_memory
from edgefl.hosts.wall.coordinator.flow import LARGEST_PIECE, SMALLEST_PIECE, PiecePlan
from emulator.units import NS_PER_S, to_ns

CASES = {"2x2": (2, 2.0), "100x2": (100, 2.0), "300x1": (300, 1.0)}  # links, Mbit/s
SECONDS = 2.0  # of each transfer
# CPU of pacing as a multiple of the bare loop: a wake-up serves few of the pieces that it waits for
PIECE_GOAL = "<= 8"


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


def paced(links: int, mbit_s: float, rounds: int) -> Cost:
    """Measure ``rounds`` rounds in which every link carries SECONDS down and up."""
    size = int(mbit_s * MB / 8 * SECONDS) // 4 * 4
    emulated = {"kind": "emulated", "up_mbit_s": mbit_s, "down_mbit_s": mbit_s}
    config = experiment(links, rounds, BARE, emulated)
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        outcome = run(size // 4, config, Path(folder))
    pieces = 2 * rounds * links * -(-size // piece_bytes(links, mbit_s))
    late = outcome.summary["fidelity"]["wake_lag_ms"]["p99"]
    return Cost(outcome.cpu_s, pieces, 2 * rounds * links * SECONDS, late)


def measure(case: str, rounds: int, turns: int) -> list[Row]:
    """Measure pacing and the bare loop in turns, because the machine's load changes."""
    links, mbit_s = CASES[case]
    piece, size = piece_bytes(links, mbit_s), int(mbit_s * MB / 8 * SECONDS)
    say(f"{links} links of {mbit_s:g} Mbit/s, pieces of {piece} bytes: pacing, raw ZeroMQ")
    costs, bare_us = list[Cost](), list[float]()
    for _ in range(turns):
        costs.append(paced(links, mbit_s, rounds))
        raw = raw_rounds(links, size, rounds, piece)
        bare_us.append(1e6 * raw.cpu_s / (2 * links * (size // piece)))
    piece_us = median(cost.piece_us for cost in costs)
    name = f"{links} links of {mbit_s:g} Mbit/s"
    share = 100 * median(cost.link_second_us for cost in costs) * links / 1e6
    return [
        Row(f"{name}: CPU per piece", piece_us, "us"),
        Row(f"{name}: CPU per piece, bare loop", median(bare_us), "us"),
        Row(f"{name}: CPU per piece / bare loop", piece_us / median(bare_us), TIMES, PIECE_GOAL),
        Row(f"{name}: CPU per link-second", median(c.link_second_us for c in costs), "us"),
        Row(f"{name}: CPU while all links carry bytes", share, "% of a core"),
        Row(f"{name}: lateness of pieces, p99", median(c.late_p99_ms for c in costs), "ms"),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--case", choices=[*CASES], action="append", help="links x Mbit/s (default: all but 2x2)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of each turn")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of each case")
    chosen, host = parser.parse_args(), host_line()
    if min(chosen.rounds, chosen.turns) < 1:
        raise UserError("--rounds, --turns: expected 1 or more")
    keep_freed_memory()  # as the warm parent does for its edges
    rows: list[Row] = []
    for case in chosen.case or list(CASES)[1:]:
        rows += measure(case, chosen.rounds, chosen.turns)
    report("Cost of pacing", host, rows, chosen.json)


if __name__ == "__main__":
    run_bench(main)
