"""Training and evaluation on a GPU, against the CPU of the same machine in the same run.

    python scripts/benchmarks/gpu.py [--part NAME]... [--quick] [--json FILE]

Parts: ``tasks`` (a task of each model), ``at-once`` (several tasks together), ``evaluation``, and
``runs`` (updates per second of virtual runs). Random data of the right shapes; no data set is
needed. Without a GPU it has the CPU's rows only; without transformers (extra "text") no BERT. A
relative difference is the L2 norm of the difference of two models, as a share of the model's norm.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from table import TIMES, Row, arguments, host_line, report, run, say
from text_memory import WORDS, write_model
from torch import nn
from virtual import experiment_of

from edgefl.config.experiment import Experiment
from edgefl.data.task import cross_entropy
from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.virtual.pool.engine import InProcessEngine
from edgefl.hosts.virtual.pool.merged import MergedSteps
from edgefl.hosts.virtual.run import run_virtual
from edgefl.models import lenet5, resnet20
from edgefl.models.evaluate import evaluate
from edgefl.models.torch_device import CPU, chosen, make_repeatable
from edgefl.models.workspace import Workspace, initial
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.streams import Streams

HERE = Path(__file__).parent
CLASSES = 10
RATE = 0.01
PARTS = ("tasks", "at-once", "evaluation", "runs")
SAME_GOAL, CLOSE_GOAL, NONE_GOAL = ">= 1", "<= 0.0001", "<= 0"
MINI_LM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
           "intermediate_size": 1536, "vocab_size": 30522}  # fmt: skip  # a table
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "vocab_size": 200}  # fmt: skip  # a table


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the measurements. ``at_once``: tasks trained together; ``first``: updates before
    the measured ones of a virtual run.
    """

    steps: int = 50
    lenet: tuple[int, ...] = (16, 64)
    resnet: int = 64
    text: int = 8
    tokens: int = 64
    shapes: tuple[tuple[str, Any], ...] = tuple(MINI_LM.items())
    at_once: tuple[int, ...] = (10, 50)
    pictures: int = 10_000
    updates: int = 60
    first: int = 20
    per_round: int = 10
    turns: int = 3
    task: str = "build"


FULL = Extent()
QUICK = Extent(2, (4,), 2, 2, 8, tuple(TINY.items()), (2,), 100, 4, 2, 2, 1, "build_small")


@dataclass(frozen=True, slots=True)
class Case:
    """A model with its samples, and how it is trained."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Any  # tensors, or Samples
    targets: Any
    batch: int
    loss: Callable[[Any, Any], Any] = cross_entropy


class Bench:
    """The measurements on the CPU and, if there is one, on ``gpu``."""

    def __init__(self, extent: Extent, gpu: torch.device | None, scratch: Path) -> None:
        self.extent, self.gpu, self.scratch = extent, gpu, scratch
        self.threads = torch.get_num_threads()
        self.places = {"CPU": CPU} | ({"GPU": gpu} if gpu else {})

    def facts(self) -> list[Row]:
        rows = [Row("torch", torch.__version__), Row("threads of torch", self.threads)]
        if self.gpu is not None:
            rows.append(Row("GPU", torch.cuda.get_device_name(self.gpu)))
        return rows

    def tasks(self) -> list[Row]:
        return [row for case in self.cases() for row in self.one_task(case)]

    def cases(self) -> list[Case]:
        extent = self.extent
        found = [self._pictures("lenet5", lenet5, (1, 28, 28), batch) for batch in extent.lenet]
        found.append(self._pictures("resnet20", resnet20, (3, 32, 32), extent.resnet))
        if importlib.util.find_spec("transformers") is not None:
            found.append(self._texts())
        else:
            say('no BERT: transformers is missing (extra "text")')
        return found

    def _pictures(self, name: str, model: Any, shape: tuple[int, ...], batch: int) -> Case:
        rng = np.random.Generator(np.random.PCG64(1))
        count = batch * self.extent.steps
        inputs = torch.from_numpy(rng.normal(size=(count, *shape)).astype(np.float32))
        targets = torch.from_numpy(rng.integers(0, CLASSES, count))
        return Case(
            f"{name}, batch {batch} of {shape[1]} x {shape[2]}",
            lambda: model.build(model.Options(), shape, CLASSES),
            inputs,
            targets,
            batch,
        )

    def _texts(self) -> Case:
        """Random texts and a BERT of random numbers, without dropout: it draws per device."""
        extent, rng = self.extent, np.random.Generator(np.random.PCG64(1))
        write_model(self.scratch / "model", dict(extent.shapes))
        for part in ("train", "test"):
            rows = [
                {"text": " ".join(rng.choice(WORDS, extent.tokens)), "label": number % 2}
                for number in range(extent.text * extent.steps)
            ]
            lines = "".join(f"{json.dumps(row)}\n" for row in rows)
            (self.scratch / f"{part}.jsonl").write_text(lines)
        learned = learning(text_experiment(self.scratch, extent.tokens), None)
        torch.set_num_threads(self.threads)
        layers, width = dict(extent.shapes)["num_hidden_layers"], dict(extent.shapes)["hidden_size"]
        name = f"BERT of {layers} x {width}, batch {extent.text} x {extent.tokens} tokens"
        return Case(name, learned.task.model, *learned.train, extent.text, learned.task.loss)

    # ------------------------------------------------------------------ one task
    def one_task(self, case: Case) -> list[Row]:
        say(case.name)
        seconds, weights = {}, {}
        for place, device in self.places.items():
            of = OnDevice(case, device)
            of.alone(1, 2)  # warm-up
            turns = [timed(device, partial(of.alone, 1)) for _ in range(self.turns(device))]
            seconds[place] = median(turn[0] for turn in turns)
            weights[place] = [turn[1] for turn in turns]
        what = f"{case.name}: a task of {self.extent.steps} steps"
        rows = [Row(f"{what}, {place}", spent, "s") for place, spent in seconds.items()]
        if self.gpu is None:
            return rows
        first, *others = weights["GPU"]
        repeated = [np.array_equal(first, other) for other in others]
        start = initial(case.build, Streams(1))
        here = weights["CPU"][0]
        return [
            *rows,
            Row(f"{what}, CPU / GPU", seconds["CPU"] / seconds["GPU"], TIMES),
            Row(f"{case.name}: GPU and CPU, weights", apart(first, here), "relative", CLOSE_GOAL),
            Row(
                f"{case.name}: GPU and CPU, change", apart(first - start, here - start), "relative"
            ),
            Row(f"{case.name}: GPU twice, equal bytes", int(all(repeated)), "1: yes", SAME_GOAL),
        ]

    def turns(self, device: torch.device) -> int:
        """The CPU is slow: one turn. A GPU needs two to show that it repeats itself."""
        return 1 if device == CPU else max(2, self.extent.turns)

    # ------------------------------------------------------------------ several tasks
    def many_tasks(self) -> list[Row]:
        extent = self.extent
        case = self._pictures("lenet5", lenet5, (1, 28, 28), extent.lenet[0])
        return [
            row
            for place, device in self.places.items()
            for count in (extent.at_once[:1] if device == CPU else extent.at_once)
            for row in self._many(case, count, place, device)
        ]

    def _many(self, case: Case, count: int, place: str, device: torch.device) -> list[Row]:
        say(f"{count} tasks at once on the {place}")
        of = OnDevice(case, device)

        def one_by_one() -> list[np.ndarray]:
            return [of.alone(number) for number in range(count)]

        of.together(count), of.alone(0, 2)  # warm-up
        alone_s, alone = timed(device, one_by_one)
        turns = [timed(device, partial(of.together, count)) for _ in range(self.turns(device))]
        spent, merged = median(turn[0] for turn in turns), turns[0][1]
        what = f"lenet5, batch {case.batch}: {count} tasks, {place}"
        worst = max(apart(*pair) for pair in zip(merged, alone))
        rows = [
            Row(f"{what}, one by one", alone_s, "s"),
            Row(f"{what}, together", spent, "s"),
            Row(f"{what}, one by one / together", alone_s / spent, TIMES),
            Row(f"{what}, largest difference of weights", worst, "relative", CLOSE_GOAL),
        ]
        if device != CPU:
            same = all(np.array_equal(merged, turn[1]) for turn in turns)
            rows.append(Row(f"{what}, twice, equal bytes", int(same), "1: yes", SAME_GOAL))
        return rows

    # ------------------------------------------------------------------ evaluation
    def evaluation(self) -> list[Row]:
        count = self.extent.pictures
        say(f"evaluation of {count} pictures")
        rng = np.random.Generator(np.random.PCG64(2))
        inputs = torch.from_numpy(rng.normal(size=(count, 1, 28, 28)).astype(np.float32))
        targets = torch.from_numpy(rng.integers(0, CLASSES, count))
        seconds = {}
        for place, device in self.places.items():
            space = Workspace(lenet)
            space.to(device)
            weights = initial(lenet, Streams(1))
            samples = inputs.to(device), targets.to(device)
            once = partial(evaluate, space, weights, *samples, cross_entropy)
            once()  # warm-up
            seconds[place] = median(timed(device, once)[0] for _ in range(self.extent.turns))
        what = f"lenet5: evaluation of {count} pictures"
        rows = [Row(f"{what}, {place}", spent, "s") for place, spent in seconds.items()]
        if "GPU" in seconds:
            rows.append(Row(f"{what}, CPU / GPU", seconds["CPU"] / seconds["GPU"], TIMES))
        return rows

    # ------------------------------------------------------------------ a whole run
    def runs(self) -> list[Row]:
        extent = self.extent
        kinds: list[tuple[str, str, int]] = [
            (place, str(device), at_once)
            for place, device in self.places.items()
            for at_once in (1, extent.per_round)
        ]
        rates, again = {}, {}
        for place, device, at_once in kinds:
            name = place if at_once == 1 else f"{place}, tasks_at_once = {at_once}"
            say(f"a virtual run: {name}")
            rates[name], summary = self.rate(device, at_once, self.scratch / name)
            if at_once > 1:
                again[name] = sum(summary["tasks_at_once"]["one_by_one"].values())
        what = f"virtual FedAvg of lenet5, {extent.per_round} of 100 devices"
        rows = [Row(f"{what}: {name}", rate, "updates/s") for name, rate in rates.items()]
        rows += [
            Row(f"{what}: {name} / CPU", rate / rates["CPU"], TIMES)
            for name, rate in list(rates.items())[1:]
        ]
        told = "groups that were trained again one by one"
        return rows + [
            Row(f"{what}: {name}, {told}", count, "", NONE_GOAL) for name, count in again.items()
        ]

    def rate(self, device: str, at_once: int, folder: Path) -> tuple[float, dict[str, Any]]:
        """Return updates per second after the first rounds, and the summary. No evaluation."""
        extent = self.extent
        strategy = {"strategy": "fedavg", "clients_per_round": extent.per_round}
        given = experiment_of(strategy, 100, extent.task, updates=extent.first + extent.updates)
        training = given.training.model_copy(update={"device": device, "tasks_at_once": at_once})
        learned = learning(given.model_copy(update={"training": training}), HERE)
        moments: dict[int, float] = {}

        def note(now: int, run: OpenRun) -> None:
            moments.setdefault(run.counters.updates_accepted, time.perf_counter())

        summary = run_virtual(learned, 0, folder, note, InProcessEngine(learned))
        torch.set_num_threads(self.threads)
        spent_s = moments[extent.first + extent.updates] - moments[extent.first]
        return extent.updates / spent_s, summary


def lenet() -> nn.Module:
    return lenet5.build(lenet5.Options(), (1, 28, 28), CLASSES)


def text_experiment(directory: Path, tokens: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "gpu",
            "data": {"name": "sentences", "dir": str(directory), "length": tokens},
            "model": {"name": "bert_classifier", "path": "model", "dropout": 0.0},
            "edges": {"count": 2},
            "partition": {"name": "iid"},
            "stop": {"versions": 1},
            "strategies": [{"strategy": "fedavg"}],
        }
    )


class OnDevice:
    """A case on a device. All tasks start from one model; each has its own order of samples."""

    def __init__(self, case: Case, device: torch.device) -> None:
        space = Workspace(case.build)
        space.to(device)
        samples = case.inputs.to(device), case.targets.to(device)
        plan = TrainingPlan(1, case.batch, RATE)
        self.trainer = Trainer(space, *samples, case.loss, plan, Streams(1), "e")
        self.start = initial(case.build, Streams(1))
        self.merged = MergedSteps(space, case.loss)
        self.rule = LocalRule(None)

    def alone(self, number: int, most_steps: int | None = None) -> np.ndarray:
        """Train a task, and return its update's weights."""
        run = self._begun(number, most_steps)
        self.trainer.advance(run, self.rule)
        return self._weights(run)

    def together(self, count: int) -> np.ndarray:
        """Train so many tasks at once, and return the weights of each."""
        runs = [self._begun(number) for number in range(count)]
        self.merged.train(self.trainer, runs, [self.rule] * count)
        return np.stack([self._weights(run) for run in runs])

    def _begun(self, number: int, most_steps: int | None = None) -> LocalRun:
        numbers = {} if most_steps is None else {"most_steps": float(most_steps)}
        task = Assignment(number, 0, {"weights": self.start}, numbers)
        return self.trainer.begin(task, self.rule, {})

    def _weights(self, run: LocalRun) -> np.ndarray:
        vectors, _ = self.trainer.payload(run, self.rule)
        if run.failure is not None:
            raise UserError(f"a task has failed: {run.failure.reason}")
        return vectors["weights"]


def timed(device: torch.device, work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of ``work()``, with all that it has started on the GPU, and its result."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda device: None
    wait(device)
    began_s = time.perf_counter()
    result = work()
    wait(device)
    return time.perf_counter() - began_s, result


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny models: a quick check")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this part (repeatable; default: all)"
    )
    options, host = parser.parse_args(), host_line()
    extent = QUICK if options.quick else FULL
    device = chosen("auto")
    make_repeatable(device)
    gpu = None if device == CPU else device
    if gpu is None:
        say(f"no GPU: torch {torch.__version__} finds none, so only the CPU is measured")
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch:
        os.environ["EDGEFL_CACHE"] = f"{scratch}/cache"
        bench = Bench(extent, gpu, Path(scratch))
        parts: dict[str, Callable[[], list[Row]]] = {
            "tasks": bench.tasks,
            "at-once": bench.many_tasks,
            "evaluation": bench.evaluation,
            "runs": bench.runs,
        }
        rows = bench.facts()
        for part in options.part or PARTS:
            rows += parts[part]()
    report("Training on a GPU", host, rows, options.json)


if __name__ == "__main__":
    run(main)
