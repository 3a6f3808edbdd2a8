"""Cost of the protocol: a synchronous round without training or shaping, against raw ZeroMQ.

Real processes on loopback send the same bytes in both cases.

    python scripts/benchmarks/protocol.py [--json FILE] [--case 10x10]

Edges are processes that return each model at once. Each case runs without durable
acknowledgements (record.durability = "off"), with "process" and with "power", without and with
CURVE keys. Before each run with a journal, the same updates are appended to a file and nothing else
is done: that is what a journal costs at least. It also makes sure that the run finds memory for its
files, which a virtual machine may have to ask its host for.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import psutil
from reference import RawRounds, appending_s, cpu_s, raw_rounds
from safetensors.numpy import save_file
from table import TIMES, Row, arguments, host_line, report, say
from table import run as run_bench

from edgefl.actor import COORDINATOR, Send
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import FROZEN, Listening, ProgressLine, RunEnded, StartRun
from edgefl.clocks.processes import ONE_THREAD, keep_freed_memory
from edgefl.clocks.wall import keys as curve
from edgefl.clocks.wall.edge.host import EdgeHost
from edgefl.clocks.wall.edge.work import EdgeSide, OwnMachine
from edgefl.clocks.wall.keys import EdgeKeys
from edgefl.config.experiment import Experiment
from edgefl.config.file import shared_digest
from edgefl.errors import UserError
from edgefl.protocol.messages import Assignment, Update
from edgefl.vectors import Layout, LayoutEntry

MB = 1_000_000
CASES = {
    "2x0.25": (2, 0.25, 100),
    "10x0.25": (10, 0.25, 60),
    "50x0.25": (50, 0.25, 20),
    "10x10": (10, 10, 12),
    "2x45": (2, 45, 12),
}
# multiples of raw ZeroMQ, which copies and checks nothing
ROUND_GOALS = {
    "2x0.25": "<= 5",
    "10x0.25": "<= 3",
    "50x0.25": "<= 2.5",
    "10x10": "<= 1.4",
    "2x45": "<= 1.2",
}
DURABLE_GOAL = "<= 1.3"  # "process" as a multiple of "off"
RAW_TURNS = 5
DURABILITIES = ("off", "process", "power")
RAW_TIMES = 10  # times more rounds of raw ZeroMQ for a small model, because they are short
SPARE_MB = 4.0  # memory above the expected peak
JOINING_S = 1.0


class Echo:
    """An edge's actor that trains nothing."""

    def __init__(self) -> None:
        self.unacknowledged: dict[int, Update] = {}
        self.open_tasks: list[int] = []
        self.given_up, self.beyond, self.failed = 0, None, {}
        self.run, self.trainer, self.task = None, None, None  # an Echo never has a job

    def receive(self, message: Any, now: int) -> list[Send]:
        if not isinstance(message, Assignment):
            return []
        return [
            Send(
                COORDINATOR,
                Update(message.number, message.version, message.vectors, {"samples": 1.0}),
            )
        ]


@dataclass(slots=True)
class Outcome:
    """The measurements of one case."""

    rounds_s: list[float] = field(default_factory=list)  # without the first one
    cpu_s: float = 0.0  # of all rounds
    base_bytes: int = 0  # before the first round, with the model and all edges but one
    peak_bytes: int = 0
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run adds to the bare protocol. ``payloads``: keep every array for a replay."""

    durability: str = "off"
    keyed: bool = False
    payloads: bool = False

    def __str__(self) -> str:
        added = [", payloads"] * self.payloads + [", keys"] * self.keyed
        return f"durability {self.durability}{''.join(added)}"


BARE = Setting()


def experiment(
    edges: int, rounds: int, setting: Setting, links: dict[str, Any], strategy: str = "fedavg"
) -> Experiment:
    return Experiment.model_validate(
        {
            "edges": {"count": edges},
            "links": links,
            "devices": {"kind": "native"},
            "stop": {"versions": rounds},
            "evaluation": {"every_versions": 0},
            "record": {"payloads": setting.payloads, "durability": setting.durability},
            "strategies": ({"strategy": strategy, "label": "bench", "clients_per_round": edges},),
        }
    )


def run(elements: int, config: Experiment, base: Path, keyed: bool = False) -> Outcome:
    """Run a coordinator process and its echoing edges until the end."""
    layout, names = prepared(base, elements), config.edges.ids()
    keys = base / "keys" if keyed else None
    own: dict[str, EdgeKeys] = {}
    if keys is not None:
        curve.new(keys, names)
        own = {name: curve.load_edge(keys, name) for name in names}
    control, theirs = Channel.pair()
    module = "edgefl.clocks.wall.coordinator.process"
    command = [sys.executable, "-m", module, str(theirs.fileno()), "-1"]
    coordinator = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
    theirs.close()
    port = listening(control, config, base, keys)
    process, outcome = psutil.Process(coordinator.pid), Outcome()
    children = [fork_edge(name, port, config, layout, keys=own.get(name)) for name in names[:-1]]
    time.sleep(JOINING_S)
    outcome.base_bytes, used_s = process.memory_info().rss, cpu_s(process)
    children.append(fork_edge(names[-1], port, config, layout, keys=own.get(names[-1])))
    while (message := control.receive(timeout_s=0.02)) is None:
        children = [pid for pid in children if still_runs(pid)]
        with process.oneshot():
            outcome.cpu_s = cpu_s(process) - used_s
            outcome.peak_bytes = max(outcome.peak_bytes, process.memory_info().rss)
    coordinator.wait()
    for pid in children:
        os.waitpid(pid, 0)  # the edge ends when it learns that the run is over
    outcome.summary = ended(message, control).summary
    outcome.rounds_s = round_times(base / "out" / "events.jsonl")
    return outcome


def prepared(base: Path, elements: int) -> Layout:
    """Write a model of ``elements`` zeros to ``base``; return its layout."""
    layout = Layout((LayoutEntry("w", (elements,), 0, "parameter", ""),))
    save_file({"weights": np.zeros(elements, np.float32)}, base / "initial.safetensors")
    (base / "layout.json").write_bytes(orjson.dumps(layout.to_json()))
    (base / FROZEN).write_text("", encoding="utf-8")  # all weights travel
    return layout


def listening(control: Channel, config: Experiment, base: Path, keys: Path | None = None) -> int:
    """Start the run at the other end of ``control``; return the coordinator's port."""
    control.send(
        StartRun(
            experiment=config.model_dump_json(),
            index=0,
            directory=base / "out",
            base=base,
            scratch=base,
            data_digest="bench",
            keys=keys,
            more=False,
            strains=(),
            speed_auto=False,
            resume=False,
            engine="",
        )
    )
    heard = control.receive()
    if not isinstance(heard, Listening):
        raise UserError(f"the coordinator did not start: {heard}")
    return heard.port


def ended(message: Any, control: Channel) -> RunEnded:
    """The end of a run. ``message``: the first that its coordinator sent, maybe a line to read."""
    while isinstance(message, ProgressLine):
        message = control.receive()
    if not isinstance(message, RunEnded):
        raise UserError(f"the run failed: {message}")
    return message


def still_runs(pid: int) -> bool:
    """Return whether the edge process runs; RuntimeError if it failed."""
    gone, status = os.waitpid(pid, os.WNOHANG)
    if status:
        raise RuntimeError("an edge process failed")
    return not gone


def digests(config: Experiment, layout: Layout) -> tuple[str, str, str]:
    """Return the digests that an edge needs to join: config, layout, data."""
    return shared_digest(config, config.strategies[0]), layout.digest(), "bench"


def fork_edge(
    name: str,
    port: int,
    config: Experiment,
    layout: Layout,
    actor: Echo | None = None,
    keys: EdgeKeys | None = None,
) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        side = EdgeSide(
            actor or Echo(),
            *digests(config, layout),
            1,
            config.chosen_speed,
            8 * 4 * layout.size + MB,
        )
        EdgeHost(name, f"tcp://127.0.0.1:{port}", keys, lambda setup: side, OwnMachine()).run()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def round_times(events: Path) -> list[float]:
    """Return the seconds between versions, without the first round, which is the warm-up."""
    rows = [orjson.loads(line) for line in events.read_bytes().splitlines()]
    published = [
        row["t"]
        for row in rows
        if any(decision["do"] == "publish" for decision in row.get("decisions", []))
    ]
    return [later - earlier for earlier, later in itertools.pairwise(published)]


def measure(case: str, some: int | None) -> list[Row]:
    """Measure rounds of edgefl, and the same bytes over raw ZeroMQ."""
    edges, size_mb, usual = CASES[case]
    rounds = some or usual
    size, name = int(size_mb * MB), f"{case} MB"
    times, turns = rounds * RAW_TIMES if size < MB else rounds, 1 if some else RAW_TURNS
    say(f"{edges} edges, {size_mb} MB, {turns} x {rounds} rounds: raw ZeroMQ, edgefl")
    each = [  # in turns, because the machine's load changes
        (raw_rounds(edges, size, times), measured(edges, size // 4, rounds, BARE))
        for _ in range(turns)
    ]
    raw = RawRounds(median(r.round_s for r, _ in each), median(r.cpu_s for r, _ in each))
    ours_s = median(median(ours.rounds_s) for _, ours in each)
    ours_cpu_s = median(ours.cpu_s / rounds for _, ours in each)
    ours = each[-1][-1]
    base = ours.base_bytes / MB
    return [
        Row(f"round {name}", 1e3 * ours_s, "ms"),
        Row(f"round {name}, raw ZeroMQ", 1e3 * raw.round_s, "ms"),
        Row(f"round {name} / raw ZeroMQ", ours_s / raw.round_s, TIMES, ROUND_GOALS[case]),
        Row(f"coordinator CPU {name}", 1e3 * ours_cpu_s, "ms per round"),
        Row(f"coordinator CPU {name} / raw ZeroMQ", ours_cpu_s / raw.cpu_s, TIMES),
        Row(
            f"coordinator peak RSS {name} (base {base:.1f})",
            ours.peak_bytes / MB,
            "MB",
            # one more model: received frames may lie in the gap of a freed one
            f"<= {base + (2 * edges + 1) * size_mb + SPARE_MB:.1f}",
        ),
        *settings(case, rounds, ours_s),
    ]


def settings(case: str, rounds: int, bare_s: float) -> list[Row]:
    """Measure what durable acknowledgements, keys and payloads add. ``bare_s``: without them."""
    edges, size_mb, _ = CASES[case]
    say(f"{case} MB: durability, keys, payloads")
    found, append_s = {BARE: bare_s}, []
    every = [Setting(each, keyed) for keyed in (False, True) for each in DURABILITIES]
    for setting in (*every[1:], Setting("process", payloads=True)):
        if setting.durability != "off":
            append_s.append(appending_s(edges, int(size_mb * MB), rounds))
        outcome = measured(edges, int(size_mb * MB) // 4, rounds, setting)
        found[setting] = median(outcome.rounds_s)
    rows = []
    for setting, round_s in found.items():
        name, off = f"round {case} MB, {setting}", Setting("off", setting.keyed)
        if setting != BARE:
            rows.append(Row(name, 1e3 * round_s, "ms"))
        if setting != off:
            goal = DURABLE_GOAL if setting.durability == "process" else None
            goal = None if setting.payloads else goal
            rows.append(Row(f"{name} / {off}", round_s / found[off], TIMES, goal))
        elif setting.keyed:
            rows.append(Row(f"{name} / {BARE}", round_s / bare_s, TIMES))
    appending = f"appending the updates of a round {case} MB to a file"
    return [
        *rows,
        Row(f"{appending}, quickest", 1e3 * min(append_s), "ms"),
        Row(f"{appending}, slowest", 1e3 * max(append_s), "ms"),
    ]


def measured(edges: int, elements: int, rounds: int, setting: Setting) -> Outcome:
    """Measure one run over native links."""
    config = experiment(edges, rounds, setting, {"kind": "native"})
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        return run(elements, config, Path(folder), setting.keyed)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--case",
        choices=CASES,
        action="append",
        help="only this case, edges x MB of the model; may be repeated (default: all)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each case")
    chosen, host = parser.parse_args(), host_line()
    if chosen.rounds is not None and chosen.rounds < 2:  # the first round is the warm-up
        raise UserError(f"--rounds {chosen.rounds}: expected 2 or more")
    keep_freed_memory()  # as the warm parent does for its edges
    rows: list[Row] = []
    for case in chosen.case or CASES:
        rows += measure(case, chosen.rounds)
    report("Protocol cost", host, rows, chosen.json)


if __name__ == "__main__":
    run_bench(main)
