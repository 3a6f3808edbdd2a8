"""Effect of malicious peers on a run: memory, other edges, verdict, record.

Measured are the coordinator's memory, the updates of the other edges, the verdict, and what
events.jsonl says about the malicious peer.

    python scripts/benchmarks/evil_edges.py [--json FILE] [--seconds 10] [--attack offers]
    python scripts/benchmarks/evil_edges.py --attack "half messages" [--connections 1500]

Each attack has a real coordinator process and three honest edges. The attacker is an admitted edge
that becomes malicious, or a stranger with many connections that never join: then the run is made
without and with keys, and one honest edge is started only after the attack has begun. The updates
of the honest edges are computed from edge and task, so they can be checked in the journal.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from attacks import ATTACKS, STRANGERS, Attack, EvilEdge, attack, marked, strangers
from protocol import Echo, digests, ended, fork_edge, listening, prepared
from reference import cpu_s
from table import Row, arguments, host_line, report, run, say

from edgefl.actor import COORDINATOR, Send
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import StopRun
from edgefl.clocks.processes import ONE_THREAD, keep_freed_memory
from edgefl.clocks.wall import keys as curve
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.protocol.messages import Assignment, Update
from edgefl.record import journal
from edgefl.results.read import read_events

MB = 1_000_000
ELEMENTS = 2_500
HONEST = ("good-0", "good-1", "good-2")
HARM = ("session_ended", "discarded", "duplicate", "wire_error", "refused", "quarantined")
SETTLING_S = 1.0  # from the coordinator's start: time for all to join and for some updates
LOOK_S = 0.02
NAMING_S, SOON_S = 20.0, 0.2
PATIENCE_S = 60.0
ORDINARY = ("task_started", "update_ready", "edge_waits")
SHOWN_FACTS = 3
GROWTH_GOAL = "<= 50"  # MB
STORM_GOAL = "<= 40"  # MB


class Honest(Echo):
    """An edge's actor whose updates identify edge and task, so that damage is visible."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def receive(self, message: Any, now: int) -> list[Send]:
        if not isinstance(message, Assignment):
            return []
        vectors = {"weights": marked(self.name, message.number, message.vectors["weights"].size)}
        update = Update(message.number, message.version, vectors, {"samples": 1.0})
        return [Send(COORDINATOR, update)]


@dataclass(slots=True)
class Trial:
    """The outcome of a run with malicious edges.

    ``arrived``: intact updates by honest edge; ``spoiled``: number of updates with wrong bytes;
    ``harmed``: other harm to honest edges, as rows of events.jsonl.
    """

    base_bytes: int = 0
    peak_bytes: int = 0
    end_bytes: int = 0
    most_files: int = 0  # open files of the coordinator
    cpu: float = 0.0  # cores that the coordinator used during the attack
    summary: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    arrived: Counter[str] = field(default_factory=Counter)
    spoiled: int = 0
    harmed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def growth_mb(self) -> float:
        return (self.peak_bytes - self.base_bytes) / MB

    @property
    def missing(self) -> int:
        """Number of tasks that honest edges began and whose updates never arrived.

        The task that each edge has at the end of the run does not count.
        """
        began = Counter(line["edge"] for line in self.events if line.get("fact") == "task_started")
        return sum(max(began[edge] - self.arrived[edge] - 1, 0) for edge in HONEST)

    @property
    def verdict(self) -> str:
        found = self.summary["fidelity"]
        return ", ".join([found["verdict"], *found["reasons"]])

    def about(self, edge: str) -> Counter[str]:
        """Count the facts on record about an edge, without ordinary ones."""
        return Counter(
            ": ".join(filter(None, (line["fact"], line.get("reason"))))
            for line in self.events
            if line.get("edge") == edge and line.get("fact", ORDINARY[0]) not in ORDINARY
        )

    def named(self, name: str) -> str | None:
        """Return the fact that names the edge of this attack as expected; None without one."""
        wanted = re.compile(ATTACKS[name].named)
        return next((fact for fact in self.about(evil_id(name)) if wanted.match(fact)), None)


def evil_id(attack: str) -> str:
    return "evil-" + re.sub("[^a-z]+", "-", attack)


def experiment(edges: Sequence[str]) -> Experiment:
    return Experiment.model_validate(
        {
            "edges": {"names": edges},
            "links": {"up_mbit_s": 4.0, "down_mbit_s": 4.0, "latency_ms": 5.0},
            "devices": {"kind": "native"},
            "network": {"heartbeat_s": 0.2, "liveness_s": 2.0, "grace_s": 0.5},
            "stop": {"emulated_s": 3600.0},
            "evaluation": {"every_versions": 0},
            "record": {"payloads": True},
            "strategies": ({"strategy": "fedasync", "concurrency": len(edges)},),
        }
    )


@dataclass(frozen=True, slots=True)
class Storm:
    """Strangers: each of ``connections`` sends ``what``. ``again``: and connects again if cut."""

    what: str
    connections: int
    again: bool = False


def trial(
    names: Sequence[str],
    seconds: float,
    base: Path,
    storm: Storm | None = None,
    keyed: bool = False,
    most_files: int | None = None,
) -> Trial:
    """Run these attacks at the same time for ``seconds``; the coordinator runs in ``base``.

    ``most_files``: its limit of open files.
    """
    evil = {evil_id(name): ATTACKS[name] for name in names}
    config, layout = experiment([*HONEST, *evil]), prepared(base, ELEMENTS)
    keyed = keyed or any(what.keyed for what in evil.values())
    keys = base / "keys" if keyed else None
    if keys is not None:
        curve.new(keys, config.edges.ids())
    control, theirs = Channel.pair()
    command = [
        *(sys.executable, "-m", "edgefl.clocks.wall.coordinator.process"),
        *(str(theirs.fileno()), "-1"),
    ]
    if most_files is not None:
        command = ["bash", "-c", f'ulimit -n {most_files}; exec "$@"', "coordinator", *command]
    coordinator = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
    theirs.close()
    children: list[int] = []
    try:
        port = listening(control, config, base, keys)
        begin_s = time.monotonic() + SETTLING_S

        def start(edge: str) -> None:
            own = None if keys is None else curve.load_edge(keys, edge)
            children.append(fork_edge(edge, port, config, layout, Honest(edge), own))

        late = 0 if storm is None else 1
        for edge in HONEST[late:]:
            start(edge)
        if storm is not None:
            children.append(fork_strangers(storm, port, keyed, begin_s))
        for edge, what in evil.items():
            own = None if keys is None else curve.load_edge(keys, edge)
            attacker = EvilEdge(edge, port, ELEMENTS, digests(config, layout), own)
            children.append(fork_evil(attacker, what, begin_s))
        found = Trial()
        process = psutil.Process(coordinator.pid)
        watch(found, process, begin_s, begin_s + seconds / 3)
        for edge in HONEST[:late]:
            start(edge)
        watch(found, process, begin_s, begin_s + seconds)
        wait_for_names(found, names, base / "out")
        if storm is not None:
            os.kill(children[len(HONEST) - late], signal.SIGSTOP)
            found.end_bytes = process.memory_info().rss
        control.send(StopRun("measured"))
        answer = control.receive(PATIENCE_S)
        if answer is None:
            raise UserError(f"{', '.join(names)}: the run did not end within {PATIENCE_S:g} s")
        found.summary = ended(answer, control).summary
        coordinator.wait()
    finally:
        coordinator.kill()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    judge(found, base / "out")
    return found


def fork_strangers(storm: Storm, port: int, keyed: bool, begin_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        what = STRANGERS[storm.what](keyed)
        strangers(port, storm.connections, what, begin_s, storm.again)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def fork_evil(evil: EvilEdge, what: Attack, begin_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        attack(evil, what, begin_s)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def watch(found: Trial, process: psutil.Process, begin_s: float, until_s: float) -> None:
    """Measure the coordinator's memory until ``until_s``.

    The base is the last one before ``begin_s``, or the first one if the start took longer.
    """
    began_s, used_s = max(begin_s, time.monotonic()), cpu_s(process)
    while (now_s := time.monotonic()) < until_s:
        rss = process.memory_info().rss
        if now_s < begin_s or not found.base_bytes:
            found.base_bytes, used_s = rss, cpu_s(process)
        found.peak_bytes = max(found.peak_bytes, rss)
        found.most_files = max(found.most_files, process.num_fds())
        time.sleep(LOOK_S)
    found.cpu = (cpu_s(process) - used_s) / (time.monotonic() - began_s)


def wait_for_names(found: Trial, names: Sequence[str], directory: Path) -> None:
    """Wait until the record names all attackers, which takes longer on a busy machine."""
    until_s = time.monotonic() + NAMING_S
    while time.monotonic() < until_s:
        found.events = read_events(directory / "events.jsonl")
        if all(found.named(name) for name in names):
            return
        time.sleep(SOON_S)


def judge(found: Trial, directory: Path) -> None:
    """Read from the run's files what happened to the honest edges."""
    found.events = read_events(directory / "events.jsonl")
    entries = journal.read(directory / "journal")
    for event in (event for entry in entries for event in entry.events):
        row = event.row
        if row["event"] == "update_arrived" and row["edge"] in HONEST:
            expected = marked(row["edge"], row["task"], ELEMENTS)
            whole = np.array_equal(event.arrays["weights"], expected)
            found.arrived[row["edge"]] += whole
            found.spoiled += not whole
    found.harmed = [
        line
        for line in found.events
        if line.get("edge") in HONEST
        and (line.get("fact") in HARM or line.get("event") in ("edge_lost", "task_closed"))
    ]


def rows(name: str, found: Trial) -> list[Row]:
    about = found.about(evil_id(name)).most_common(SHOWN_FACTS)
    named = found.named(name)
    return [
        Row(f"{name}: RSS of the coordinator grows by", found.growth_mb, "MB", GROWTH_GOAL),
        Row(f"{name}: honest updates that came whole", found.arrived.total(), "", ">= 1"),
        Row(
            f"{name}: honest updates spoiled or missing", found.spoiled + found.missing, "", "<= 0"
        ),
        Row(f"{name}: honest edges disturbed", len(found.harmed), "", "<= 0"),
        Row(f"{name}: verdict", found.verdict),
        Row(f"{name}: the edge is named", int(named is not None), "", ">= 1"),
        Row(f"{name}: for", named or ", ".join(f"{count} x {what}" for what, count in about)),
    ]


def storm_rows(name: str, found: Trial) -> list[Row]:
    told = Counter(
        row["reason"] for row in found.events if row.get("fact") in ("stranger", "quarantined")
    )
    joined = [row for row in found.events if row.get("event") == "edge_joined"]
    late = sum(row["edge"] == HONEST[0] for row in joined)
    counted = found.summary["fidelity"]["strangers"]
    return [
        Row(f"{name}: RSS of the coordinator before", found.base_bytes / MB, "MB"),
        Row(f"{name}: RSS grows by", found.growth_mb, "MB", STORM_GOAL),
        Row(f"{name}: RSS at the end", found.end_bytes / MB, "MB"),
        Row(f"{name}: open files at most", found.most_files),
        Row(f"{name}: processor of the coordinator", found.cpu, "cores"),
        Row(f"{name}: honest updates that came whole", found.arrived.total(), "", ">= 1"),
        Row(f"{name}: of the edge that started during the attack", found.arrived[HONEST[0]], ""),
        Row(f"{name}: times that it joined", late, "", ">= 1"),
        Row(f"{name}: honest edges disturbed", len(found.harmed), "", "<= 0"),
        Row(f"{name}: rows in events.jsonl", told.total(), "", "<= 3"),
        Row(f"{name}: they say", "; ".join(told) or "nothing"),
        Row(f"{name}: counts", ", ".join(f"{what} {count}" for what, count in counted.items())),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration of each attack (default: 10)",
    )
    parser.add_argument(
        "--attack",
        choices=[*ATTACKS, *STRANGERS],
        action="append",
        help="only this; may be repeated (default: all)",
    )
    parser.add_argument(
        "--connections",
        type=int,
        default=1500,
        metavar="N",
        help="of strangers (default: 1500)",
    )
    parser.add_argument(
        "--again", action="store_true", help="strangers connect again when they are cut"
    )
    parser.add_argument(
        "--open-files", type=int, metavar="N", help="the coordinator's limit, for strangers"
    )
    chosen, host = parser.parse_args(), host_line()
    if chosen.seconds <= 0:
        raise UserError(f"--seconds {chosen.seconds:g}: expected more than 0")
    keep_freed_memory()
    table: list[Row] = []
    wanted = chosen.attack or [*ATTACKS, *STRANGERS]
    for name, keyed in itertools.product(
        [name for name in wanted if name in STRANGERS], (False, True)
    ):
        title = f"{name}, {'with' if keyed else 'without'} keys"
        say(f"{title}: {chosen.seconds:g} s")
        storm = Storm(name, chosen.connections, chosen.again)
        with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
            found = trial([], chosen.seconds, Path(folder), storm, keyed, chosen.open_files)
        table += storm_rows(title, found)
    for name in [name for name in wanted if name in ATTACKS]:
        say(f"{name}: {chosen.seconds:g} s")
        with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
            table += rows(name, trial([name], chosen.seconds, Path(folder)))
    report("Malicious peers", host, table, chosen.json)


if __name__ == "__main__":
    run(main)
