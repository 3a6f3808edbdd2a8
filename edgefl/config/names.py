"""Checks of an experiment as a whole: the names that select a plug-in, and its options.

With what edges that come and go cannot do. Needs no torch.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgefl import catalog
from edgefl.compression.compressor import find as find_compressor
from edgefl.config.experiment import (
    Compression,
    Experiment,
    Named,
    StrategyEntry,
    Unlabelled,
    check_groups,
    parts,
)
from edgefl.config.scores import SCORES, measured
from edgefl.config.section import Loc, Section, Source, validated
from edgefl.entry_points import entries, loaded
from edgefl.errors import UserError, near_file, nearest
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.catalog import misnamed
from edgefl.strategies.base.gradients import Gradients
from edgefl.strategies.base.strategy import LocalRule, SelectingOptions, Strategy, StrategyOptions
from edgefl.strategies.selection.selector import PACKAGE as SELECTIONS
from edgefl.strategies.selection.selector import WORD as SELECTION
from edgefl.strategies.selection.selector import Selection
from edgefl.vectors import SMALLEST_RATE
from emulator.availability import recorded_presence
from emulator.units import NS_PER_S

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment
    from edgefl.config.section import Source


DIRECTORY_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
SEED_NAME = r"seed\d+"
BESIDE = r"figures|.*\.(csv|toml)"  # what an experiment's folder holds beside its runs


def with_plugins(experiment: Experiment) -> Experiment:
    """Return the experiment with the place of its code for each plug-in of another package."""

    def named(section: Any, package: str, key: str = "name", **others: Any) -> Any:
        place = catalog.place(package, getattr(section, key))
        changed = place != getattr(section, key)
        return section.model_copy(update={key: place, **others}) if changed else section

    def selecting(entry: StrategyEntry) -> StrategyEntry:
        chosen = _selection(entry)
        name = chosen.get("name")
        if not isinstance(name, str):
            return entry
        place = catalog.place(SELECTIONS, name)
        changed = {SELECTION: {**chosen, "name": place}}
        return entry if place == name else entry.model_copy(update=changed)

    unlabelled = experiment.unlabelled
    return experiment.model_copy(
        update={
            "data": named(experiment.data, "edgefl.data"),
            "model": named(experiment.model, "edgefl.models"),
            "unlabelled": unlabelled and named(unlabelled, "edgefl.data", "data"),
            "strategies": tuple(
                selecting(named(entry, catalog.STRATEGIES, "strategy", label=entry.name))
                for entry in experiment.strategies
            ),
        }
    )


def _selection(entry: StrategyEntry) -> dict[str, Any]:
    """Return the table ``selection`` of an entry that is not checked yet."""
    given = entry.options().get(SELECTION)
    return given if isinstance(given, dict) else {"name": given}


def check(experiment: Experiment, source: Source, base: Path | None) -> None:
    """Check all names and options; UserError for the first unknown one. Does not import torch.

    User code for models, partitions, data and tasks is not executed here, because it may import
    anything. Only the existence of its files is checked.
    """
    ids = experiment.edges.ids()
    if len(set(ids)) < len(ids):
        raise source.error(
            ("edges", "names"),
            "expected different names, found"
            f" {next(name for name in ids if ids.count(name) > 1)!r} twice",
        )
    kind = kind_of(experiment.task)
    if kind is not None:
        kind.check(experiment, source, base)
    elif experiment.flower is not None:
        raise source.error(("flower",), 'expected task = "flower:PATH" with this table')
    if experiment.task is not None:
        _check_own(experiment.task, ("task",), source, base)
    else:
        _check_part(("data",), experiment.data, source, base)
        _check_part(("model",), experiment.model, source, base)
    _check_part(("partition",), experiment.partition, source, base)
    _check_compression(experiment.compression, source, base)
    _check_unlabelled(experiment, source, base)
    check_groups(experiment, source, base)
    _check_stop_target(experiment, source)
    _check_faults(experiment, source)
    _check_absences(experiment, source, base)
    _check_devices(experiment, source)
    for number, entry in enumerate(experiment.strategies):
        _check_strategy(entry, ("strategies", number), source, base, experiment.unlabelled)
        with catalog.own_code(entry.strategy, None):
            _check_channel(experiment, entry, ("strategies", number), source, base)
        _check_training(experiment, entry, source, base)


def strategy_warnings(experiment: Experiment, base: Path | None) -> list[str]:
    """Return warnings about the options of the strategies."""
    found: list[str] = []
    for entry in experiment.strategies:
        strategy, options = load_strategy(entry.strategy, base), entry.options()
        given = [
            f"option {old} is now named {new}: write {new} = {options[old]}"
            for old, new in strategy.Options.old_keys().items()
            if old in options
        ]
        edges = len(experiment.edges.ids())
        given += [
            f"{key} = {options[key]} is more than the number of edges: all {edges} work at the"
            " same time"
            for key in strategy.edges_at_work
            if key in options and options[key] != "all" and options[key] > edges
        ]
        with catalog.own_code(entry.strategy, strategy):
            values = strategy.Options.model_validate(options)
            given += strategy.warnings(values, experiment.training.epochs)
        given += _no_choice(strategy, values, edges)
        given += misnamed(strategy)
        given += _unused_merge(strategy.rule)
        if experiment.training.decay and not (
            strategy.rule.moves or issubclass(strategy, Gradients)
        ):
            given.append("training.decay has no effect: its edges make no steps")
        found += [f"{entry.name}: {warning}" for warning in given]
    return found


def _no_choice(strategy: type[Strategy], options: StrategyOptions, edges: int) -> list[str]:
    """Return a warning if a selection is given, but all idle edges always get work."""
    if SELECTION not in options.model_fields_set:
        return []
    periodic = getattr(options, "dispatch", "replace") != "replace"
    if periodic or strategy.concurrency(options, edges) < edges:
        return []
    return [f"selection has no effect: all {edges} edges work at the same time"]


def _unused_merge(rule: type[LocalRule]) -> list[str]:
    """Return a warning if the rule asks for fresher models and cannot use them, or never asks."""
    by_step = rule.asks is not LocalRule.asks
    asks = by_step or rule.checkpoint is not LocalRule.checkpoint
    how = "asks" if by_step else "checkpoint"
    merges = rule.merge is not LocalRule.merge
    if asks and not merges:
        return [f"{rule.__name__} asks for fresher models ({how}), but has no merge"]
    if merges and not asks:
        return [f"{rule.__name__} has a merge, but never asks for a fresher model (checkpoint)"]
    return []


def own_names(experiment: Experiment) -> list[str]:
    """Return every name in ``experiment`` that refers to code outside the catalogs."""
    packed = experiment.compression
    picked = (
        experiment.task,
        experiment.data.name,
        experiment.partition.name,
        experiment.model.name,
        None if experiment.unlabelled is None else experiment.unlabelled.data,
        *(None if way is None else way.name for way in (packed.up, packed.down)),
    )
    return [
        name
        for name in (*picked, *(entry.strategy for entry in experiment.strategies))
        if name is not None and catalog.is_own(name)
    ]


def server_code(experiment: Experiment) -> list[str]:
    """Return the names of code outside the catalogs that only the coordinator runs."""
    names = [_selection(entry).get("name") for entry in experiment.strategies]
    return [name for name in names if isinstance(name, str) and catalog.is_own(name)]


def _check_compression(section: Compression, source: Source, base: Path | None) -> None:
    for way in ("up", "down"):
        chosen: Named | None = getattr(section, way)
        if chosen is None:
            continue
        _check_part(("compression", way), chosen, source, base)
        if way == "down" and ":" not in chosen.name:
            method = find_compressor(chosen.name, chosen.options())
            if method.of_change:
                raise source.error(
                    ("compression", way),
                    f"{chosen.name} keeps little of a model: expected a method for whole models,"
                    f" such as float16 or int8",
                )
    if section.cost_samples and section.up is None:
        raise source.error(
            ("compression", "cost_samples"), "nothing is packed: expected compression.up, too"
        )


def _check_part(loc: Loc, section: Named | Selection, source: Source, base: Path | None) -> None:
    package, attribute, what = catalog.PARTS[str(loc[0])]
    if ":" in section.name:
        _check_own(section.name, (*loc, "name"), source, base)
        return
    with source.at(*loc, "name"):
        picked = catalog.find(package, section.name, attribute, base, what)
    validated(
        catalog.options_of(picked) or Section,
        section.options(),
        source,
        loc,
        tuple(type(section).model_fields),
    )


def _check_unlabelled(experiment: Experiment, source: Source, base: Path | None) -> None:
    name = "held_out" if experiment.unlabelled is None else experiment.unlabelled.data
    if ":" in name:
        _check_own(name, ("unlabelled", "data"), source, base)
    elif name != "held_out":
        try:
            options = catalog.options_of(
                catalog.find("edgefl.data", name, "load", base, "data set")
            )
        except UserError as error:
            near = nearest(name, [*catalog.names("edgefl.data", "load"), "held_out"])
            said = (
                f"unknown data set {name!r}{near}"
                if "'held_out'" in near
                else f'{error}; or "held_out"'
            )
            raise source.error(("unlabelled", "data"), said) from error
        needed = (
            [key for key, field in options.model_fields.items() if field.is_required()]
            if options is not None
            else []
        )
        if needed:
            raise source.error(
                ("unlabelled", "data"),
                f"{name!r} needs {needed[0]}, for which [unlabelled] has no key: expected another"
                f" data set, or {catalog.FORMS}",
            )


def _check_faults(experiment: Experiment, source: Source) -> None:
    ids = set(experiment.edges.ids())
    for number, entry in enumerate(experiment.faults):
        unknown = next((edge for edge in entry.edges if edge not in ids), None)
        if unknown is not None:
            raise source.error(
                ("faults", number, "edges"), f"no edge {unknown!r}{nearest(unknown, ids)}"
            )
        if experiment.medium.kind == "tdma" and (
            entry.kind == "freeze" or entry.kind.startswith("cut")
        ):
            raise source.error(
                ("faults", number, "kind"),
                f'a {entry.kind} closes links, but with medium.kind = "tdma" edges have no links of'
                " their own",
            )
        for part in parts(experiment, source):
            native = (part.links.kind == "native" and entry.kind.startswith("cut")) or (
                part.devices.kind == "native" and entry.kind == "slow"
            )
            if native and any(entry.hits(edge) for edge in part.ids):
                needed = "device" if entry.kind == "slow" else "link"
                raise source.error(
                    ("faults", number, "kind"),
                    f"a {entry.kind} needs an emulated {needed}, found a native one",
                )


def _check_own(name: str, loc: Loc, source: Source, base: Path | None) -> None:
    with source.at(*loc):
        check_own_file(name, [folder for folder in (base, Path.cwd()) if folder is not None])


def check_own_file(name: str, folders: Sequence[Path]) -> None:
    """UserError unless ``name`` has the form of user code and its file, if any, is in a folder.

    A task of a plug-in's kind needs what its kind needs.
    """
    kind = kind_of(name)
    if kind is not None:
        kind.check_name(name, folders)
        return
    place, _, attribute = name.rpartition(":")
    if not (place and attribute):
        raise UserError(f"expected {catalog.FORMS}, found {name!r}")
    paths = [folder / Path(place).expanduser() for folder in folders]
    if place.endswith(".py") and not any(path.is_file() for path in paths):
        tried = " or ".join(dict.fromkeys(map(str, paths)))
        raise UserError(f"no file {tried}{near_file(paths[0], '*.py')}")


def _check_strategy(
    entry: StrategyEntry, loc: Loc, source: Source, base: Path | None, unlabelled: Unlabelled | None
) -> None:
    of_seed = re.fullmatch(SEED_NAME, entry.name)
    beside = re.fullmatch(BESIDE, entry.name)
    if not re.fullmatch(DIRECTORY_NAME, entry.name) or of_seed or beside:
        key = "strategy" if entry.label is None else "label"
        kept = ", which is the name of a seed's directory" if of_seed else ""
        raise source.error(
            (*loc, key),
            f"expected a name for a directory (letters, digits, _ . -), found {entry.name!r}{kept}",
        )
    with source.at(*loc, "strategy"):
        strategy = load_strategy(entry.strategy, base)
    _check_selection(strategy, entry, (*loc, SELECTION), source, base)
    if strategy.needs_unlabelled and unlabelled is None:
        raise source.error(
            loc,
            f"{entry.strategy} distils: expected a table [unlabelled] with its samples",
        )
    wanted = entry.options().get("unlabelled_samples") or 0
    if unlabelled is not None and wanted > unlabelled.size:
        raise source.error(
            (*loc, "unlabelled_samples"),
            f"expected at most unlabelled.size ({unlabelled.size}), found {wanted}",
        )


def _check_selection(
    strategy: type[Strategy], entry: StrategyEntry, loc: Loc, source: Source, base: Path | None
) -> None:
    """Check the options of a strategy, and the selection among them."""
    if SELECTION in entry.options() and SELECTION not in strategy.Options.model_fields:
        raise source.error(
            loc,
            f"{entry.strategy} selects no edges, since it gives work to all: expected no such key",
        )
    options = validated(
        strategy.Options, entry.options(), source, loc[:-1], tuple(StrategyEntry.model_fields)
    )
    if not isinstance(options, SelectingOptions):
        return
    # an edge has a config without ``base``, and does not select
    if base is not None or ":" not in options.selection.name:
        _check_part(loc, options.selection, source, base)


def _check_training(
    experiment: Experiment, entry: StrategyEntry, source: Source, base: Path | None
) -> None:
    """Report a way of training or of counting its time that a strategy cannot work with."""
    found, section = load_strategy(entry.strategy, base), experiment.training
    if found.needs_plain_sgd:
        why = (
            f"{entry.name} computes gradients from an edge's change of weights, which needs plain"
            " SGD: "
        )
        if section.optimizer != "sgd":
            raise source.error(
                ("training", "optimizer"), f'{why}expected "sgd", found "{section.optimizer}"'
            )
        if section.schedule is not None:
            raise source.error(("training", "schedule"), f"{why}expected no schedule")
    _check_decay(experiment, entry, found, source)
    if found.schedules_slots:
        for part in parts(experiment, source):
            if part.devices.unit == "tokens":
                raise source.error(
                    (*part.at, "devices", "unit"),
                    f'{entry.name} plans slots by samples: expected "samples", found "tokens"',
                )


def _check_decay(
    experiment: Experiment, entry: StrategyEntry, found: type[Strategy], source: Source
) -> None:
    """Report a learning rate that falls to 0 before the run stops, as far as the config tells."""
    section, decay, stop = experiment.training, experiment.training.decay, experiment.stop
    if decay is None:
        return
    options = found.Options.model_validate(entry.options())
    key = "local_learning_rate" if found.rule.moves else "server_learning_rate"
    rate = getattr(options, key, None) or section.learning_rate
    if decay.counts_versions and stop.versions is not None:
        # the last task or step begins at the version before the last
        steps, said = range(stop.versions), f"stop.versions = {stop.versions}"
        zero = bisect_left(steps, True, key=lambda at: rate * decay.at(at, 0) < SMALLEST_RATE)
        at = f"version {zero}"
    elif not decay.counts_versions and stop.emulated_s is not None:
        steps, said = range(stop.at_ns), f"stop.emulated_s = {stop.emulated_s:g}"
        zero = bisect_left(steps, True, key=lambda at: rate * decay.at(0, at) < SMALLEST_RATE)
        at = f"{zero / NS_PER_S:g} s"
    else:
        return  # the run ends at that moment
    if zero < len(steps):
        raise source.error(
            ("training", "decay"),
            f"the learning rate of {entry.name} falls to 0 at {at}, before {said}: expected a"
            " slower decay, or a floor above 0",
        )


def _check_devices(experiment: Experiment, source: Source) -> None:
    for part in parts(experiment, source):
        if part.devices.samples_per_slot is not None and experiment.medium.kind != "tdma":
            raise source.error(
                (*part.at, "devices", "samples_per_slot"),
                f'expected medium.kind = "tdma", found "{experiment.medium.kind}"',
            )


def _check_channel(
    experiment: Experiment, entry: StrategyEntry, loc: Loc, source: Source, base: Path | None
) -> None:
    """Report what a strategy refuses about the edges and the medium."""
    found = load_strategy(entry.strategy, base)
    medium, values = experiment.medium, found.Options.model_validate(entry.options())
    refused = found.refuses(
        values, len(experiment.edges.ids()), medium.kind, medium.frame_slots is not None
    )
    if refused is not None:
        raise source.error((*loc, refused[0]), refused[1])
    if (
        found.schedules_slots
        and medium.guard_ms is not None
        and (medium.slot_ms or 0.0) < 2 * medium.guard_ms
    ):
        raise source.error(
            ("medium", "slot_ms"),
            f"expected at least twice guard_ms ({2 * medium.guard_ms:g}), found {medium.slot_ms:g}",
        )
    if found.schedules_slots and any(
        part.links.kind == "native" for part in parts(experiment, source)
    ):
        raise source.error(
            ("links", "kind"),
            f"{entry.name} assigns slots: expected emulated links, found a native one",
        )


def _check_stop_target(experiment: Experiment, source: Source) -> None:
    """UserError for a target that no evaluation of the experiment can reach."""
    target, evaluation = experiment.stop.target, experiment.evaluation
    if target is None:
        return
    scores, at = list(measured(evaluation)), ("stop", "target")
    if kind_of(experiment.task) is not None or not evaluation.train_samples:
        scores.remove("train_loss")
    if target.metric is not None and target.metric not in scores:
        measures = f'; evaluation.metrics = ["{target.metric}"] measures it'
        raise source.error(
            (*at, "metric"),
            f"expected a score of this experiment ({', '.join(scores)}), found {target.metric!r}"
            f"{measures if target.metric in SCORES else nearest(target.metric, scores)}",
        )
    score, value = experiment.stop_score, experiment.stop_value
    if value is None:
        raise source.error((*at, "value"), f"missing: expected the {score.title} to reach")
    if value > score.largest:
        raise source.error(
            (*at, "value"),
            f"expected at most {score.largest:g}, as a share of 1, found {value:g}",
        )


AT = ("edges", "availability")


def _check_absences(experiment: Experiment, source: Source, base: Path | None) -> None:
    """UserError for the first problem. Without ``base``, the file is not read."""
    section = experiment.edges.availability
    if section is None or section.kind == "always":
        return
    if experiment.stop.emulated_s is None:
        raise source.error(
            ("stop", "emulated_s"),
            f'missing; edges.availability.kind = "{section.kind}" needs it, because a run could'
            " wait for absent edges without end",
        )
    for part in parts(experiment, source):
        for table in ("links", "devices"):
            if getattr(part, table).kind == "native":
                raise source.error(
                    (*AT, "kind"), f'expected "always" with native {table}: nothing stops those'
                )
        spread = part.devices.spread
        if section.speed_exponent and spread not in ("uniform", "lognormal"):
            raise source.error(
                (*AT, "speed_exponent"),
                f'expected devices.spread = "uniform" or "lognormal", found "{spread}": only then'
                " an edge has a speed",
            )
    if section.patterns is not None:
        missing = [edge for edge in experiment.edges.ids() if edge not in section.patterns]
        if missing:
            raise source.error((*AT, "patterns"), f"no pattern of edge {missing[0]!r}")
    if section.file is None or base is None:
        return
    path = base / Path(section.file).expanduser()
    with source.at(*AT, "file"):
        clients = recorded_presence(path, section.format, section.period_s)
    ids = experiment.edges.ids()
    missing = [edge for edge in ids if edge not in clients]
    if missing and len(missing) < len(ids):
        raise source.error(
            (*AT, "file"),
            f"availability {path}: no interval of edge {missing[0]!r}, but of others: expected all"
            " edges, or none of their ids",
        )


# ---------------------------------------------------------------------- kinds of tasks
# Kinds of tasks that plug-ins bring: ``task = "KIND:..."`` in an experiment.
#
# The core trains a torch module on arrays. A plug-in may bring something else that edges can train,
# such as a Flower app. It registers an object with the methods of ``TaskKind`` as an entry point of
# the group ``edgefl.task_kinds``, with the word before the colon as its name.

GROUP = "edgefl.task_kinds"


class TaskKind(Protocol):
    """What the core asks of a kind of tasks. Only ``learning`` may import what is optional."""

    clients_evaluate: bool
    """Whether each edge evaluates the model by itself, so that clients.csv has their scores."""

    def check_name(self, task: str, folders: Sequence[Path]) -> None:
        """UserError unless ``task`` names a task in one of ``folders``."""
        ...

    def check(self, experiment: Experiment, source: Source, base: Path | None) -> None:
        """UserError for the first thing in ``experiment`` that such a task cannot do."""
        ...

    def digest(self, task: str, folders: Sequence[Path]) -> str:
        """Return a digest of the task's files; "" if there is no such task now."""
        ...

    def learning(self, experiment: Experiment, base: Path | None) -> Any:
        """Return the ``edgefl.clocks.setup.learning.Learning`` of a process."""
        ...


def kind_of(task: str | None) -> TaskKind | None:
    """Return the kind of ``task``; None if it is one of the core's, or there is no task.

    UserError if its plug-in cannot be loaded.
    """
    name, colon, _ = (task or "").partition(":")
    entry = entries(GROUP).get(name) if colon else None
    return None if entry is None else loaded(entry)
