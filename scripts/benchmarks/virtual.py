"""Share of training in a virtual run, and the gain from a second worker.

LeNet-5 on data of Fashion-MNIST's shape, 100 devices, FedBuff with K = 20. The rate of client
updates between two updates of a run is compared with a plain torch loop over the same batches. Both
run in turn in the same process, so that other load on the machine affects both.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from reference import dispatch_s
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import Learning, learning
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.hosts.virtual.pool.deferred_run import RunOutcome
from edgefl.hosts.virtual.pool.engine import Engine, InProcessEngine, open_pool
from edgefl.hosts.virtual.pool.executor import Executor
from edgefl.hosts.virtual.run import run_virtual
from edgefl.jobs import Train
from edgefl.strategies.base.strategy import Strategy
from emulator.links.network import Network

HERE = Path(__file__).parent
FEDBUFF = {"strategy": "fedbuff", "concurrency": 40, "buffer_size": 20}
MERGING = {
    "strategy": "virtual_task.py:Merging",
    "label": "merging",
    "concurrency": 40,
    "buffer_size": 20,
}
WKAFL = {"strategy": "wkafl", "buffer_size": 20}
SERIAL_GOAL, WORKERS_GOAL = ">= 0.95", ">= 1.8"
# % of the wall clock: measured 1.1 to 1.2; 9.0 to 9.6 with 3000 devices at work
OVERHEAD_GOAL, MANY_OVERHEAD_GOAL = "<= 1.6", "<= 12"
# multiples of a bare loop: measured 86 to 100 and 2.4 to 3.7
IDLE_GOAL, AGENDA_GOAL = "<= 125", "<= 4.9"
MEMORY_GOAL = "<= 2"  # GB


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the measurements.

    ``first``: updates are counted from this one, when the number of half-finished tasks is steady.
    ``many_steps``: steps of WKAFL, twice as many as it takes until every device has had a turn.
    """

    updates: int = 40
    first: int = 60
    devices: int = 100
    idle: int = 10_000
    idle_updates: int = 500
    entries: int = 200_000
    fleet: int = 3000
    fleet_updates: int = 600
    many_steps: int = 300
    small: int = 0

    @property
    def task(self) -> str:
        return "build_small" if self.small else "build"


FULL, QUICK = (
    Extent(),
    Extent(2, 4, 100, 200, 10, 2000, 100, 4, 2, 1),
)  # QUICK: a quick check
MEMORY, MANY = "memory", "many"  # first argument of this file when it starts itself
GB = 1e9


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--turns", type=int, default=5, metavar="N", help="short runs of each kind (default: 5)"
    )
    parser.add_argument(
        "--updates",
        type=int,
        metavar="N",
        help=f"updates counted in each run (default: {FULL.updates})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small runs: a quick check",
    )
    parser.add_argument("--ray", action="store_true", help="also measure two Ray workers")
    options, host = parser.parse_args(), host_line()
    extent = QUICK if options.quick else FULL
    if options.updates is not None:
        extent = replace(extent, updates=options.updates)
    if options.turns < 1 or extent.updates < 1:
        raise UserError(
            f"--turns {options.turns} --updates {extent.updates}: expected 1 or more of each"
        )
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        bench = Bench(Path(scratch), extent)
        rows = [
            row
            for entry in (FEDBUFF, MERGING)
            for row in bench.speeds(entry, options.turns, options.ray)
        ]
        rows += [
            *bench.overhead(),
            *bench.idle(),
            *bench.agenda(),
            memory(extent),
            *many(extent),
            Row("load after", float(load())),
        ]
    report("Virtual runs", host, rows, options.json)


def experiment_of(
    strategy: dict[str, Any], devices: int = 100, task: str = "build", **stop: int
) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "virtual",
            "task": f"virtual_task.py:{task}",
            "edges": {"count": devices},
            "devices": {"samples_per_s": 500.0, "slowest_ratio": 5.0},
            "links": {"up_mbit_s": 20.0, "down_mbit_s": 100.0, "latency_ms": 10.0},
            "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.01},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "stop": stop,
            "strategies": [strategy],
        }
    )


class Bench:
    """The measured runs, in the folder ``scratch``."""

    def __init__(self, scratch: Path, extent: Extent) -> None:
        self.scratch, self.extent, self.updates = scratch, extent, extent.updates
        self.runs = 0

    def run(
        self,
        learned: Learning,
        pool: Engine | None = None,
        progress: Callable[[int, OpenRun], None] | None = None,
    ) -> dict[str, Any]:
        self.runs += 1
        return run_virtual(learned, 0, self.scratch / str(self.runs), progress, pool)

    def learned(
        self, strategy: dict[str, Any], devices: int | None = None, updates: int | None = None
    ) -> Learning:
        devices = devices or self.extent.devices
        updates = updates or self.extent.first + self.updates
        return learning(experiment_of(strategy, devices, self.extent.task, updates=updates), HERE)

    # ------------------------------------------------------------------ updates a second
    def speeds(self, strategy: dict[str, Any], turns: int, ray: bool) -> list[Row]:
        learned, name = self.learned(strategy), strategy.get("label", strategy["strategy"])
        rates: dict[str, list[float]] = {"bare": [], "serial": [], "2 workers": []}
        # a run may normalise each batch; here all data is normalised before
        inputs = learned.train[0][torch.arange(len(learned.train[1]))]
        say(f"{name}: {turns} turns of a bare loop, a serial run and a run with two workers")
        with open_pool(learned, 2) as pool:
            for _ in range(turns):
                rates["bare"].append(bare(learned, inputs, self.updates))
                rates["serial"].append(self.rate(learned, None))
                rates["2 workers"].append(self.rate(learned, pool))
        serial = median(of / bare_rate for of, bare_rate in zip(rates["serial"], rates["bare"]))
        both = median(
            of / serial_rate for of, serial_rate in zip(rates["2 workers"], rates["serial"])
        )
        rows = [
            Row(f"{name}: client updates, {sort}", median(found), "1/s")
            for sort, found in rates.items()
        ]
        rows += [
            Row(f"{name}: serial / bare loop", serial, TIMES, SERIAL_GOAL),
            Row(f"{name}: 2 workers / serial", both, TIMES, WORKERS_GOAL),
        ]
        if ray:
            say(f"{name}: two Ray workers")
            with open_pool(learned, 2, "ray") as pool:
                rows.append(
                    Row(
                        f"{name}: 2 Ray workers / serial",
                        self.rate(learned, pool) / median(rates["serial"]),
                        TIMES,
                    )
                )
        return rows

    def rate(self, learned: Learning, pool: Engine | None) -> float:
        """Return updates per second, from the update ``first`` to the last."""
        moments: dict[int, float] = {}
        self.run(
            learned,
            pool,
            lambda now, run: moments.setdefault(run.counters.updates_accepted, time.perf_counter()),
        )
        first = self.extent.first
        return self.updates / (moments[first + self.updates] - moments[first])

    # ------------------------------------------------------------------ overhead
    def overhead(self) -> list[Row]:
        say("overhead")
        wall, other = self.walls(self.learned(FEDBUFF, updates=3 * self.updates))
        return [
            Row(
                "overhead: (wall - trainer - strategy - evaluation) / wall",
                100 * other / wall,
                "%",
                OVERHEAD_GOAL,
            ),
            Row("overhead of an update", 1e3 * other / (3 * self.updates), "ms"),
        ]

    def walls(self, learned: Learning) -> tuple[float, float]:
        """Return the seconds of a run, and of its part outside trainer, strategy and evaluation."""
        spent = dict.fromkeys(("train", "do", "handle"), 0.0)
        with (
            timed(Executor, "train", spent),
            timed(Executor, "do", spent),
            timed(Strategy, "handle", spent),
        ):
            began = time.perf_counter()
            self.run(learned)
            wall = time.perf_counter() - began
        return wall, wall - sum(spent.values())

    def idle(self) -> list[Row]:
        idle, updates, times = self.extent.idle, self.extent.idle_updates, []
        say(f"{idle} idle devices")
        for devices in (100, 100 + idle):
            learned = self.learned(FEDBUFF, devices, updates)
            began = time.perf_counter()
            self.run(learned, Untrained(learned))
            times.append(time.perf_counter() - began)
        added, name = times[1] - times[0], f"added by {idle} idle devices to {updates} updates"
        return [
            Row(name, added, "s"),
            Row(
                f"{name} / a bare loop of {idle} turns", added / dispatch_s(idle), TIMES, IDLE_GOAL
            ),
        ]

    def agenda(self) -> list[Row]:
        """Measure agenda entries that do nothing."""
        entries = self.extent.entries
        learned = self.learned({"strategy": "edgefl.strategies.base.strategy:Strategy"})
        opened = OpenRun(
            learned.experiment,
            0,
            self.scratch / "agenda",
            HERE,
            learned.initial_weights(),
            learned.layout,
        )
        host = VirtualHost(opened.coordinator, {}, Network(), {}, Untrained(learned))
        for at_ns in range(entries):
            host.agenda.add(1000 * at_ns, lambda now: None)
        bare_s, began = dispatch_s(entries), time.perf_counter()
        host.run({}, lambda now: opened.flush_now_and_then())
        ours_s = time.perf_counter() - began
        return [
            Row("agenda entries dispatched without training", entries / ours_s, "1/s"),
            Row("agenda entries dispatched: time / bare loop", ours_s / bare_s, TIMES, AGENDA_GOAL),
        ]


class Untrained(InProcessEngine):
    """An engine without training: each update is the model that was sent down."""

    def __init__(self, learned: Learning) -> None:
        super().__init__(learned)

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train):
            return super().finish(job)
        job.run.step = job.until_step
        job.run.outcome = RunOutcome(
            {"weights": job.run.task.vectors["weights"]}, {"samples": 1.0}, {}
        )
        return None


@contextmanager
def timed(owner: type, name: str, spent: dict[str, float]) -> Iterator[None]:
    """Add the time spent in a method to ``spent``."""
    method = getattr(owner, name)

    def measured(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **keywords)
        finally:
            spent[name] += time.perf_counter() - began

    setattr(owner, name, measured)
    try:
        yield
    finally:
        setattr(owner, name, method)


def bare(learned: Learning, inputs: torch.Tensor, updates: int) -> float:
    """Return epochs of devices per second in plain torch, with the steps of a run only."""
    model, targets, section = learned.task.model(), learned.train[1], learned.experiment.training
    optimiser = torch.optim.SGD(model.parameters(), lr=section.learning_rate)
    rng = np.random.Generator(np.random.PCG64(1))
    began = time.perf_counter()
    for number in range(updates):
        members = learned.shards[f"e{number % len(learned.shards):03d}"]
        for index in torch.from_numpy(rng.permutation(members)).split(section.batch_size):
            optimiser.zero_grad()
            loss = learned.task.loss(model(inputs[index]), targets[index])
            loss.backward()
            optimiser.step()
            loss.item()
    return updates / (time.perf_counter() - began)


def memory(extent: Extent) -> Row:
    say(f"{extent.fleet} devices")
    (peak,) = alone(MEMORY, extent)
    return Row(f"peak resident size with {extent.fleet} devices, K = 20", peak, "GB", MEMORY_GOAL)


def many(extent: Extent) -> list[Row]:
    say(f"{extent.fleet} devices, all at work")
    peak, overhead = alone(MANY, extent)
    what = f"WKAFL, {extent.fleet} devices at work, K = 20"
    return [
        Row(f"peak resident size, {what}", peak, "GB", MEMORY_GOAL),
        Row(f"overhead, {what}", overhead, "%", MANY_OVERHEAD_GOAL),
    ]


def alone(what: str, extent: Extent) -> list[float]:
    """Return what a separate process prints, so that its peak memory is of this run only."""
    words = [sys.executable, __file__, what, *map(str, astuple(extent))]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def measure_many(extent: Extent) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        given = experiment_of(WKAFL, extent.fleet, extent.task, versions=extent.many_steps)
        given = given.model_copy(
            update={"training": given.training.model_copy(update={"batch_size": 16})}
        )
        wall, other = Bench(Path(scratch), extent).walls(learning(given, HERE))
    print(peak_gb(), 100 * other / wall)


def measure_memory(extent: Extent) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        bench = Bench(Path(scratch), extent)
        busy = {"concurrency": extent.fleet // 10}
        bench.run(bench.learned(FEDBUFF | busy, extent.fleet, extent.fleet_updates))
    print(peak_gb())


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB


ALONE = {MEMORY: measure_memory, MANY: measure_many}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ALONE:
        sys.exit(ALONE[sys.argv[1]](Extent(*map(int, sys.argv[2:]))))
    run(main)
