"""Build an experiment's task: the user's own, or a model and a data set by their names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.catalog import find, load_dotted, own_code
from edgefl.config.experiment import Experiment
from edgefl.data import edge_data as material
from edgefl.data.dataset import check_finite
from edgefl.data.task import Task
from edgefl.errors import UserError
from edgefl.hosts.setup import texts

if TYPE_CHECKING:
    import torch


def own_task(experiment: Experiment, base: Path | None) -> tuple[Task, material.EdgeData] | None:
    """The user's own task, if the experiment names one."""
    if experiment.task is None:
        return None
    if experiment.data.source != "partition":
        raise UserError(
            'data.source: expected "partition" with a task of one\'s own, found'
            f" {experiment.data.source!r}"
        )
    if experiment.data.scale != "standard":
        raise UserError(
            'data.scale: expected "standard" with a task of one\'s own, found'
            f" {experiment.data.scale!r}"
        )
    build = load_dotted(experiment.task, base)
    with own_code(experiment.task, build):
        task = build()
    if not isinstance(task, Task):
        raise UserError(
            f"task {experiment.task!r} returned {type(task).__name__}, expected edgefl.api.Task"
        )
    check_finite(task.dataset, f"of the task {experiment.task!r}")
    return task, material.EdgeData(task.dataset, material.cut(experiment, base, task.dataset))


def named_task(
    experiment: Experiment, base: Path | None, edges: Sequence[str] | None
) -> tuple[Task, material.EdgeData]:
    build = find("edgefl.models", experiment.model.name, "build", base, "model")
    values = texts.placed(material.checked_options(build, experiment.model, "model"), experiment)
    had = material.edge_data(experiment, base, edges)
    texts.check(experiment, build, had.dataset)

    def model() -> torch.nn.Module:
        import torch

        with own_code(experiment.model.name, build):
            built = build(values, had.dataset.shape, had.dataset.classes)
        if not isinstance(built, torch.nn.Module):
            raise UserError(
                f"model {experiment.model.name!r} returned {type(built).__name__}, expected"
                " torch.nn.Module"
            )
        return built

    plain = getattr(sys.modules[build.__module__], "network", None)
    network = None if plain is None else plain(values, had.dataset.shape, had.dataset.classes)
    return texts.task(had.dataset, model, network), had
