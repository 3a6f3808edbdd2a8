"""Training of small networks: the compiled step against a plain loop of eager torch.

``networks``: client updates per second of the processor, in this process, on one thread. An update
is one task of a device. Two plain loops do nothing but the steps; the trainer also makes the task's
run and its update. All kinds take turns, so that other load on the machine affects them equally.
``code``: seconds of the processor to make a network's machine code, and to take it from the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.compiled.network import network_of
from edgefl.compiled.step import CompiledStep
from edgefl.config.experiment import Experiment
from edgefl.data.dataset import Dataset, Task, cross_entropy
from edgefl.errors import UserError
from edgefl.models import celeba_cnn, cnn, emnist_cnn, lenet5, mlp, tdma_cnn
from edgefl.protocol.messages import Assignment
from edgefl.vectors import aligned_copy

EAGER, BARE = "plain loop, eager torch", "plain loop, compiled step"
OURS, TORCH = "trainer, compiled step", "trainer, torch"
PULLED = "trainer, compiled step, FedAsync's rule"  # which changes each step's gradient
PLAIN, PULL = 0, 1  # strategies of a case's experiment
COUNTED = {OURS: (EAGER, BARE, TORCH), PULLED: (EAGER,)}  # the ratios that are printed
LEARNING_RATE = 0.01
CODE = "code"  # also the first argument of this file when it starts itself
PARTS = ("networks", CODE)


@dataclass(frozen=True, slots=True)
class Case:
    """A network and what a device trains in a task. ``goals``: by denominator, of the trainer."""

    name: str
    model: Any
    shape: tuple[int, int, int]
    batch: int
    samples: int = 600
    epochs: int = 1
    classes: int = 10
    options: dict[str, Any] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)

    def build(self) -> torch.nn.Module:
        built: torch.nn.Module = self.model.build(
            self.model.Options(**self.options), self.shape, self.classes
        )
        return built

    def task(self) -> Task:
        rng = np.random.Generator(np.random.PCG64(1))
        samples = rng.normal(size=(self.samples, *self.shape)).astype(np.float32)
        labels = rng.integers(0, self.classes, self.samples)
        dataset = Dataset(samples, labels, samples[:1], labels[:1], classes=self.classes)
        return Task(dataset, self.build)

    def learned(self, engine: str, scratch: Path) -> Learning:
        """What an experiment with one device has. Its strategies: FedAvg and FedAsync."""
        file = f"case_{CASES.index(self)}.py"
        (scratch / file).write_text(
            f"from training import CASES\n\nbuild = CASES[{CASES.index(self)}].task\n"
        )
        experiment = Experiment.model_validate(
            {
                "name": "training",
                "task": f"{file}:build",
                "edges": {"count": 1},
                "partition": {"name": "iid"},
                "training": {
                    "epochs": self.epochs,
                    "batch_size": self.batch,
                    "learning_rate": LEARNING_RATE,
                    "engine": engine,
                },
                "stop": {"versions": 1},
                "strategies": [
                    {"strategy": "fedavg", "clients_per_round": 1},
                    {"strategy": "fedasync"},
                ],
            }
        )
        return learning(experiment, scratch)


DIGIT = (1, 28, 28)
LETTER: dict[str, Any] = {"classes": 62, "samples": 120, "goals": {EAGER: ">= 3"}}
QUICKSTART: dict[str, Any] = {
    "options": {"hidden": [64]},
    "goals": {BARE: ">= 0.9", TORCH: ">= 3"},
}
CASES = (
    Case("lenet5", lenet5, DIGIT, 32, goals={EAGER: ">= 4.3"}),
    Case("mlp of the quickstart", mlp, (1, 8, 8), 16, 144, 2, **QUICKSTART),
    Case("mlp", mlp, DIGIT, 32),
    Case("tdma_cnn", tdma_cnn, DIGIT, 10, goals={EAGER: ">= 3"}),
    *(Case("emnist_cnn", emnist_cnn, DIGIT, batch, **LETTER) for batch in (4, 10, 32)),
    Case("cnn", cnn, (3, 32, 32), 10, 120),
    Case("celeba_cnn", celeba_cnn, (3, 84, 84), 4, 40, classes=2),
)


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the measurements. ``least_s``: of a rate, in seconds of the processor."""

    turns: int = 5
    least_s: float = 0.3
    cases: tuple[Case, ...] = CASES


FULL = Extent()
QUICK = Extent(1, 0.0, CASES[:2])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--turns", type=int, metavar="N", help=f"turns of each part (default: {FULL.turns})"
    )
    parser.add_argument("--quick", action="store_true", help="few updates: a quick check")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this part (repeatable; default: all)"
    )
    options, host = parser.parse_args(), host_line()
    extent = QUICK if options.quick else FULL
    if options.turns is not None:
        extent = replace(extent, turns=options.turns)
    if extent.turns < 1:
        raise UserError(f"--turns {extent.turns}: expected 1 or more")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-training-") as scratch:
        os.environ["EDGEFL_CACHE"] = f"{scratch}/cache"
        parts: dict[str, Callable[[], list[Row]]] = {
            "networks": lambda: networks(extent, Path(scratch)),
            CODE: lambda: code(extent, Path(scratch)),
        }
        rows = [row for part in options.part or PARTS for row in parts[part]()]
    report("Training", host, [*rows, Row("load after", float(load()))], options.json)


# ------------------------------------------------------------------ updates in this process
def networks(extent: Extent, scratch: Path) -> list[Row]:
    return [row for case in extent.cases for row in compared(case, extent, scratch)]


def compared(case: Case, extent: Extent, scratch: Path) -> list[Row]:
    name = f"{case.name}, batch {case.batch}"
    say(name)
    kinds = Updates(case, scratch).kinds()
    for update in kinds.values():
        update()  # warm-up
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(extent.turns):
        for kind, update in kinds.items():
            rates[kind].append(rate_of(update, extent.least_s))
    rows = [Row(f"{name}: {kind}", median(found), "updates/s") for kind, found in rates.items()]
    for kind, others in COUNTED.items():
        for other in others:
            ratio = median(one / two for one, two in zip(rates[kind], rates[other]))
            goal = case.goals.get(other) if kind == OURS else None
            rows.append(Row(f"{name}: {kind} / {other}", ratio, TIMES, goal))
    return rows


def rate_of(update: Callable[[], None], least_s: float) -> float:
    """Updates per second of the processor, over at least ``least_s`` seconds."""
    began_s, count = time.process_time(), 0
    while not count or time.process_time() - began_s < least_s:
        update()
        count += 1
    return count / (time.process_time() - began_s)


class Updates:
    """The kinds of updates of a case, on the same random samples."""

    def __init__(self, case: Case, scratch: Path) -> None:
        self.case, self.rng = case, np.random.Generator(np.random.PCG64(2))
        self.compiled, self.torch = (case.learned(name, scratch) for name in ("compiled", "torch"))
        self.start, (self.inputs, self.labels) = self.torch.initial_weights(), self.torch.train

    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            EAGER: self.eager(),
            BARE: self.bare(),
            OURS: self.trainer(self.compiled, PLAIN),
            TORCH: self.trainer(self.torch, PLAIN),
            PULLED: self.trainer(self.compiled, PULL),
        }

    def eager(self) -> Callable[[], None]:
        model = self.case.build()
        optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

        def update() -> None:
            for _ in range(self.case.epochs):
                order = torch.from_numpy(self.rng.permutation(self.case.samples))
                for index in torch.split(order, self.case.batch):
                    optimiser.zero_grad()
                    loss = cross_entropy(model(self.inputs[index]), self.labels[index])
                    torch.autograd.backward(loss)
                    optimiser.step()
                    loss.item()

        return update

    def bare(self) -> Callable[[], None]:
        case, arrays = self.case, (self.inputs.numpy(), self.labels.numpy())
        whole, rest = divmod(case.samples, case.batch)
        sizes = np.array(([case.batch] * whole + [rest] * bool(rest)) * case.epochs)
        rates = np.full(len(sizes), LEARNING_RATE, dtype=np.float32)
        step = CompiledStep(network_of(case.build(), case.shape))

        def update() -> None:
            weights = aligned_copy(self.start)
            passes = [self.rng.permutation(case.samples) for _ in range(case.epochs)]
            order = np.concatenate(passes)
            step.train(weights, None, *arrays, order, sizes, rates)

        return update

    def trainer(self, learned: Learning, strategy: int) -> Callable[[], None]:
        """A task after the other on the device, with the local rule of a strategy."""
        trainer, rule = learned.trainer("e000"), learned.rule(strategy)
        task = Assignment(1, 0, {"weights": self.start})

        def update() -> None:
            run = trainer.begin(task, rule, {})
            trainer.advance(run, rule)
            trainer.payload(run, rule)
            if run.failure is not None:
                raise UserError(f"{self.case.name}: a task has failed: {run.failure.reason}")

        return update


# ------------------------------------------------------------------ code
def code(extent: Extent, scratch: Path) -> list[Row]:
    """Each turn in two new processes with one new cache."""
    say("machine code: made, and from the cache")
    made: list[dict[str, float]] = []
    kept: list[dict[str, float]] = []
    for turn in range(extent.turns):
        cache = {"EDGEFL_CACHE": str(scratch / f"code-{turn}")}
        for found in (made, kept):
            words = [sys.executable, __file__, CODE]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=os.environ | cache)
            found.append(json.loads(done.stdout))
    return [
        Row(f"{name}: code {how}", median(turn[name] for turn in each), "s")
        for name in made[0]
        for how, each in (("made", made), ("from the cache", kept))
    ]


def time_code() -> None:
    """Print the seconds of the processor that each network's code takes this process."""
    # the first one also loads LLVM
    tiny = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 1))
    CompiledStep(network_of(tiny, (1, 1, 1)))
    spent = {}
    for name, case in {case.name: case for case in CASES}.items():
        network = network_of(case.build(), case.shape)
        began_s = time.process_time()
        CompiledStep(network)
        spent[name] = time.process_time() - began_s
    print(json.dumps(spent))


if __name__ == "__main__":
    if sys.argv[1:] == [CODE]:
        time_code()
    else:
        run(main)
