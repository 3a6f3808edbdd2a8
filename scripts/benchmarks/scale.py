"""How time and memory grow with the edges, the devices, the model and the record.

    python scripts/benchmarks/scale.py [--part NAME]... [--most N] [--page FILE] [--json FILE]

Parts: ``edges`` (real processes: time to join, memory), ``devices`` (virtual clock, no training:
start, memory, an update), ``model`` (the mean of ten updates), ``record`` (bytes of events.jsonl
and the time to read it), ``state_devices`` and ``state_model`` (what a strategy keeps, as in a
checkpoint, after each device has delivered). Each curve ends with the exponent k of the fit
y = c x^k; 0: it does not grow. Times are seconds of the processor, except those of real edges.
--page writes the table, and next to it a figure.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import orjson
from fleet import MB, Fleet
from fleet import experiment_of as fleet_of
from strategies import Server
from table import Row, arguments, host_line, report, run, say

from edgefl.checkpoints.codec import encode
from edgefl.config.experiment import Experiment
from edgefl.data.dataset import Dataset
from edgefl.data.task import Task
from edgefl.errors import UserError, needs
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.models import mlp
from edgefl.record.files import EVENTS
from edgefl.vectors import weighted_sum

SIZES = {
    "edges": (10, 30, 100, 300, 1000),
    "devices": (100, 1000, 10_000, 100_000),
    "model": (25_000, 250_000, 2_500_000, 25_000_000),  # parameters: 0.1 to 100 MB
    "record": (1000, 10_000, 100_000, 1_000_000),  # rows
    "state_devices": (10, 100, 1000),
    "state_model": (10_000, 100_000, 1_000_000),  # parameters
}
QUICK = {"edges": (2, 4), "devices": (10, 20), "model": (100, 200), "record": (10, 20)}
QUICK |= {"state_devices": (2, 4), "state_model": (100, 200)}
X_NAMES = {"edges": "edges", "devices": "devices", "model": "parameters", "record": "rows"}
X_NAMES |= {"state_devices": "devices", "state_model": "parameters"}
STRATEGIES = ("fedbuff", "port", "fedac", "asofed", "fedasmu", "ca2fl")
STATE_PARAMETERS, STATE_DEVICES = 10_000, 10  # while the other one is swept
AT_WORK, UPDATES, SAMPLES = 1000, 2000, 200_000
ALONE = "devices-alone"  # first argument of this file when it starts itself
REPEATS = 5


@dataclass(slots=True)
class Curve:
    """One quantity over the sizes of a part."""

    part: str
    name: str
    unit: str
    xs: list[float] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)

    @property
    def exponent(self) -> float:
        """k of the least-squares fit log y = log c + k log x; NaN with fewer than two sizes."""
        logs = [(math.log(x), math.log(y)) for x, y in zip(self.xs, self.ys) if y > 0]
        if len(logs) < 2:
            return math.nan
        return float(np.polyfit(*zip(*logs), 1)[0])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--part", action="append", choices=[*SIZES], help="only this part")
    parser.add_argument("--most", type=int, metavar="N", help="no sizes above N")
    parser.add_argument("--quick", action="store_true", help="small sizes: a quick check")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page and a figure")
    options, host = parser.parse_args(), host_line()
    if options.most is not None and options.most < 10:
        raise UserError(f"--most {options.most}: expected 10 or more")
    sizes = QUICK if options.quick else SIZES
    curves = [
        curve
        for part in options.part or sizes
        for curve in swept(part, [x for x in sizes[part] if x <= (options.most or math.inf)])
    ]
    if options.page is not None:
        write_page(options.page, host, curves)
    report("Scale", host, rows(curves), options.json)


def swept(part: str, sizes: Sequence[int]) -> list[Curve]:
    """Measure one part at each size."""
    curves: dict[str, Curve] = {}
    for size in sizes:
        say(f"{part}: {size}")
        for name, unit, value in MEASURES[part](size):
            curve = curves.setdefault(name, Curve(part, name, unit))
            curve.xs.append(float(size))
            curve.ys.append(value)
    return list(curves.values())


def rows(curves: Sequence[Curve]) -> list[Row]:
    found = []
    for curve in curves:
        for x, y in zip(curve.xs, curve.ys):
            found.append(Row(f"{x:,.0f} {X_NAMES[curve.part]}: {curve.name}", y, curve.unit))
        k = curve.exponent
        found.append(Row(f"{curve.part}: {curve.name}: exponent", None if math.isnan(k) else k))
    return found


Measured = list[tuple[str, str, float]]


# ------------------------------------------------------------------ what is measured
def edges(count: int) -> Measured:
    """Real edge processes on this machine, until all have joined; one more never does."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as scratch:
        fleet = Fleet(fleet_of(count + 1), Path(scratch))
        try:
            fleet.start_coordinator(fleet.start_warm())
            began_s = time.monotonic()
            fleet.fork(fleet.experiment.edges.ids()[:count])
            joined_s = fleet.told("joined") - began_s
            fleet.told("answered")
            pss = mean(each.memory_full_info().pss / MB for each in fleet.edges()[:20])
            server = fleet.server.memory_info().rss / MB
            fleet.end()
        finally:
            fleet.kill()
    return [
        ("all have joined", "s", joined_s),
        ("proportional set size of an edge", "MB", pss),
        ("resident size of the coordinator", "MB", server),
    ]


def devices(count: int) -> Measured:
    """A virtual run in a process of its own, so that its memory can be told."""
    done = subprocess.run(
        [sys.executable, __file__, ALONE, str(count)], capture_output=True, text=True
    )
    if done.returncode:
        raise UserError(f"{count} devices: {done.stderr[-500:]}")
    start_s, update_us, memory_mb = orjson.loads(done.stdout.splitlines()[-1])
    return [
        ("start", "s", start_s),
        ("an update", "us", update_us),
        ("memory of the devices", "MB", memory_mb),
    ]


def devices_alone(count: int) -> None:
    """Print [start s, us per update, MB] of a run of ``count`` devices without training."""
    learned = learning(devices_experiment(count), Path(__file__).parent)
    memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first_s: list[float] = []
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        run_virtual(
            learned,
            0,
            Path(folder) / "run",
            lambda now, run: None if first_s else first_s.append(time.process_time()),
        )
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb) / 1000
    update_us = (time.process_time() - first_s[0]) / UPDATES * 1e6
    print(orjson.dumps([first_s[0] - began_s, update_us, grown_mb]).decode())


def devices_experiment(count: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "scale",
            "task": "scale.py:build",
            "edges": {"count": count},
            "partition": {"name": "iid"},
            "training": {"trainer": "none"},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "stop": {"updates": UPDATES},
            "strategies": [
                {
                    "strategy": "fedbuff",
                    "concurrency": min(AT_WORK, max(count // 10, 1)),
                    "buffer_size": 10,
                }
            ],
        }
    )


def build() -> Task:
    """A task with samples for 100,000 devices and a tiny model."""
    rng = np.random.Generator(np.random.PCG64(1))
    samples = rng.integers(0, 255, (SAMPLES + 100, 1, 4, 4), dtype=np.uint8)
    labels = rng.integers(0, 10, SAMPLES + 100)
    dataset = Dataset(
        samples[:SAMPLES],
        labels[:SAMPLES],
        samples[SAMPLES:],
        labels[SAMPLES:],
        classes=10,
        mean=(125.0,),
        std=(57.0,),
    )
    return Task(dataset, lambda: mlp.build(mlp.Options(hidden=[8]), dataset.shape, dataset.classes))


def model(size: int) -> Measured:
    """The mean of ten updates, the mathematics of FedAvg."""
    vectors, weights = [np.ones(size, np.float32) for _ in range(10)], [0.1] * 10
    weighted_sum(vectors, weights)
    began_s = time.process_time()
    for _ in range(REPEATS):
        weighted_sum(vectors, weights)
    return [("mean of ten updates", "ms", spent_s(began_s) / REPEATS * 1e3)]


def spent_s(began_s: float) -> float:
    """Seconds of the processor since then; above 0, so that they have a logarithm."""
    return max(time.process_time() - began_s, 1e-9)


def record(count: int) -> Measured:
    """Rows like those of a run: their bytes, and the time to read them."""
    row: dict[str, Any] = {"event": "update_arrived", "edge": "e000", "number": 0, "based_on": 0}
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        path = Path(folder) / EVENTS
        with path.open("wb") as file:
            for number in range(count):
                file.write(orjson.dumps({"t": number / 7, **row, "number": number}) + b"\n")
        size_mb = path.stat().st_size / MB
        began_s = time.process_time()
        with path.open("rb") as file:
            rows_read = sum(1 for line in file if orjson.loads(line))
        read_s = spent_s(began_s)
    assert rows_read == count
    return [("size", "MB", size_mb), ("reading", "s", read_s)]


def state(parameters: int, count: int) -> Measured:
    """What each strategy keeps once all devices have delivered, the global model included."""
    found = []
    names = tuple(f"e{number:04d}" for number in range(count))
    for strategy in STRATEGIES:
        options = {"concurrency": count, "dispatch": "replace"}
        server = Server(strategy, options, parameters, names)
        for _ in names:
            server.update_s()
        kept = encode(server.strategy.state(), copy=False)
        kept_bytes = len(orjson.dumps(kept.tree))
        kept_bytes += sum(array.nbytes for array in kept.arrays.values())
        found.append((f"state of {strategy}", "MB", kept_bytes / MB))
    return found


MEASURES: dict[str, Callable[[int], Measured]] = {
    "edges": edges,
    "devices": devices,
    "model": model,
    "record": record,
    "state_devices": lambda count: state(STATE_PARAMETERS, count),
    "state_model": lambda parameters: state(parameters, STATE_DEVICES),
}


# ------------------------------------------------------------------ the page
def write_page(page: Path, host: str, curves: Sequence[Curve]) -> None:
    """Write the table as Markdown, and the figure next to it, with the name of the page."""
    figure = page.with_suffix(".svg")
    lines = [f"On {host.partition(';')[0]}:", "", "| what | unit | at each size | exponent |"]
    lines.append("|---|---|---|---:|")
    for curve in curves:
        cells = ", ".join(f"{x:,.0f}: {y:.3g}" for x, y in zip(curve.xs, curve.ys))
        name = f"{curve.name}, by {X_NAMES[curve.part]}"
        lines.append(f"| {name} | {curve.unit} | {cells} | {curve.exponent:.2f} |")
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with needs("lab", "the figure of --page"):
        from matplotlib import pyplot
    parts = list(dict.fromkeys(curve.part for curve in curves))
    drawn, axes = pyplot.subplots(1, len(parts), figsize=(4 * len(parts), 3.2), squeeze=False)
    for part, axis in zip(parts, axes[0]):
        for curve, marker in zip([each for each in curves if each.part == part], "os^vDx"):
            axis.loglog(curve.xs, curve.ys, marker=marker, label=f"{curve.name} ({curve.unit})")
        axis.set_xlabel(X_NAMES[part])
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    drawn.tight_layout()
    drawn.savefig(figure)


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        devices_alone(int(sys.argv[2]))
    else:
        run(main)
