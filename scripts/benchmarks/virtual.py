"""How much of a virtual run is training, and what a second worker brings.

LeNet-5 on data of Fashion-MNIST's shape, 100 devices, FedBuff with K = 20. Client updates a second
are counted between two updates of a run, and compared with a bare torch loop over the same batches
in the same process, in turns, so that both meet the same neighbours.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from table import Row, arguments, host_line, load, report, run, say

from edgefl.config.experiment import Experiment
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
SERIAL_GOAL, WORKERS_GOAL, OVERHEAD_GOAL = ">= 0.95", ">= 1.8", "<= 10"
IDLE_GOAL, MEMORY_GOAL, AGENDA_GOAL = "<= 1", "<= 2", ">= 50000"  # s, GB, entries/s
FIRST = (
    60  # the update from which updates are counted: by then as many tasks are half done as later
)
IDLE, IDLE_UPDATES = 10_000, 500
AGENDA = 200_000
MANY_STEPS = 300  # of WKAFL: twice what it takes until every device has had its turn
MEMORY, MANY = "memory", "many"  # first argument of this file when it starts itself
GB = 1e9


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--turns", type=int, default=5, metavar="N", help="short runs of each sort (default: 5)"
    )
    parser.add_argument(
        "--updates", type=int, default=40, metavar="N", help="updates counted in each (default: 40)"
    )
    parser.add_argument("--ray", action="store_true", help="also with two Ray workers")
    options, host = parser.parse_args(), host_line()
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        bench = Bench(Path(scratch), options.updates)
        rows = [
            row
            for entry in (FEDBUFF, MERGING)
            for row in bench.speeds(entry, options.turns, options.ray)
        ]
        rows += [
            *bench.overhead(),
            bench.idle(),
            bench.agenda(),
            memory(),
            *many(),
            Row("load after", float(load())),
        ]
    report("Virtual runs", host, rows, options.json)


def experiment_of(strategy: dict[str, Any], devices: int = 100, **stop: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "virtual",
            "task": "virtual_task.py:build",
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
    """The runs, in ``scratch``; each counts ``updates``."""

    def __init__(self, scratch: Path, updates: int) -> None:
        self.scratch, self.updates = scratch, updates
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
        self, strategy: dict[str, Any], devices: int = 100, updates: int | None = None
    ) -> Learning:
        return learning(
            experiment_of(strategy, devices, updates=updates or FIRST + self.updates), HERE
        )

    # ------------------------------------------------------------------ updates a second
    def speeds(self, strategy: dict[str, Any], turns: int, ray: bool) -> list[Row]:
        learned, name = self.learned(strategy), strategy.get("label", strategy["strategy"])
        rates: dict[str, list[float]] = {"bare": [], "serial": [], "2 workers": []}
        inputs = learned.train[0][
            torch.arange(len(learned.train[1]))
        ]  # a run may normalise batch by batch; here it is done beforehand
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
            Row(f"{name}: serial / bare loop", serial, "", SERIAL_GOAL),
            Row(f"{name}: 2 workers / serial", both, "", WORKERS_GOAL),
        ]
        if ray:
            say(f"{name}: two Ray workers")
            with open_pool(learned, 2, "ray") as pool:
                rows.append(
                    Row(
                        f"{name}: 2 Ray workers / serial",
                        self.rate(learned, pool) / median(rates["serial"]),
                    )
                )
        return rows

    def rate(self, learned: Learning, pool: Engine | None) -> float:
        """Between update FIRST, when the queue is filled, and the last."""
        moments: dict[int, float] = {}
        self.run(
            learned,
            pool,
            lambda now, run: moments.setdefault(run.counters.updates_applied, time.perf_counter()),
        )
        return self.updates / (moments[FIRST + self.updates] - moments[FIRST])

    # ------------------------------------------------------------------ what is not training
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
        """Seconds of a run, and how many of them are neither trainer nor strategy nor
        evaluation.
        """
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

    def idle(self) -> Row:
        say(f"{IDLE} idle devices")
        times = []
        for devices in (100, 100 + IDLE):
            learned = self.learned(FEDBUFF, devices, IDLE_UPDATES)
            began = time.perf_counter()
            self.run(learned, Untrained(learned))
            times.append(time.perf_counter() - began)
        return Row(
            f"added by {IDLE} idle devices to {IDLE_UPDATES} updates",
            times[1] - times[0],
            "s",
            IDLE_GOAL,
        )

    def agenda(self) -> Row:
        """Entries that do nothing, one event each."""
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
        for at_ns in range(AGENDA):
            host.agenda.add(1000 * at_ns, lambda now: None)
        began = time.perf_counter()
        host.run({}, lambda now: opened.flush_now_and_then())
        return Row(
            "agenda entries dispatched without training",
            AGENDA / (time.perf_counter() - began),
            "1/s",
            AGENDA_GOAL,
        )


class Untrained(InProcessEngine):
    """Updates are what was sent down."""

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
    """Sum up the time in a method."""
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
    """Devices' epochs a second in plain torch: the steps that a run trains, and nothing else."""
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


def memory() -> Row:
    """In a process of its own: what was the most there is never forgotten."""
    say("3000 devices")
    done = subprocess.run(
        [sys.executable, __file__, MEMORY], capture_output=True, text=True, check=True
    )
    return Row(
        "peak resident size with 3000 devices, K = 20", float(done.stdout), "GB", MEMORY_GOAL
    )


def many() -> list[Row]:
    """In a process of its own, too."""
    say("3000 devices, all at work")
    done = subprocess.run(
        [sys.executable, __file__, MANY], capture_output=True, text=True, check=True
    )
    peak, overhead = map(float, done.stdout.split())
    what = "WKAFL, 3000 devices at work, K = 20"
    return [
        Row(f"peak resident size, {what}", peak, "GB", MEMORY_GOAL),
        Row(f"overhead, {what}", overhead, "%", OVERHEAD_GOAL),
    ]


def measure_many() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        given = experiment_of(WKAFL, 3000, versions=MANY_STEPS)
        given = given.model_copy(
            update={"training": given.training.model_copy(update={"batch_size": 16})}
        )
        wall, other = Bench(Path(scratch), 0).walls(learning(given, HERE))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB, 100 * other / wall)


def measure_memory() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-virtual-") as scratch:
        bench = Bench(Path(scratch), 0)
        bench.run(bench.learned(FEDBUFF | {"concurrency": 300}, 3000, 600))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEMORY]:
        sys.exit(measure_memory())
    if sys.argv[1:2] == [MANY]:
        sys.exit(measure_many())
    run(main)
