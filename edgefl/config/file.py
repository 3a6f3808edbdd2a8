"""The experiment file between disk, command line and wire.

It reads TOML, with ``extends = "other.toml"`` (a config with only the keys that differ) and
``key.path=value`` from the command line, and checks it; writes the resolved TOML; and makes the
part that edges share. A config from the wire may name code only if the user of this machine allows
it, and files only below the directory of its data sets.

Below are the checks of an experiment as a whole: the names that select a plug-in with its options,
what edges that come and go cannot do, and kinds of tasks that plug-ins bring. They need no torch.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import tomli_w

from edgefl import catalog
from edgefl.catalog import load_dotted
from edgefl.compression.compressor import find as find_compressor
from edgefl.config import packaged
from edgefl.config.experiment import (
    INSTEAD,
    TRACES,
    Compression,
    Experiment,
    Named,
    StrategyEntry,
    Unlabelled,
    check_groups,
    parts,
)
from edgefl.config.keys import nearest_key
from edgefl.config.packaged import EXTENDS
from edgefl.config.scores import SCORES, measured
from edgefl.config.section import (
    Loc,
    Section,
    Source,
    as_override,
    check_numbers,
    dotted,
    found,
    validated,
)
from edgefl.config.toml import MOST_NESTED, TOO_DEEP, BadTOML, parsed, too_deep
from edgefl.entry_points import entries, loaded
from edgefl.errors import UserError, as_user_error, near_file, nearest
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.catalog import misnamed
from edgefl.strategies.base.gradients import Gradients
from edgefl.strategies.base.strategy import LocalRule, SelectingOptions, Strategy, StrategyOptions
from edgefl.strategies.selection.selector import PACKAGE as SELECTIONS
from edgefl.strategies.selection.selector import WORD as SELECTION
from edgefl.strategies.selection.selector import Selection
from edgefl.vectors import SMALLEST_RATE
from emulator.availability import recorded_presence
from emulator.compute import read_device_table
from emulator.plain_text import read_text
from emulator.units import NS_PER_S

THEIRS = "the coordinator's config"  # its name in error lines
FACTS = "run"  # the table that a run adds to its config
SHARED = (
    "seed",
    "speed",
    "task",
    "flower",
    "data",
    "partition",
    "unlabelled",
    "model",
    "training",
    "edges",
    "links",
    "devices",
    "groups",
    "medium",
    "faults",
)
HEADER = (
    "# The configuration of a run, with every default. [run] has facts about the run and is"
    " ignored when this file is read again.\n"
)


Changes = Sequence[str] | Mapping[str, Any]  # ["key.path=value"], or {"key.path": value}


@dataclass(frozen=True, slots=True)
class Config:
    """The tables of an experiment that are not checked yet, of a file or a program.

    ``called``: its name in error lines. ``base``: the folder to which paths of a user's own code
    and traces are relative: that of the file; for a run's config.toml, that of the original config.
    ``origins``: the change to the config that has set each key, as text.
    """

    tables: dict[str, Any]
    called: str
    base: Path
    origins: Mapping[Loc, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a TOML file. UserError if it cannot be read."""
        tables, called = resolved(path, _read)
        return cls(tables, called, _base(tables.pop(FACTS, None), path))

    def changed(self, overrides: Changes) -> Config:
        """Return the config with these changes, which error lines name from now on."""
        raw = deepcopy(self.tables)
        return replace(self, tables=raw, origins={**self.origins, **apply(raw, overrides)})

    def experiment(
        self,
        overrides: Changes = (),
        placed: Callable[[Experiment], Experiment] = lambda experiment: experiment,
    ) -> Experiment:
        """Apply the changes and check everything.

        ``placed`` may change the edges before names and options are checked. UserError, in one
        line, for the first problem.
        """
        whole = self.changed(overrides)  # a copy, to which the next line adds tables of devices
        source = Source(self.called, whole.origins, nearest_key)
        read_device_tables(whole.tables, source, self.base)
        return _checked(whole.tables, source, self.base, placed)


def load(
    path: Path,
    overrides: Changes = (),
    placed: Callable[[Experiment], Experiment] = lambda experiment: experiment,
) -> Experiment:
    """Read the experiment in a TOML file, see ``Config``."""
    return Config.read(path).experiment(overrides, placed)


def base_of(path: Path) -> Path:
    """The ``base`` of the ``Config`` in a file."""
    return Config.read(path).base


def _base(facts: Any, path: Path) -> Path:
    base = facts.get("base") if isinstance(facts, dict) else None
    return Path(base) if isinstance(base, str) else path.parent


def _read(path: Path) -> dict[str, Any]:
    try:
        with as_user_error():
            text = read_text(path)
        return parsed(text)
    except FileNotFoundError as error:
        near = near_file(path, "*.toml") or packaged.nearest(path)
        raise UserError(f"{path}: no such file{near}") from error
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); expected a TOML file"
        ) from error
    except BadTOML as error:
        raise UserError(f"{path}: is not valid TOML: {error}") from error


def _checked(
    raw: Mapping[str, Any],
    source: Source,
    base: Path | None,
    placed: Callable[[Experiment], Experiment] = lambda experiment: experiment,
) -> Experiment:
    check_numbers(raw, source)
    if "hosts" in raw and "strategies" not in raw:
        raise source.error((), "is an inventory of hosts, expected the config of an experiment")
    experiment = placed(with_plugins(validated(Experiment, raw, source)))
    check_names(experiment, source, base)
    return experiment


def dump(experiment: Experiment, extra: Mapping[str, Any]) -> str:
    """Write the whole experiment as TOML, with ``extra`` tables.

    ``load`` ignores only [run] of these. Keys with None are omitted, because TOML has no null.
    """
    return HEADER + tomli_w.dumps(experiment.model_dump(exclude_none=True) | _without_none(extra))


def with_stop(
    text: str, before: Experiment, after: Experiment, lengthened: Mapping[str, Any]
) -> str:
    """Return a written experiment with the stop keys of ``after`` and one more fact.

    ``lengthened``: an entry for the list of that name in [run]. If ``text`` has not the stop keys
    of ``before``, its last entry is of a lengthening that was broken off: this one replaces it.
    """
    tables = parsed(text)
    facts = tables.setdefault(FACTS, {})
    earlier = [*facts.get("lengthened", ())]
    if tables["stop"] != before.stop.model_dump(exclude_none=True):
        del earlier[-1:]
    facts["lengthened"] = [*earlier, lengthened]
    tables["stop"] = after.stop.model_dump(exclude_none=True)
    return HEADER + tomli_w.dumps(_without_none(tables))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(inner) for inner in value if inner is not None]
    return value


def _shared(experiment: Experiment, entry: StrategyEntry) -> dict[str, Any]:
    whole = experiment.model_dump(mode="json", exclude_none=True)
    whole["data"].pop("dir", None)  # each machine has its own directory of data
    whole["edges"].pop("per_process", None)  # and its own processes
    held_out = {"evaluation": {"edges": {"held_out": experiment.held_out}}}
    return (
        {key: whole[key] for key in SHARED if key in whole}
        | (held_out if experiment.held_out else {})  # samples that edges do not train on
        | {"strategies": [entry.model_dump(mode="json", exclude_none=True)]}
    )


def shared_digest(experiment: Experiment, entry: StrategyEntry) -> str:
    """16 hex digits of a hash of everything on which the coordinator and its edges must agree.

    A shard is an edge's share of the partition, in a file: each machine may have either. Each may
    train on its CPU or its GPU, too, and ``tasks_at_once`` is for the virtual clock.
    """
    shared = _shared(experiment, entry)
    if shared["data"]["source"] == "shard":
        shared["data"]["source"] = "partition"
    for key in ("device", "tasks_at_once"):
        shared["training"].pop(key, None)
    return hashlib.sha256(orjson.dumps(shared, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def to_json(experiment: Experiment, entry: StrategyEntry) -> str:
    """Encode what an edge needs of the experiment to run ``entry``.

    This is the shared part, the keys that make it a valid experiment, and the names of user code
    that any strategy of the comparison needs.
    """
    whole = experiment.model_dump(
        mode="json",
        include={"name": True, "stop": True, "network": {"max_edges"}},
        exclude_none=True,
    )
    own = own_names(experiment)
    code = {OWN: own} if own else {}
    return orjson.dumps(whole | _shared(experiment, entry) | code).decode()


def from_json(text: str, allowed: Collection[str] = ()) -> Experiment:
    """Decode and check an experiment from the wire, with one strategy.

    UserError if it is damaged, or names code that is neither in a catalog nor ``allowed``, or files
    outside the directory of data sets.
    """
    source = Source(THEIRS, near=nearest_key)
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{source.file}: is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise UserError(f"{source.file}: expected a table")
    if too_deep(raw):
        raise UserError(f"{source.file}: {TOO_DEEP}")
    check_numbers(raw, source)
    needed = own_code(raw, source)
    experiment = validated(Experiment, raw, source)
    own = [*own_names(experiment), *needed]
    check_code(own, allowed, source)
    check_names(experiment, source, None)
    check_paths(raw, allowed, source)
    return experiment


PICKED = ("model", "partition")  # tables whose other keys are options of the plug-in ``name``


def resolved(path: Path, read: Callable[[Path], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the config in ``path`` with all that it extends, and its name for error lines.

    Tables are merged key by key; arrays and all other values are replaced. A new ``name`` of a
    model or partition discards the old options. UserError for a cycle or a missing file.
    """
    layers, chain = [read(path)], [path]
    while EXTENDS in layers[-1]:
        other = _other(layers[-1], chain)
        chain.append(other)
        layers.append(_read_other(other, chain[-2], read))
    whole: dict[str, Any] = {}
    for layer in reversed(layers):
        whole = _merged(whole, {key: value for key, value in layer.items() if key != EXTENDS})
    return whole, (
        str(path)
        if len(chain) == 1
        else f"{path} (extends {', '.join(str(each) for each in chain[1:])})"
    )


def _other(layer: Mapping[str, Any], chain: list[Path]) -> Path:
    """Return the file that the last one of ``chain`` extends, relative to its own folder."""
    path, name = chain[-1], layer[EXTENDS]
    if not isinstance(name, str):
        raise UserError(
            f'{path}: {EXTENDS}: expected the path of another config, such as "base.toml", found'
            f" {found(name)}"
        )
    if "name" not in layer:  # otherwise its results would overwrite those of the other
        raise UserError(f"{path}: name: missing; a config that extends another needs its own name")
    other = path.parent / Path(name).expanduser()
    if other.resolve() in [each.resolve() for each in chain]:
        raise UserError(
            f"{path}: {EXTENDS}: is a cycle: {' -> '.join(each.name for each in (*chain, other))}"
        )
    return other


def _read_other(other: Path, path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read(other)
    except UserError as error:
        raise UserError(f"{path}: {EXTENDS}: {error}") from error


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """``table``: the path of both, with a dot at its end."""
    whole = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        other = INSTEAD.get(f"{table}{key}", "")
        if other not in changes:
            whole.pop(other, None)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and not (key in PICKED and _picks_another(old, value))
        ):
            whole[key] = _merged(old, value, f"{table}{key}.")
        else:
            whole[key] = value
    return whole


def _picks_another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "name" in new and new["name"] != old.get("name")


def apply(raw: dict[str, Any], overrides: Changes) -> dict[Loc, str]:
    """Change ``raw`` in place and return the override of each key that it set, as text.

    UserError if an override does not fit.
    """
    origins: dict[Loc, str] = {}
    changes = list(_changes(overrides))
    given = {text.partition("=")[0].strip() for text, _ in changes}
    for text, value in changes:
        path, equals, written = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys) or len(keys) > MOST_NESTED:
            raise UserError(
                f"{as_override(text)}: expected key.path=value, such as training.epochs=2 or"
                " strategies.0.alpha=0.5"
            )
        value = toml_value(written) if value is None else value
        other = INSTEAD.get(".".join(keys[-2:]))
        if ".".join([*keys[:-1], str(other)]) in given:
            other = None
        origins[_put(raw, keys, value, text, other)] = text
    return origins


def _changes(overrides: Changes) -> Iterator[tuple[str, Any]]:
    """Yield each change as text, and its value; None: the text has it."""
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            yield f"{key}={found(value)}", value
    else:
        for text in overrides:
            yield text, None


def toml_value(text: str) -> Any:
    """Parse a TOML value; any other text is itself the value, so that text needs no quotes."""
    try:
        tables = parsed(f"value = {text}")
    except BadTOML:
        return text
    return tables["value"] if len(tables) == 1 else text


def _put(
    raw: dict[str, Any], keys: list[str], value: Any, text: str, instead_of: str | None
) -> Loc:
    """Set the key and return the outermost key that the file did not have, else the key itself.

    ``instead_of``: another key of the same table, which goes.
    """
    node: Any = raw
    loc: Loc = ()
    created: Loc | None = None
    for depth, key in enumerate(keys):
        step = _step(node, key, loc, text)
        loc = (*loc, step)
        if depth == len(keys) - 1:
            node[step] = value
            if isinstance(node, dict):
                node.pop(instead_of, None)
        elif isinstance(node, dict) and step not in node:
            node[step] = {}
            created = created or loc
        node = node[step]
    return created or loc


def _step(node: Any, key: str, loc: Loc, text: str) -> str | int:
    """Return the key or index for ``key`` inside ``node``."""
    if isinstance(node, dict):
        return key
    if not isinstance(node, list):
        raise UserError(
            f"{as_override(text)}: {dotted(loc)}: expected a table, found {found(node)}"
        )
    if key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < len(node):
        return int(key)
    names = [entry_key(entry, loc) for entry in node]
    if key in names:
        return names.index(key)
    near = nearest(key, [*filter(None, names)])
    last = len(node) - 1
    numbers = f"expected {f'a number from 0 to {last}' if last else 0}" if node else "it is empty"
    raise UserError(
        f"{as_override(text)}: {dotted(loc)} has no entry {found(key)}{near}, {numbers}"
        f"{' or a name' if any(names) else ''}"
    )


def entry_key(entry: Any, loc: Loc) -> str:
    """Return the name of an entry of ``strategies`` or ``groups``, not checked yet; else ""."""
    if loc == ("groups",):
        return str(entry.get("name", "")) if isinstance(entry, dict) else ""
    if loc != ("strategies",):
        return ""
    fields: dict[str, Any] = (
        {key: entry.get(key) for key in ("strategy", "label")} if isinstance(entry, dict) else {}
    )
    if not isinstance(fields.get("strategy"), str):
        return ""
    return str(StrategyEntry.model_construct(**fields).name)


def read_device_tables(raw: Mapping[str, Any], source: Source, base: Path) -> None:
    """Replace ``file`` and ``column`` of each sampler in ``raw`` by ``values`` and ``origin``.

    A sampler that is not complete is left for the check of the config. UserError for a file that is
    no such table.
    """
    for loc, sampler in _samplers(raw):
        file, column = sampler.get("file"), sampler.get("column")
        if not isinstance(file, str) or not isinstance(column, str) or "values" in sampler:
            continue
        with source.at(*loc, "file"):
            values = read_device_table(base / Path(file).expanduser(), column)
        del sampler["file"], sampler["column"]
        # not the whole path: edges refuse a config with paths of another machine
        sampler |= {"values": values, "origin": f"{Path(file).name}: {column}"}


def _samplers(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, dict[str, Any]]]:
    groups = raw.get("groups")
    tables: list[tuple[Loc, Any]] = [(("devices",), raw.get("devices"))]
    for index, group in enumerate(groups if isinstance(groups, list) else []):
        if isinstance(group, dict):
            tables.append((("groups", index, "devices"), group.get("devices")))
    for loc, table in tables:
        if isinstance(table, dict) and isinstance(table.get("sampler"), dict):
            yield (*loc, "sampler"), table["sampler"]


OWN = "own_code"  # a key next to the experiment's: all names of code outside the catalogs
MOST_OWN = 1000


def own_code(raw: dict[str, Any], source: Source) -> list[str]:
    """Remove and return the names of user code that any strategy of the comparison needs."""
    names = raw.pop(OWN, [])
    if (
        not isinstance(names, list)
        or len(names) > MOST_OWN
        or not all(isinstance(name, str) and ":" in name for name in names)
    ):
        raise source.error((OWN,), f"expected names of code, found {found(names)}")
    return names


def check_code(names: Sequence[str], allowed: Collection[str], source: Source) -> None:
    """UserError with everything that is missing on this machine.

    These are names that are not ``allowed``, missing files, and allowed code that cannot be
    imported.
    """
    refused = [name for name in dict.fromkeys(names) if name not in allowed]
    problems = dict.fromkeys(
        problem for name in names if (problem := _problem(name, name in allowed)) is not None
    )
    said = "names code that is not complete here"
    if refused:
        options = " ".join(f"--allow-task {shlex.quote(name)}" for name in refused)
        several = " and ".join(map(repr, refused))
        said = f"names {several}, which is code of this machine: expected {options} here"
    if refused or problems:
        raise UserError(f"{source.file} {'; '.join((said, *problems))}")


def _problem(name: str, allowed: bool) -> str | None:
    """Why this machine cannot import it; if it is not allowed, only its file is checked."""
    try:
        check_own_file(name, (Path.cwd(),))
        if allowed and kind_of(name) is None:
            load_dotted(name)
    except UserError as error:
        return str(error)
    return None


def check_paths(raw: dict[str, Any], allowed: Collection[str], source: Source) -> None:
    """UserError for the first text that may be a file outside the directory of data sets.

    All texts are checked, because any option of user code may be a file name. Exceptions: traces,
    which no edge opens, and ``allowed`` names.
    """
    if isinstance(raw.get("data"), dict) and raw["data"].get("dir") is not None:
        raise source.error(
            ("data", "dir"),
            "is set on each machine: expected --data DIR here, and none in the config",
        )
    left: list[tuple[Loc, Any]] = [((), raw)]
    while left:  # not recursive: the sender chose the depth
        loc, value = left.pop()
        if isinstance(value, dict):
            left += [((*loc, key), inner) for key, inner in value.items() if key not in TRACES]
        elif isinstance(value, list):
            left += [((*loc, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, str) and value not in allowed and _leads_out(value):
            raise source.error(
                loc,
                f"leads out of this machine's data directory: expected a path below it, found"
                f" {found(value)}",
            )


def _leads_out(text: str) -> bool:
    """Whether a text is no path below a directory, on any system: `C:data` names a drive."""
    begins_elsewhere = text.startswith(("/", "\\", "~")) or re.match("[A-Za-z]:", text) is not None
    return begins_elsewhere or "\0" in text or ".." in re.split(r"[/\\]", text)


# ---------------------------------------------------------------------- names and options
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


def check_names(experiment: Experiment, source: Source, base: Path | None) -> None:
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
    with source.at(*loc, "strategy"):
        strategy = load_strategy(entry.strategy, base)
    of_seed = re.fullmatch(SEED_NAME, entry.name)
    beside = re.fullmatch(BESIDE, entry.name)
    if not re.fullmatch(DIRECTORY_NAME, entry.name) or of_seed or beside:
        key = "strategy" if entry.label is None else "label"
        kept = ", which is the name of a seed's directory" if of_seed else ""
        raise source.error(
            (*loc, key),
            f"expected a name for a directory (letters, digits, _ . -), found {entry.name!r}{kept}",
        )
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
        if section.momentum:
            raise source.error(
                ("training", "momentum"), f"{why}expected 0, found {section.momentum:g}"
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
