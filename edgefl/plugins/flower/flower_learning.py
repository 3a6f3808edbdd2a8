"""A Flower app as a process's data, model and trainer: a task is one call of its ClientApp."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from edgefl.clocks.setup.learning import EdgeShares, Learning
from edgefl.config.experiment import Experiment, FlowerSection
from edgefl.data.dataset import Dataset, Task
from edgefl.edges.training import LocalRun, NullTrainer, Trainer, TrainingPlan, training_failure
from edgefl.errors import UserError
from edgefl.jobs import Evaluate, Scores
from edgefl.models.workspace import wrap
from edgefl.plugins.flower.flower_app import (
    AppTasks,
    FlowerApp,
    app_folder,
    first_round,
    packed,
    score,
    unpacked,
)
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned_copy

WHOLE = 1 << 40  # batch size: an epoch is one step


class AppModel(nn.Module):
    """The app's arrays as parameters and buffers. It computes nothing: the app does."""

    def __init__(self, layout: Layout, weights: np.ndarray) -> None:
        super().__init__()
        for entry in layout.entries:
            owner: nn.Module = self
            *folders, name = entry.name.split(".")
            try:
                for folder in folders:
                    if folder not in owner._modules:
                        owner.add_module(folder, nn.Module())
                    owner = owner.get_submodule(folder)
                values = torch.from_numpy(layout.view(weights, entry.name).copy())
                if entry.kind == "parameter":
                    owner.register_parameter(name, nn.Parameter(values))
                else:
                    owner.register_buffer(name, values)
            except (KeyError, AttributeError) as error:
                raise UserError(
                    f"its array {entry.name!r} has no name of a torch tensor: {error}"
                ) from error


@dataclass(slots=True)
class FlowerLearning(Learning):
    """The app of one process. Its clients are the edges: partition i is the i-th edge."""

    trains_itself: ClassVar[str] = "a Flower app"

    tasks: AppTasks = field(kw_only=True)

    @property
    def samples(self) -> dict[str, int]:
        ids = self.experiment.edges.ids()
        return dict(zip(ids, section_of(self.experiment).samples_of(len(ids))))

    @property
    def plan(self) -> TrainingPlan:
        return FlowerPlan(self.experiment.training.epochs, WHOLE, learning_rate=0.0)

    def initial_weights(self) -> np.ndarray:
        """The first model of the app's ServerApp, which draws it anew for each seed."""
        return _tasks(self.experiment, self.tasks.app).initial()

    def trainer(self, edge: str) -> Trainer:
        given = (
            self.workspace,
            *self.train,
            self.task.loss,
            self.plan,
            Streams(self.experiment.seed),
            edge,
            np.arange(self.samples[edge]),
        )
        if self.experiment.training.trainer == "none":
            return NullTrainer(*given)
        partition = self.experiment.edges.ids().index(edge)
        return FlowerTrainer(*given, tasks=self.tasks, partition=partition)

    def evaluate(self, job: Evaluate) -> Scores:
        """Let every client evaluate the model; return the means of loss and accuracy, weighted by
        the clients' examples, then the loss and the accuracy of each client.
        """
        found = [self._evaluated(edge, job) for edge in self.experiment.edges.ids()]
        examples, metrics = [count for count, _ in found], [each for _, each in found]
        section = section_of(self.experiment)
        names = score(metrics, section.loss, "loss"), score(metrics, section.accuracy, "acc")
        table = np.array([[each[name] for name in names] for each in metrics])
        loss, accuracy = np.average(table, axis=0, weights=examples).tolist()
        return None, loss, accuracy, *table.reshape(-1).tolist()

    def _evaluated(self, edge: str, job: Evaluate) -> tuple[int, dict[str, float]]:
        partition = self.experiment.edges.ids().index(edge)
        try:
            with seeded(Streams(self.experiment.seed), "flower evaluation", edge, job.version):
                return self.tasks.evaluate(partition, job.weights, job.version)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            raise UserError(
                f"{self.experiment.task}: its evaluation as edge {edge} failed: {name}{error}"
            ) from error


def flower_learning(experiment: Experiment, base: Path | None) -> FlowerLearning:
    """Load the app, and let its ServerApp make the first model."""
    torch.set_num_threads(1)
    assert experiment.task is not None
    folder = app_folder(experiment.task, [each for each in (base, Path.cwd()) if each is not None])
    run_config = folder.run_config(section_of(experiment).run_config)
    app = FlowerApp(folder, run_config, len(experiment.edges.ids()))
    tasks = _tasks(experiment, app)
    task = Task(_no_data(), _model(tasks))
    return FlowerLearning(
        experiment,
        base,
        task,
        EdgeShares({edge: np.zeros(1, np.int64) for edge in experiment.edges.ids()}),
        own_digest=folder.digest(run_config),
        tasks=tasks,
    )


def section_of(experiment: Experiment) -> FlowerSection:
    """The table [flower], which a Flower app needs."""
    if experiment.flower is None:
        raise UserError('flower: missing; task = "flower:PATH" needs flower.samples')
    return experiment.flower


def _tasks(experiment: Experiment, app: FlowerApp) -> AppTasks:
    with seeded(Streams(experiment.seed), "model"):
        return AppTasks(app, first_round(app))


def _model(tasks: AppTasks) -> Callable[[], nn.Module]:
    return lambda: AppModel(tasks.arrays.layout, tasks.initial())


def _no_data() -> Dataset:
    """A data set of one empty sample: the app has the data."""
    one, label = np.zeros((1, 1), np.float32), np.zeros(1, np.int64)
    return Dataset(one, label, one, label, classes=1)


STATE = "flower state"  # the client's state in the edge's memory
ANSWER = "flower answer"  # the client's examples and, if it returns one, its loss: run's memory
TOLD = ("epochs", "epochs_scale", "learning_rate", "learning_rate_scale", "most_steps")


@dataclass(frozen=True, slots=True)
class FlowerPlan(TrainingPlan):
    """A task is ``epochs`` passes over the edge's samples, which only take their time."""

    @property
    def remembers(self) -> tuple[str, ...]:
        return (STATE,)

    def steps(self, task: Assignment, rule: LocalRule, samples: int) -> int:
        """The epochs. ValueError for a task that changes how the edge trains."""
        told = next((name for name in TOLD if name in task.numbers), None)
        if told is not None:
            raise ValueError(f"the strategy sets {told}, and a Flower app trains by its own config")
        return self.epochs


class FlowerTrainer(Trainer):
    """Calls the app in the last step of a task; the steps before it only take their time."""

    def __init__(self, *args: Any, tasks: AppTasks, partition: int) -> None:
        """``args``: as for ``Trainer``. ``partition``: the edge's number in the app."""
        super().__init__(*args)
        self.tasks, self.partition = tasks, partition

    def begin(
        self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]
    ) -> LocalRun:
        run = super().begin(task, rule, memory)
        if STATE in memory:
            run.memory[STATE] = wrap(aligned_copy(memory[STATE]))
        return run

    def advance(
        self,
        run: LocalRun,
        rule: LocalRule,
        until_step: int | None = None,
        deadline: Callable[[], bool] | None = None,
    ) -> bool:
        """Count steps; at the last one, call the app, which ``deadline`` cannot stop."""
        stop = run.steps if until_step is None else min(until_step, run.steps)
        if run.failure is None and run.step < stop:
            if stop == run.steps:
                self._call(run)
            run.step = stop
        return True

    def _call(self, run: LocalRun) -> None:
        number = run.task.version + 1  # rounds count from 1
        kept = run.memory.get(STATE)
        try:
            state = None if kept is None else unpacked(kept.numpy())
            with seeded(self.streams, "flower", self.edge, run.task.number):
                done = self.tasks.train(self.partition, run.start.numpy(), number, state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            where = f"the Flower app of edge {self.edge}, round {number}"
            run.failure = training_failure(error, where, self.tasks.app.module)
            return
        run.weights.copy_(torch.from_numpy(done.weights))
        losses = [value for name, value in done.metrics.items() if "loss" in name.lower()]
        run.memory[ANSWER] = torch.tensor([done.examples, *losses[:1]], dtype=torch.float64)
        run.memory[STATE] = wrap(aligned_copy(packed(done.state)))
        if done.state and not self.tasks.told:
            self.tasks.told = True
            print(
                f"the Flower app of edge {self.edge} keeps values in context.state: evaluations run"
                " beside the coordinator and get an empty one, so layers that are kept there have"
                " no part in the scores",
                file=sys.stderr,
                flush=True,
            )

    def payload(
        self, run: LocalRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The model, the samples as the client counts them, and its loss if it returns one."""
        vectors, numbers = super().payload(run, rule)
        if numbers:
            del numbers["loss"]
            numbers |= zip(("samples", "loss"), run.memory[ANSWER].tolist())
        return vectors, numbers

    def remembered(self, run: LocalRun, rule: LocalRule) -> dict[str, np.ndarray]:
        return {STATE: run.memory[STATE].numpy()} if run.failure is None else {}


@contextmanager
def seeded(streams: Streams, purpose: str, *keys: int | str) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch for ``purpose``, and restore them at the end.

    An app draws from the generators of its process. The same seed, purpose and keys give the same
    numbers in every process.
    """
    seed = int(streams.rng(purpose, *keys).integers(2**32))
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
