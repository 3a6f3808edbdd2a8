"""Runs of real processes that are broken again and again: do they make all their versions?

    python scripts/benchmarks/chaos.py [--versions 300] [--edges 10] [--case NAME] [--json FILE]

For each case, `edgefl coordinator` and ten `edgefl edge` make a run. Meanwhile processes are killed
or frozen, or the network between them is cut; a dead coordinator is resumed. The record, and what
the edges know as acknowledged, must prove that each update counts exactly once. Cases with two
machines need root and `ip`: the machines are network namespaces, and all use CURVE keys.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from table import Row, arguments, host_line, report, run, say

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
import namespace_pair as pair
from chaos_run import Cable, ChaosRun, write_config
from warm_python import WarmPython
from watched_edgefl import NONE

from edgefl.clocks.wall import keys as curve
from edgefl.errors import UserError

LOOK_S = 0.1
SEED = 1
GRACE = ("network.grace_s=60",)  # longer than a cut: tasks stay open


@dataclass(slots=True)
class Trial:
    """A run that is being broken. ``times``: how often so far."""

    run: ChaosRun
    versions: int
    cables: Sequence[Cable] = ()
    choose: random.Random = field(default_factory=partial(random.Random, SEED))
    times: int = 0

    @property
    def over(self) -> bool:
        return self.run.coordinator.poll() is not None

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the run has ended; whether it still goes on."""
        until_s = time.monotonic() + seconds
        while not self.over and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        return not self.over


# ------------------------------------------------------------------ faults: each breaks once
def kill_edge(trial: Trial) -> None:
    trial.run.kill_edge(trial.choose.choice(trial.run.names))


def freeze_edges(for_s: float, trial: Trial) -> None:
    """Freeze a fifth of the edges."""
    chosen = trial.choose.sample(trial.run.names, max(len(trial.run.names) // 5, 1))
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for edge in chosen:
            trial.run.signal_edge(edge, number)
        if number == signal.SIGSTOP:
            trial.wait(for_s)


def cut_cable(for_s: float, trial: Trial) -> None:
    """Break the connections of half of the edges, or let them be silent."""
    (cable,) = trial.cables
    silent = trial.times % 2 == 1
    (cable.silence if silent else cable.cut)()
    trial.wait(for_s)
    (cable.end_silence if silent else cable.restore)()


def kill_coordinator(trial: Trial) -> None:
    trial.run.kill_coordinator()
    trial.run.resume()


def kill_command(trial: Trial) -> None:
    """The coordinator's process ends the run, so the edges end, too."""
    trial.run.kill_launcher()
    trial.run.restart_edges()
    trial.run.resume()


def everything(trial: Trial) -> None:
    """An edge is killed, others are frozen, and at three moments the coordinator is killed."""
    kill_edge(trial)
    if trial.times % 2 == 1:
        freeze_edges(2.0, trial)
    if trial.times % 3 == 2 and trial.times < 9 and not trial.over:
        kill_coordinator(trial)


def cut_machine(for_s: float, trial: Trial) -> None:
    pair.cut(trial.run.places[1])
    time.sleep(for_s)
    pair.restore(trial.run.places[1])


def cut_one_way(for_s: float, trial: Trial) -> None:
    """Lose what goes to the coordinator, or what comes from it."""
    first, second = trial.run.places
    where, to = [(second, pair.FIRST), (first, pair.SECOND)][trial.times % 2]
    pair.lose_what_leaves(where, to)
    time.sleep(for_s)
    pair.lose_no_more(where, to)


def move_machine(trial: Trial) -> None:
    addresses = [pair.SECOND, pair.THIRD]
    old = trial.times % 2
    pair.move(trial.run.places[1], addresses[old], addresses[1 - old])


@dataclass(frozen=True, slots=True)
class Case:
    """A fault that comes again after ``every_s`` seconds, at most ``most`` times."""

    fault: Callable[[Trial], None]
    every_s: float
    most: int = 1_000_000
    cable: bool = False
    machines: bool = False
    state: bool = False  # edges keep their updates on disk


CASES = {
    "an edge killed every 2 s": Case(kill_edge, 2.0),
    "edges frozen for 2 s": Case(partial(freeze_edges, 2.0), 2.0),
    "connections cut or silent": Case(partial(cut_cable, 2.0), 2.0, cable=True),
    "coordinator killed 3 times": Case(kill_coordinator, 5.0, most=3),
    "command killed": Case(kill_command, 5.0, most=1, state=True),
    "everything": Case(everything, 2.0),
    "machine cut for 5 s": Case(partial(cut_machine, 5.0), 5.0, most=3, machines=True),
    "machine cut for 30 s": Case(partial(cut_machine, 30.0), 5.0, most=2, machines=True),
    "one direction cut for 3 s": Case(partial(cut_one_way, 3.0), 3.0, most=4, machines=True),
    "another address": Case(move_machine, 5.0, most=4, machines=True),
    "coordinator killed, two machines": Case(kill_coordinator, 5.0, most=3, machines=True),
}


@contextmanager
def places(machines: bool) -> Iterator[tuple[str, str]]:
    """The namespaces of the coordinator and of the edges."""
    if not machines:
        yield NONE, NONE
        return
    with pair.namespace_pair() as names:
        yield names


def tried(case: Case, edges: int, versions: int, folder: Path) -> tuple[Trial, float]:
    """Run until all versions are made; return the trial and its seconds."""
    write_config(folder, edges, versions)
    names = [f"e{number:03}" for number in range(edges)]
    with places(case.machines) as where:
        keys, host = None, "127.0.0.1"
        if case.machines:
            keys, host = folder / "keys", pair.FIRST
            curve.new(keys, names)
        words = GRACE if case.machines else ()
        made = ChaosRun(folder, names, host=host, places=where, keys=keys, words=words)
        made.state = case.state
        trial = Trial(made, versions)
        if case.cable:
            trial.cables = [Cable(trial.run, names[::2])]
        try:
            trial.run.start()
            began_s = time.monotonic()
            while trial.times < case.most and trial.wait(case.every_s):
                case.fault(trial)
                trial.times += 1
            status = trial.run.ended(trial.run.coordinator)
            if status:
                raise UserError(f"exit status {status}: {trial.run.said[-2000:]}")
            return trial, time.monotonic() - began_s
        finally:
            trial.run.close()


def rows(name: str, trial: Trial, took_s: float) -> list[Row]:
    found, acknowledged = trial.run.proof(), trial.run.witnessed("acknowledged")
    discarded = len(found.discarded)
    for fault in found.faults:
        say(f"{name}: {fault}")
    return [
        Row(f"{name}: faults", trial.times),
        Row(f"{name}: versions", found.version, "", f">= {trial.versions}"),
        Row(f"{name}: time", took_s, "s"),
        Row(f"{name}: updates that edges know as acknowledged", len(acknowledged)),
        Row(f"{name}: updates applied", len(found.applied)),
        Row(f"{name}: updates discarded with a reason", discarded),
        Row(f"{name}: duplicates", found.facts["duplicate"]),
        Row(f"{name}: resumptions", found.facts["resumed"]),
        Row(f"{name}: broken rules in the record", len(found.faults), "", "<= 0"),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--edges", type=int, default=10, metavar="N", help="(default: 10)")
    parser.add_argument(
        "--versions", type=int, default=300, metavar="N", help="of each run (default: 300)"
    )
    parser.add_argument(
        "--case", choices=CASES, action="append", help="only this; may be repeated (default: all)"
    )
    chosen, host = parser.parse_args(), host_line()
    if chosen.edges < 1 or chosen.versions < 1:
        raise UserError("expected --edges and --versions of 1 or more")
    subprocess.Popen = WarmPython  # type: ignore[misc]  # edges start in ms, not in seconds
    table: list[Row] = []
    for name in chosen.case or CASES:
        if CASES[name].machines and pair.refusal():
            say(f"{name}: left out: {pair.refusal()}")
            continue
        say(f"{name}: {chosen.edges} edges, {chosen.versions} versions")
        with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
            table += rows(name, *tried(CASES[name], chosen.edges, chosen.versions, Path(folder)))
    report("Runs that are broken again and again", host, table, chosen.json)


if __name__ == "__main__":
    run(main)
