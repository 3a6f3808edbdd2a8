"""Checks of an experiment whose task is a Flower app. They need neither flwr nor torch."""

from __future__ import annotations

from pathlib import Path

from edgefl.config.errors import Loc, Source
from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.errors import UserError
from edgefl.flower.app_folder import app_folder, is_flower
from edgefl.flower.strategy_rules import refusal
from edgefl.strategies.base.catalog import load as load_strategy


def check(experiment: Experiment, source: Source, base: Path | None) -> None:
    """UserError for the first thing that a Flower app cannot do, or that is missing for it."""
    section = experiment.flower
    if experiment.task is None or not is_flower(experiment.task):
        if section is not None:
            raise source.error(("flower",), 'expected task = "flower:PATH" with this table')
        return
    if section is None:
        raise source.error(
            ("flower",), 'missing; task = "flower:PATH" needs flower.samples, of each edge'
        )
    edges = len(experiment.edges.ids())
    given = len(section.samples_of(edges))
    if given != edges:
        raise source.error(
            ("flower", "samples"),
            f"expected one number, or one for each of the {edges} edges, found {given}",
        )
    _check_overrides(experiment, source, base)
    for loc, wrong, expected in _other_keys(experiment):
        if wrong:
            raise source.error(loc, f"expected {expected} with a Flower app")
    for number, entry in enumerate(experiment.strategies):
        strategy = load_strategy(entry.strategy, base)
        why = refusal(strategy, strategy.Options.model_validate(entry.options()))
        if why is not None:
            raise source.error(("strategies", number), f"{entry.strategy}: {why}")


def _check_overrides(experiment: Experiment, source: Source, base: Path | None) -> None:
    assert experiment.task is not None and experiment.flower is not None
    folders = [folder for folder in (base, Path.cwd()) if folder is not None]
    try:
        folder = app_folder(experiment.task, folders)
    except UserError as error:
        raise source.error(("task",), str(error)) from error
    try:
        folder.run_config(experiment.flower.run_config)
    except UserError as error:
        raise source.error(("flower", "run_config"), str(error)) from error


def _other_keys(experiment: Experiment) -> list[tuple[Loc, bool, str]]:
    """Keys of the data and the training that are the app's business: key, wrong, expected."""
    evaluation, training = experiment.evaluation, experiment.training
    tokens = any(part.devices.unit == "tokens" for part in parts(experiment))
    return [
        (("data", "source"), experiment.data.source != "partition", '"partition"'),
        (("data", "scale"), experiment.data.scale != "standard", '"standard"'),
        (("unlabelled",), experiment.unlabelled is not None, "no such table"),
        (("evaluation", "by_label"), evaluation.by_label, "false"),
        (("evaluation", "metric"), bool(evaluation.further), 'only the metric "accuracy"'),
        (("training", "batches_per_epoch"), training.batches_per_epoch is not None, "no such key"),
        (("training", "drop_last"), training.drop_last, "false"),
        (
            ("training", "device"),
            training.device not in (None, "cpu"),
            '"cpu" (the app chooses its own)',
        ),
        (("training", "optimizer_state"), training.optimizer_state == "kept", '"fresh"'),
        (("devices", "unit"), tokens, '"samples"'),
    ]
