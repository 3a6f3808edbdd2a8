"""From an experiment to what needs torch: data, model, every edge's trainer, evaluation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from pydantic import BaseModel

from edgefl.catalog import find, load_dotted, options_of
from edgefl.config import Experiment, Named, Section
from edgefl.config_errors import Source, validated
from edgefl.data.place import data_dir
from edgefl.data.task import Task
from edgefl.edges.edge import Edge
from edgefl.edges.local_run import TrainingPlan
from edgefl.edges.trainer import Trainer
from edgefl.errors import UserError
from edgefl.fault_config import slowed
from edgefl.hosts.plan import devices, options
from edgefl.jobs import Evaluate
from edgefl.models.evaluate import evaluate
from edgefl.models.workspace import Workspace, initial
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
        state = xxhash.xxh3_64(self.task.dataset.digest().encode())
        for indices in self.shards.values():
            state.update(np.ascontiguousarray(indices, dtype=np.int64).data)
        return state.hexdigest()

    def trainer(self, edge: str) -> Trainer:
        section = self.experiment.training
        plan = TrainingPlan(section.epochs, section.batch_size, section.learning_rate, section.weight_decay, section.momentum)
        return Trainer(self.workspace, *self.train, self.task.loss, plan, Streams(self.experiment.seed), edge, self.shards[edge])

    def edges(self, index: int, names: list[str] | None = None) -> dict[str, Edge]:
        """Edge actors (all, or ``names``) for the strategy at ``index`` of the experiment."""
        found, values = options(self.experiment.strategies[index], self.base)
        speeds, faults, streams = devices(self.experiment), self.experiment.faults, Streams(self.experiment.seed)
        return {name: Edge(name, self.trainer(name), found.rule(values), slowed(speeds[name], faults, name, streams)) for name in names or self.shards}

    def evaluate(self, job: Evaluate) -> tuple[float | None, float, float]:
        """(train loss on the fixed sample of the union, or None; test loss; test accuracy)."""
        test_loss, accuracy = evaluate(self.workspace, job.weights, *self.test, self.task.loss, metric=self.task.metric)
        size = self.experiment.evaluation.train_samples
        if not size:
            return None, test_loss, accuracy
        inputs, targets = self.train
        picked = np.sort(np.concatenate(list(self.shards.values())))
        if size < len(picked):
            picked = picked[np.sort(Streams(self.experiment.seed).rng("train loss").choice(len(picked), size, replace=False))]
        train_loss, _ = evaluate(self.workspace, job.weights, inputs[picked], targets[picked], self.task.loss)
        return train_loss, test_loss, accuracy


def learning(experiment: Experiment, base: Path | None) -> Learning:
    """Load the data, cut it into the edges' shares, build the model; one thread, so that every engine computes the same bytes."""
    torch.set_num_threads(1)
    task = _task(experiment, base)
    workspace = Workspace(task.model)
    shares = _shares(experiment, base, task)
    return Learning(experiment, base, task, workspace, task.dataset.train(), task.dataset.test(), shares)


def _task(experiment: Experiment, base: Path | None) -> Task:
    if experiment.task is not None:
        task = load_dotted(experiment.task, base)()
        if not isinstance(task, Task):
            raise UserError(f"task {experiment.task!r} returned {type(task).__name__}, expected edgefl.data.task.Task")
        return task
    load_data = find("edgefl.data", experiment.data.name, "load", base, "data set")
    dataset = load_data(data_dir(experiment.data.dir, os.environ))
    build = find("edgefl.models", experiment.model.name, "build", base, "model")
    values = _options(build, experiment.model, "model")
    return Task(dataset, lambda: build(values, dataset.shape, dataset.classes))


def _shares(experiment: Experiment, base: Path | None, task: Task) -> dict[str, np.ndarray]:
    ids = experiment.edges.ids()
    split = find("edgefl.data.partition", experiment.partition.name, "split", base, "partition")
    values = _options(split, experiment.partition, "partition")
    parts = split(task.dataset.train_y, len(ids), values, Streams(experiment.seed).rng("partition"))
    if len(parts) != len(ids) or not all(len(part) for part in parts):
        raise UserError(f"partition {experiment.partition.name!r} gave {sum(len(part) > 0 for part in parts)} shares with samples for {len(ids)} edges")
    return dict(zip(ids, parts))


def _options(found: Any, section: Named, table: str) -> BaseModel:
    """Checked here for own code too, which nobody has run before. Code without ``Options`` takes none."""
    kind = options_of(found) or Section
    if not issubclass(kind, BaseModel):
        raise UserError(f"{table} {section.name!r}: its Options are no subclass of pydantic.BaseModel")
    return validated(kind, section.options(), Source(f"options of {section.name!r}"), (table,), ("name",))
