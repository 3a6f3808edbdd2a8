"""Golden bytes: whether two trees leave the same bytes under the virtual clock.

    python scripts/golden.py                      print a digest for each file of each run
    python scripts/golden.py --against DIR        run the same with the tree in DIR, and compare

The runs: every strategy, with and without workers; faults, absences, TDMA, jobs, energy, both
compressions, dissemination on slow and on shared links, pushes, several seeds, runs without
training, a model with a compiled step, and a run that is broken off with Ctrl-C and resumed. The
columns of `metrics.csv` and `energy.csv` that hold real time are left out. Only the command line
and `edgefl.api` are used, so trees with another layout can be compared. The exit status is 1 if a
file differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
REAL_TIME = ("wall_s", "cpu_s")  # columns that no run repeats
FILES = ("events.jsonl", "links.csv", "metrics.csv", "slots.csv", "energy.csv", "edges.csv")
FILES += ("labels.csv", "model.safetensors")
Runs = dict[str, dict[str, Any]]

TASK = '''"""Two clouds of points, and a small network with a normalisation."""
import numpy as np
from torch import nn
from edgefl.api import Dataset, Task

def build():
    labels = np.arange(244) % 2
    points = np.random.Generator(np.random.PCG64(1)).normal(labels[:, None] * 2.0, 1.0, (244, 2))
    data = Dataset(points[:204].astype(np.float32), labels[:204],
                   points[204:].astype(np.float32), labels[204:], classes=2)
    return Task(data, lambda: nn.Sequential(
        nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)))
'''
PUSHES = '''"""Strategies that push the current model to the edges at work that do not have it."""
from edgefl.api import LocalRule, Push, SendFresh, SetAlarm, load_strategy

FedAsync = load_strategy("fedasync")

class Half(LocalRule):
    def pushed(self, run, model, version, numbers):
        own = run.weights.numpy()
        own[:] = (own + model) / 2

class Asks(Half):
    def checkpoint(self, run):
        return range(1, run.steps, 2)
    def merge(self, run, fresh, version):
        run.weights.numpy()[:] = fresh

class TrainsOn(Asks):
    on_request = "train_on"

class Wonders(Asks):
    def asks(self, run):
        return bool(run.weights[0] < run.start[0])

class Anew(LocalRule):
    on_push = "restart"

class Pusher(FedAsync):
    rule, every_ns, times = Half, 300_000_000, 1
    def started(self, now):
        return [*super().started(now), SetAlarm("push", now + self.every_ns)]
    def rang(self, name, now):
        if name != "push":
            return super().rang(name, now)
        older = [edge for edge in sorted(self.running) if self.running[edge] < self.version]
        self.mark_running(older)
        return [*self.push(older) * self.times, SetAlarm("push", now + self.every_ns)]

class Often(Pusher):
    times = 3

class Asking(Pusher):
    rule = Asks

class TrainingOn(Pusher):
    rule = TrainsOn

class Wondering(Pusher):
    rule = Wonders

class BeginningAnew(Pusher):
    rule = Anew
'''
PUSHERS = ("Pusher", "Often", "Asking", "TrainingOn", "Wondering", "BeginningAnew")
BASE: dict[str, Any] = {
    "seed": 3,
    "task": "task.py:build",
    "edges": {"count": 6},
    "links": {"up_mbit_s": 0.1, "down_mbit_s": 0.3, "latency_ms": 7.0},
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
    "training": {"batch_size": 17, "epochs": 2},
    "stop": {"versions": 8},
}
TDMA = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
CELL = {"kind": "cell", "up_mbit_s": 0.2, "down_mbit_s": 0.4}
PERIODIC = {"concurrency": 2, "clients_per_trigger": 2, "period_s": 1.0}
BUFFERED = {**PERIODIC, "buffer_size": 2}
SMALL_STEP = {**BUFFERED, "server_learning_rate": 0.1}
ROUNDS = {"clients_per_round": 3}
GRADIENTS = {"buffer_size": 2}
SLOTTED = {"per_round": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("asofed", "fedasmu", "fedasmu-0", "fedasmu-da", "fedasmu-fa"), PERIODIC),
    **dict.fromkeys(("fedasync", "feddelay", "fedsa", "syncdrop"), PERIODIC),
    "asyncpart": {**PERIODIC, "slot_s": 1.0},
    "port": {**PERIODIC, "least_updates": 2},
    "ace": PERIODIC,
    "fedcompass": {},
    **dict.fromkeys(("ca2fl", "fedbuff", "fedecho", "fedpsa", "fedstaleweight"), BUFFERED),
    **dict.fromkeys(("fadas", "fedac"), SMALL_STEP),
    **dict.fromkeys(("fedavg", "feddyn", "fedlws", "fedprox", "fedssmu", "moon"), ROUNDS),
    **dict.fromkeys(("gsgm", "k-async", "sasgd", "twafl", "wkafl"), GRADIENTS),
    **dict.fromkeys(("wkafl-no-noniid", "wkafl-no-selection", "wkafl-no-staleness"), GRADIENTS),
    "zeno-plus-plus": {},
    **dict.fromkeys(("idfl", "sync-tdma-fl", "tdma-fl", "push-tdma"), SLOTTED),
    **dict.fromkeys(("push-on-improvement", "push-stalest"), PERIODIC),
}
FAULTS = [
    {"kind": "kill", "at_s": 6.0, "for_s": 4.0, "edges": ["e001"]},
    {"kind": "cut", "every_s": 8.0, "for_s": 1.0, "for_random": True},
    {"kind": "slow", "at_s": 3.0, "for_s": 5.0, "factor": 0.3, "edges": ["e002"]},
    {"kind": "corrupt", "at_s": 4.0, "edges": ["e003"]},
    {"kind": "duplicate", "at_s": 5.0, "edges": ["e000"]},
]


def strategies(*names: str) -> list[dict[str, Any]]:
    return [{"strategy": name, **OPTIONS[name]} for name in names]


def runs() -> Runs:
    """The config of each case, by its name."""
    shared = [name for name in OPTIONS if OPTIONS[name] is not SLOTTED and name != "fedecho"]
    slotted = [name for name in OPTIONS if OPTIONS[name] is SLOTTED]
    few = strategies("fedavg", "fedasync", "fedbuff", "fedasmu", "wkafl")
    tdma = {"medium": TDMA, "strategies": strategies(*slotted, "fedasync")}
    of_devices = [fault for fault in FAULTS if fault["kind"] != "cut"]
    there = {"kind": "exponential", "there_s": 10.0, "away_s": 3.0}
    absent = {"count": 6, "availability": there}
    slow = {"up_mbit_s": 0.02, "down_mbit_s": 0.02, "latency_ms": 40.0}
    energy = {
        "devices": {**BASE["devices"], "energy": {"profile": "pi4"}},
        "links": {**BASE["links"], "radio": {"profile": "lte"}},
    }
    asking = strategies("fedasmu", "fedssmu", "fedasmu-fa")
    train_on = [entry | {"on_request": "train_on"} for entry in asking[:2]]
    pushing = [{"strategy": f"pushes.py:{name}", **PERIODIC} for name in PUSHERS]
    return {
        "all": {"strategies": strategies(*shared)},
        "workers": {"strategies": strategies(*shared), "stop": {"versions": 4}},
        "tdma": tdma,
        "tdma-faults": {**tdma, "faults": of_devices},
        "jobs": {"strategies": strategies("fedecho"), "unlabelled": {"size": 50}},
        "faults": {"strategies": few, "faults": FAULTS, "stop": {"emulated_s": 30.0}},
        "absences": {"strategies": few, "edges": absent, "stop": {"emulated_s": 30.0}},
        "energy": {"strategies": few, **energy},
        "compression": {"strategies": few, "compression": {"up": "int8", "down": "float16"}},
        "feedback": {"strategies": few, "compression": {"up": {"name": "top_k", "share": 0.2}}},
        "slow": {"strategies": asking, "links": slow},
        "train-on": {"strategies": train_on, "links": slow},
        "shared": {"strategies": few, "medium": CELL},
        "by-label": {"strategies": few, "evaluation": {"by_label": True}, "seeds": [1, 2]},
        "compiled": {
            "task": None,
            "data": {"name": "digits"},
            "model": {"name": "mlp"},
            "strategies": few,
            "edges": {"count": 5},
        },
        "untrained": {
            "strategies": [*few, *asking[1:]],
            "training": {**BASE["training"], "trainer": "none"},
            "evaluation": {"every_versions": 10},
            "stop": {"versions": 40},
        },
        "pushes": {"strategies": pushing, "training": {**BASE["training"], "batch_size": 5}},
        "pushes-faults": {
            "strategies": pushing,
            "edges": absent,
            "faults": FAULTS,
            "links": {**slow, "down_mbit_s": 0.05},
            "compression": {"up": "int8", "down": "int8"},
            "devices": {
                "samples_per_s": 30.0,
                "throttling": {"hot_share": 0.5, "budget_s": 2.0, "recovery_s": 9.0},
            },
            "stop": {"emulated_s": 60.0},
        },
        "resumed": {"strategies": few, "stop": {"versions": 150}},
    }


def edgefl(*words: str) -> list[str]:
    return [sys.executable, "-c", "from edgefl.cli import main; main()", *words]


def environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "200"}


def run(tree: Path, folder: Path, *words: str) -> None:
    done = subprocess.run(
        edgefl(*words),
        cwd=folder,
        env=environment(tree),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"golden: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def run_broken_off(tree: Path, folder: Path, *words: str) -> None:
    """Break the run off with Ctrl-C once it has some versions, and resume it."""
    process = subprocess.Popen(
        edgefl(*words),
        cwd=folder,
        env=environment(tree),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    rows = folder / "runs" / "resumed" / "fedasync" / "metrics.csv"
    while process.poll() is None and not (rows.exists() and rows.read_bytes().count(b"\n") > 20):
        time.sleep(0.01)
    if process.poll() is not None:
        sys.exit("golden: the run to be broken off ended first")
    process.send_signal(signal.SIGINT)
    process.wait()
    run(tree, folder, "run", "--resume", "runs/resumed")


def content(path: Path) -> bytes:
    """What two runs must have in common."""
    if path.suffix != ".csv":
        return path.read_bytes()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [{key: row[key] for key in row if key not in REAL_TIME} for row in rows]
    return repr(kept).encode()


def digests(tree: Path, cases: list[str]) -> Iterator[tuple[str, str]]:
    """Each file of each run, and the digest of its content."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        (folder / "task.py").write_text(TASK)
        (folder / "pushes.py").write_text(PUSHES)
        for case in cases:
            chosen = {"name": case} | BASE | runs()[case]
            config = {key: value for key, value in chosen.items() if value is not None}
            if "seeds" in config:
                del config["seed"]
            (folder / f"{case}.toml").write_text(tomli_w.dumps(config))
            words = ["run", f"{case}.toml", "--clock", "virtual"]
            words += ["--workers", "2"] if case in ("workers", "by-label") else []
            (run_broken_off if case == "resumed" else run)(tree, folder, *words)
            found = sorted(path for path in (folder / "runs" / case).rglob("*") if path.is_file())
            for path in found:
                if path.name in FILES:
                    label = str(path.relative_to(folder / "runs"))
                    yield label, hashlib.sha256(content(path)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, metavar="DIR", help="another tree")
    parser.add_argument("--case", action="append", choices=list(runs()), help="this case only")
    options = parser.parse_args()
    if options.against and not (options.against / "edgefl").is_dir():  # else Python takes ours
        parser.error(f"--against {options.against}: expected a folder with another tree of edgefl")
    differing = total = 0
    for case in options.case or list(runs()):
        ours = dict(digests(ROOT, [case]))
        if not options.against:
            print(*(f"{digest} {label}" for label, digest in ours.items()), sep="\n", flush=True)
            continue
        theirs = dict(digests(options.against.resolve(), [case]))
        other = sorted(
            label for label in ours.keys() | theirs.keys() if ours.get(label) != theirs.get(label)
        )
        print(f"{case}: {len(ours)} files, {len(other)} differ", *other, sep="\n  ", flush=True)
        differing, total = differing + len(other), total + len(ours)
    if options.against:
        print(f"{total} files, {differing} differ")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
