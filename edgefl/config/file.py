"""The experiment file between disk, command line and wire.

It reads TOML, with ``extends = "other.toml"`` (a config with only the keys that differ) and
``key.path=value`` from the command line, and checks it; writes the resolved TOML; and makes the
part that edges share. A config from the wire may name code only if the user of this machine allows
it, and files only below the directory of its data sets.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import tomli_w

from edgefl.catalog import load_dotted
from edgefl.config import packaged
from edgefl.config.experiment import TRACES, Experiment, StrategyEntry
from edgefl.config.keys import nearest_key
from edgefl.config.names import check as check_names
from edgefl.config.names import check_own_file, kind_of, own_names, with_plugins
from edgefl.config.packaged import EXTENDS
from edgefl.config.section import Loc, Source, as_override, check_numbers, dotted, found, validated
from edgefl.config.toml import MOST_NESTED, TOO_DEEP, BadTOML, parsed, too_deep
from edgefl.errors import UserError, as_user_error, near_file, nearest
from emulator.compute import read_device_table
from emulator.plain_text import read_text

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


def with_stop(text: str, experiment: Experiment, lengthened: Mapping[str, Any]) -> str:
    """Return a written experiment with the stop keys of ``experiment`` and one more fact.

    ``lengthened``: an entry for the list of that name in [run].
    """
    tables = parsed(text)
    facts = tables.setdefault(FACTS, {})
    facts["lengthened"] = [*facts.get("lengthened", ()), lengthened]
    tables["stop"] = experiment.stop.model_dump(exclude_none=True)
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
INSTEAD = {"seed": "seeds", "seeds": "seed"}  # a key that replaces another


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
        for key in INSTEAD.keys() & layer.keys():
            whole.pop(INSTEAD[key], None)
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


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and not (key in PICKED and _picks_another(old, value))
        ):
            whole[key] = _merged(old, value)
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
    for text, value in _changes(overrides):
        path, equals, written = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys) or len(keys) > MOST_NESTED:
            raise UserError(
                f"{as_override(text)}: expected key.path=value, such as training.epochs=2 or"
                " strategies.0.alpha=0.5"
            )
        value = toml_value(written) if value is None else value
        origins[_put(raw, keys, value, text)] = text
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


def _put(raw: dict[str, Any], keys: list[str], value: Any, text: str) -> Loc:
    """Set the key and return the outermost key that the file did not have, else the key itself."""
    node: Any = raw
    loc: Loc = ()
    created: Loc | None = None
    for depth, key in enumerate(keys):
        step = _step(node, key, loc, text)
        loc = (*loc, step)
        if depth == len(keys) - 1:
            node[step] = value
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
