"""From an experiment to what needs torch: data, model, every edge's trainer, evaluation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefl.catalog import find, load_dotted
from edgefl.config import Experiment
from edgefl.data import material
from edgefl.data.task import Task
from edgefl.data.words import FILE as VOCABULARY
from edgefl.edges.edge import Edge
from edgefl.edges.local_run import TrainingPlan
from edgefl.edges.trainer import Trainer
from edgefl.errors import UserError
from edgefl.fault_config import slowed
from edgefl.hosts.plan import devices, options
from edgefl.jobs import Evaluate
from edgefl.models.evaluate import evaluate
from edgefl.models.workspace import Workspace, initial
from edgefl.strategies.local_rule import LocalRule
from edgefl.strategies.strategy import Strategy, StrategyOptions
from edgefl.streams import Streams
from edgefl.vectors import Layout


@dataclass(slots=True)
class Learning:
    """One process's data and model; trainers of all its edges share them."""

    experiment: Experiment
    base: Path | None
    task: Task
    workspace: Workspace
    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]
    shards: dict[str, np.ndarray]  # edge id -> indices of its training samples
    _union: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict, repr=False)  # by evaluation.train_samples
    _chosen: dict[int, tuple[type[Strategy], StrategyOptions]] = field(default_factory=dict, repr=False)  # by index of the experiment
    own_digest: str = ""  # of data that came in shares; else made from the data set and the shares

    @property
    def layout(self) -> Layout:
        return self.workspace.layout

    @property
    def samples(self) -> dict[str, int]:
        return {edge: len(indices) for edge, indices in self.shards.items()}

    def initial_weights(self) -> np.ndarray:
        """w_0, the same for every strategy of the experiment."""
        return initial(self.task.model, Streams(self.experiment.seed))

    def data_digest(self) -> str:
        """Equal on two sides that hold the same data in the same shares."""
        return self.own_digest or material.digest(self.task.dataset, self.shards)

    def keep_vocabulary(self, directory: Path) -> None:
        """A copy of the words behind the token numbers, for a data set of texts: with the run, whatever becomes of the cache."""
        if self.task.dataset.words is not None:
            shutil.copyfile(self.task.dataset.words, directory / VOCABULARY)

    @property
    def plan(self) -> TrainingPlan:
        section = self.experiment.training
        return TrainingPlan(section.epochs, section.batch_size, section.learning_rate, section.weight_decay, section.momentum)

    def trainer(self, edge: str) -> Trainer:
        return Trainer(self.workspace, *self.train, self.task.loss, self.plan, Streams(self.experiment.seed), edge, self.shards[edge])

    def rule(self, index: int) -> LocalRule:
        """A fresh rule of the strategy at ``index`` of the experiment."""
        if index not in self._chosen:
            self._chosen[index] = options(self.experiment.strategies[index], self.base)  # looks through a folder: not for every task
        found, values = self._chosen[index]
        rule = found.rule(values)
        if self.experiment.medium.kind == "tdma":
            rule.on_request = "wait"  # half-duplex devices cannot compute while they receive
        return rule

    def edges(self, index: int, names: Sequence[str] | None = None, trainer: Callable[[str], Any] | None = None) -> dict[str, Edge]:
        """Edge actors (all, or ``names``) for the strategy at ``index`` of the experiment; ``trainer(edge)``: with these trainers."""
        speeds, faults, streams = devices(self.experiment), self.experiment.faults, Streams(self.experiment.seed)
        made = trainer or self.trainer
        return {name: Edge(name, made(name), self.rule(index), slowed(speeds[name], faults, name, streams)) for name in names or self.shards}

    def evaluate(self, job: Evaluate) -> tuple[float | None, float, float]:
        """(train loss on the fixed sample of the union, or None; test loss; test accuracy)."""
        test_loss, accuracy = evaluate(self.workspace, job.weights, *self.test, self.task.loss, metric=self.task.metric)
        inputs, targets = self.union()
        if not len(inputs):
            return None, test_loss, accuracy
        train_loss, _ = evaluate(self.workspace, job.weights, inputs, targets, self.task.loss)
        return train_loss, test_loss, accuracy

    def union(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The fixed sample of all devices' data that the train loss is taken on: gathered once, empty if none is asked for."""
        size = self.experiment.evaluation.train_samples
        if size not in self._union:
            picked = np.sort(np.concatenate(list(self.shards.values()))) if size and self.shards else np.zeros(0, np.int64)
            if size < len(picked):
                picked = picked[np.sort(Streams(self.experiment.seed).rng("train loss").choice(len(picked), size, replace=False))]
            self._union[size] = self.train[0][picked], self.train[1][picked]
        return self._union[size]


def with_seed(learned: Learning, experiment: Experiment) -> Learning:
    """The same data and model for another seed of the experiment, whose edges have other shares, unless they came with the data."""
    if learned.own_digest:
        return replace(learned, experiment=experiment, _union={})
    shares = material.cut(experiment, learned.base, learned.task.dataset.train_y)
    return replace(learned, experiment=experiment, shards=shares, _union={})


def learning(experiment: Experiment, base: Path | None, edges: Sequence[str] | None = None) -> Learning:
    """Load the data of ``edges`` (``edgefl.data.material``), build the model; one thread, so that every engine computes the same bytes."""
    torch.set_num_threads(1)
    task, had = _own(experiment, base) or _named(experiment, base, edges)
    parts = task.dataset.train(), task.dataset.test()
    return Learning(experiment, base, task, Workspace(task.model), *parts, had.shares, own_digest=had.own_digest)


def _own(experiment: Experiment, base: Path | None) -> tuple[Task, material.Material] | None:
    """The user's own task, if the experiment names one."""
    if experiment.task is None:
        return None
    if experiment.data.source != "partition":
        raise UserError(f'data.source: expected "partition" with a task of one\'s own, found {experiment.data.source!r}')
    task = load_dotted(experiment.task, base)()
    if not isinstance(task, Task):
        raise UserError(f"task {experiment.task!r} returned {type(task).__name__}, expected edgefl.data.task.Task")
    return task, material.Material(task.dataset, material.cut(experiment, base, task.dataset.train_y))


def _named(experiment: Experiment, base: Path | None, edges: Sequence[str] | None) -> tuple[Task, material.Material]:
    build = find("edgefl.models", experiment.model.name, "build", base, "model")
    values = material.checked_options(build, experiment.model, "model")
    had = material.material(experiment, base, edges)
    return Task(had.dataset, lambda: build(values, had.dataset.shape, had.dataset.classes)), had
