"""What a run on the wall clock leaves on the disk and keeps in memory, per 1,000 updates.

Edges are processes that return each model at once, as in protocol.py.

    python scripts/benchmarks/growth.py [--json FILE] [--case small] [--rounds N]

Tables grow with the updates; parts of them are compressed. Journal and checkpoints have a bound:
their largest size during the run is reported. They are gone at the end.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import psutil
from protocol import MB, Setting, experiment, run
from table import Row, arguments, host_line, report, say
from table import run as run_bench

from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.processes import keep_freed_memory
from edgefl.record.files import CHECKPOINTS, EVENTS, LINKS
from edgefl.record.tables import PACKED, pack, part_path

EDGES = 10
CASES = {"small": (62_500, 400), "11 M parameters": (11_000_000, 20)}  # elements, rounds
LOOK_S = 0.05
# With a small model, what each update leaves in memory is more than the noise.
MEMORY_GOALS = {"small": "<= 2"}  # MB per 1,000 updates
EVENTS_GOAL = "<= 1.5"  # MB per 1,000 updates
PER = "MB per 1,000 updates"


@dataclass(slots=True)
class Sizes:
    """What was seen of a run: largest folders in bytes, and memory over the size of its events."""

    journal: int = 0
    checkpoints: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list)

    def look(self, directory: Path) -> None:
        self.journal = max(self.journal, folder_bytes(directory / "journal"))
        self.checkpoints = max(self.checkpoints, folder_bytes(directory / CHECKPOINTS))
        events = file_bytes(directory / EVENTS)
        for process in psutil.Process().children():
            try:
                if "edgefl.hosts.wall.coordinator.process" in process.cmdline():
                    self.memory.append((events, process.memory_info().rss))
            except psutil.NoSuchProcess:
                continue

    def during(self) -> list[tuple[int, int]]:
        """``memory`` up to the last event: what follows makes the summary."""
        return [seen for seen in self.memory if seen[0] < self.memory[-1][0]] or self.memory

    def grown(self) -> float:
        """Bytes of memory per byte of events.jsonl in the second half of the run."""
        seen = self.during()
        end, last = seen[-1]
        begin, first = next(each for each in seen if 2 * each[0] >= end)
        return (last - first) / (end - begin) if end > begin else 0.0


def most(memory: list[tuple[int, int]]) -> int:
    return max(rss for _, rss in memory)


def file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def folder_bytes(folder: Path) -> int:
    return sum(map(file_bytes, folder.iterdir())) if folder.is_dir() else 0


def measured(elements: int, rounds: int, setting: Setting, folder: Path) -> Sizes:
    """Run, and look at the run's folder and process meanwhile."""
    sizes, over = Sizes(), Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            sizes.look(folder / "out")

    watcher = Thread(target=look)
    watcher.start()
    try:
        run(elements, experiment(EDGES, rounds, setting, {"kind": "native"}), folder)
    finally:
        over.set()
        watcher.join()
    return sizes


def packed_bytes(table: Path) -> int:
    """The size of a table as a compressed part."""
    part = part_path(table, 1)
    part.write_bytes(table.read_bytes())
    pack(part, OwnDisk())
    return file_bytes(part.with_name(f"{part.name}{PACKED}"))


def rows_of(case: str, rounds: int | None) -> list[Row]:
    elements, usual = CASES[case]
    rounds = rounds or usual
    thousands = EDGES * rounds / 1000
    say(f"{case}: {EDGES * rounds} updates")
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as place:
        folder = Path(place)
        sizes = measured(elements, rounds, Setting("process"), folder)
        tables = [folder / "out" / name for name in (EVENTS, LINKS)]
        plain = {table.name: file_bytes(table) for table in tables}
        packed = {table.name: packed_bytes(table) for table in tables}
        model = file_bytes(folder / "out" / "model.safetensors")
    # the models of a large one come and go: what stays does not show
    grows = [
        Row(f"{case}: memory grows by", sizes.grown() * plain[EVENTS] / MB / thousands, PER, goal)
        for goal in [MEMORY_GOALS.get(case)]
        if goal is not None
    ]
    return [
        Row(f"{case}: {EVENTS}", plain[EVENTS] / MB / thousands, PER, EVENTS_GOAL),
        Row(f"{case}: {EVENTS}, compressed", packed[EVENTS] / MB / thousands, PER),
        Row(f"{case}: {LINKS}", plain[LINKS] / MB / thousands, PER),
        Row(f"{case}: {LINKS}, compressed", packed[LINKS] / MB / thousands, PER),
        Row(f"{case}: journal, at most", sizes.journal / MB, "MB"),
        Row(f"{case}: checkpoints, at most", sizes.checkpoints / MB, "MB"),
        Row(f"{case}: last model", model / MB, "MB"),
        Row(f"{case}: memory during the run, at most", most(sizes.during()) / MB, "MB"),
        *grows,
        Row(f"{case}: memory for the summary, at most", most(sizes.memory) / MB, "MB"),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--case", choices=CASES, action="append", help="may be repeated (default: all)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each case")
    chosen, host = parser.parse_args(), host_line()
    if chosen.rounds is not None and chosen.rounds < 2:
        raise UserError(f"--rounds {chosen.rounds}: expected 2 or more")
    keep_freed_memory()
    rows = [row for case in chosen.case or CASES for row in rows_of(case, chosen.rounds)]
    report("Growth of a run", host, rows, chosen.json)


if __name__ == "__main__":
    run_bench(main)
