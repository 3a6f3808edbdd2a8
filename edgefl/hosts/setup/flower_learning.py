"""A Flower app as a process's data and model: the app has both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from edgefl.config.experiment import Experiment
from edgefl.config.flower import FlowerSection
from edgefl.data.dataset import Dataset
from edgefl.data.task import Task
from edgefl.edges.training import NullTrainer, Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.flower.app_folder import app_folder
from edgefl.flower.app_tasks import AppTasks, score
from edgefl.flower.client_app import FlowerApp
from edgefl.flower.first_messages import first_round
from edgefl.hosts.setup.flower_trainer import FlowerPlan, FlowerTrainer
from edgefl.hosts.setup.learning import EdgeShares, Learning
from edgefl.hosts.setup.own_randomness import seeded
from edgefl.jobs import Evaluate, Scores
from edgefl.streams import Streams
from edgefl.vectors import Layout

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
