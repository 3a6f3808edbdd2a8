"""The kind of task ``task = "flower:PATH"``: its folder, what an app cannot do, how it is loaded.

The folder has the app's pyproject.toml. Only ``learning`` needs flwr or torch.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment, parts
from edgefl.config.section import Loc, Source
from edgefl.errors import UserError, as_user_error, nearest
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.events_and_decisions import Urge
from edgefl.strategies.base.strategy import LocalRule, Strategy
from edgefl.strategies.fedprox import Pull
from emulator.plain_text import read_text

PREFIX = "flower:"  # how the name of a task begins that is a Flower app
PROJECT = "pyproject.toml"
COMPONENTS = "[tool.flwr.app.components]"
Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class AppFolder:
    """A Flower app on this machine.

    ``client`` and ``server``: its components as "module:attribute"; ``server`` None: it has none.
    ``config``: [tool.flwr.app.config], flat: a key of a nested table is "table.key".
    """

    path: Path
    client: str
    server: str | None
    config: dict[str, Setting]

    def run_config(self, overrides: Mapping[str, Any]) -> dict[str, Setting]:
        """Return the app's config with ``overrides``; UserError for a key that it does not have."""
        given = flat(overrides, "flower.run_config")
        unknown = next((key for key in given if key not in self.config), None)
        if unknown is not None:
            raise UserError(
                f"flower.run_config: {self.path / PROJECT} has no key {unknown!r} in"
                f" [tool.flwr.app.config]{nearest(unknown, self.config)}"
            )
        return self.config | given

    def digest(self, run_config: Mapping[str, Setting]) -> str:
        """Return 16 hex digits that differ if the app's code or its config differs."""
        state = hashlib.sha256(repr(sorted(run_config.items())).encode())
        for path in sorted((*self.path.rglob("*.py"), self.path / PROJECT)):
            state.update(str(path.relative_to(self.path)).encode() + b"\0" + path.read_bytes())
        return state.hexdigest()[:16]


def app_folder(task: str, folders: Sequence[Path]) -> AppFolder:
    """Read the app that ``task`` names, relative to the first of ``folders`` that has it.

    UserError if there is none, or it names no ClientApp.
    """
    given = task.removeprefix(PREFIX)
    places = [(folder / Path(given).expanduser()).resolve() for folder in folders]
    place = next((path for path in places if path.is_dir()), None)
    if not given or place is None:
        tried = " or ".join(dict.fromkeys(map(str, places)))
        raise UserError(
            f'{task!r}: expected "{PREFIX}" and the folder of an app, no folder {tried}'
        )
    file = place / PROJECT
    try:
        with as_user_error():
            text = read_text(file)
        app = tomllib.loads(text)
        for key in ("tool", "flwr", "app"):
            app = _table(app, key, file)
    except FileNotFoundError as error:
        raise UserError(f"{task!r}: no file {file}, which every Flower app has") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: is not valid TOML: {error}") from error
    components = _table(app, "components", file)
    client = _component(components, "clientapp", file)
    if client is None:
        raise UserError(
            f'{file}: {COMPONENTS} names no clientapp: expected clientapp = "module:attribute"'
        )
    config = flat(_table(app, "config", file), f"{file}: [tool.flwr.app.config]")
    return AppFolder(place, client, _component(components, "serverapp", file), config)


def flat(config: Mapping[str, Any], place: str, prefix: str = "") -> dict[str, Setting]:
    """Return ``config`` without nested tables, as Flower passes it to an app."""
    found: dict[str, Setting] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, place, f"{name}.")
        elif isinstance(value, Setting):
            found[name] = value
        else:
            raise UserError(
                f"{place}: {name}: expected a truth value, a number or a text, found"
                f" {type(value).__name__}"
            )
    return found


def _table(given: dict[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{file}: {key}: expected a table")
    return found


def _component(components: Mapping[str, Any], key: str, file: Path) -> str | None:
    found = components.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not all(part for part in found.partition(":")):
        raise UserError(f'{file}: {COMPONENTS} {key}: expected "module:attribute", found {found!r}')
    return found


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
    if issubclass(rule, Pull) and not own and options.mu:
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
