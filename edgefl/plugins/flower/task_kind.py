"""The kind of task ``task = "flower:PATH"``: what a Flower app cannot do, and how it is loaded.

Only ``learning`` needs flwr or torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment, parts
from edgefl.config.section import Loc, Source
from edgefl.errors import UserError
from edgefl.plugins.flower.flower_app import app_folder
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.events_and_decisions import Urge
from edgefl.strategies.base.strategy import LocalRule, ProximalRule, Strategy


class FlowerKind:
    """A ``TaskKind``."""

    clients_evaluate = True

    def check_name(self, task: str, folders: Sequence[Path]) -> None:
        """The app needs its pyproject.toml."""
        app_folder(task, folders)

    def digest(self, task: str, folders: Sequence[Path]) -> str:
        try:
            return app_folder(task, folders).digest({})
        except UserError:
            return ""

    def learning(self, experiment: Experiment, base: Path | None) -> Any:
        from edgefl.plugins.flower.flower_learning import flower_learning

        return flower_learning(experiment, base)

    def check(self, experiment: Experiment, source: Source, base: Path | None) -> None:
        section = experiment.flower
        if section is None:
            raise source.error(
                ("flower",), 'missing; task = "flower:PATH" needs flower.samples, of each edge'
            )
        edges = len(experiment.edges.ids())
        numbers = len(section.samples_of(edges))
        if numbers != edges:
            raise source.error(
                ("flower", "samples"),
                f"expected one number, or one for each of the {edges} edges, found {numbers}",
            )
        assert experiment.task is not None
        with source.at("task"):
            folder = app_folder(
                experiment.task, [folder for folder in (base, Path.cwd()) if folder is not None]
            )
        with source.at("flower", "run_config"):
            folder.run_config(section.run_config)
        for loc, wrong, expected in _other_keys(experiment):
            if wrong:
                raise source.error(loc, f"expected {expected} with a Flower app")
        for number, entry in enumerate(experiment.strategies):
            strategy = load_strategy(entry.strategy, base)
            why = refusal(strategy, strategy.Options.model_validate(entry.options()))
            if why is not None:
                raise source.error(("strategies", number), f"{entry.strategy}: {why}")


FLOWER = FlowerKind()


def _other_keys(experiment: Experiment) -> list[tuple[Loc, bool, str]]:
    """Keys of the data and the training that are the app's business: key, wrong, expected."""
    evaluation, training = experiment.evaluation, experiment.training
    tokens = any(part.devices.unit == "tokens" for part in parts(experiment))
    return [
        (("data", "source"), experiment.data.source != "partition", '"partition"'),
        (("data", "scale"), experiment.data.scale != "standard", '"standard"'),
        (("unlabelled",), experiment.unlabelled is not None, "no such table"),
        (("evaluation", "by_label"), evaluation.by_label, "false"),
        (
            ("evaluation", "edges"),
            evaluation.edges is not None,
            "no such table (each evaluation is one of every edge already)",
        ),
        (("evaluation", "metric"), bool(evaluation.further), 'only the metric "accuracy"'),
        (("training", "batches_per_epoch"), training.batches_per_epoch is not None, "no such key"),
        (("training", "decay"), training.decay is not None, "no such table"),
        (("training", "drop_last"), training.drop_last, "false"),
        (
            ("training", "device"),
            training.device not in (None, "cpu"),
            '"cpu" (the app chooses its own)',
        ),
        (("training", "optimizer_state"), training.optimizer_state == "kept", '"fresh"'),
        (("devices", "unit"), tokens, '"samples"'),
    ]


ASKING = ("checkpoint", "asks", "merge", "pushed")
HOOKS = ("unpack", "begin", "extra_loss", "adjust", *ASKING, "payload")


def refusal(strategy: type[Strategy], options: Any) -> str | None:
    """Return why a Flower app cannot train for this strategy with these options, or None."""
    rule = strategy.rule
    own = [name for name in HOOKS if getattr(rule, name) is not getattr(LocalRule, name)]
    if issubclass(rule, ProximalRule) and not own and options.mu:
        return (
            f"mu: expected 0 with a Flower app, which trains without our term, found {options.mu}"
        )
    if own or rule.remembers or not rule.moves:
        does = f"its edge half ({rule.__name__}) has {own[0]}()" if own else "edges send gradients"
        return f"cannot train with a Flower app: {does}, and the app trains by itself"
    if strategy.needs_unlabelled or strategy.runs_jobs:
        return "cannot train with a Flower app: its server needs the model and the data"
    # it ends tasks early: an app trains all its epochs in one call
    modules = [sys.modules.get(each.__module__) for each in strategy.__mro__]
    if any(value is Urge for module in modules if module for value in vars(module).values()):
        return "cannot train with a Flower app: it ends tasks early, and an app trains in one call"
    return None
