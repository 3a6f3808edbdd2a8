"""The experiment file between disk, command line and wire.

It reads and checks TOML, writes the resolved TOML, and makes the part that edges share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import tomli_w

from edgefl.config.errors import Source, check_numbers, validated
from edgefl.config.experiment import Experiment, StrategyEntry
from edgefl.config.toml import TOO_DEEP, BadTOML, parsed, too_deep
from edgefl.errors import UserError, as_user_error, near_file
from edgefl.loading import extends as config_extends
from edgefl.loading import names as config_names
from edgefl.loading import overrides as config_overrides
from edgefl.loading import packaged, received
from edgefl.loading.device_tables import read_device_tables
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


def load(
    path: Path,
    overrides: Sequence[str] = (),
    placed: Callable[[Experiment], Experiment] = lambda experiment: experiment,
) -> Experiment:
    """Read the experiment in a TOML file and apply ``key.path=value`` overrides.

    ``placed`` may change the edges before names and options are checked. UserError, in one line,
    for the first problem.
    """
    raw, called = config_extends.resolved(path, _read)
    base = _base(raw.pop(FACTS, None), path)
    source = Source(called, config_overrides.apply(raw, overrides))
    read_device_tables(raw, source, base)
    return _checked(raw, source, base, placed)


def base_of(path: Path) -> Path:
    """The folder to which paths of a user's own code are relative.

    This is the folder of the file; for a run's config.toml, the folder of the original config.
    """
    return _base(config_extends.resolved(path, _read)[0].get(FACTS), path)


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
    experiment = placed(validated(Experiment, raw, source))
    config_names.check(experiment, source, base)
    return experiment


def dump(experiment: Experiment, extra: Mapping[str, Any]) -> str:
    """Write the whole experiment as TOML, with ``extra`` tables.

    ``load`` ignores only [run] of these. Keys with None are omitted, because TOML has no null.
    """
    return HEADER + tomli_w.dumps(experiment.model_dump(exclude_none=True) | _without_none(extra))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(inner) for inner in value if inner is not None]
    return value


def _shared(experiment: Experiment, entry: StrategyEntry) -> dict[str, Any]:
    whole = experiment.model_dump(mode="json", exclude_none=True)
    whole["data"].pop("dir", None)  # each machine has its own directory of data
    return {key: whole[key] for key in SHARED if key in whole} | {
        "strategies": [entry.model_dump(mode="json", exclude_none=True)]
    }


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
    own = config_names.own_names(experiment)
    code = {received.OWN: own} if own else {}
    return orjson.dumps(whole | _shared(experiment, entry) | code).decode()


def from_json(text: str, allowed: Collection[str] = ()) -> Experiment:
    """Decode and check an experiment from the wire, with one strategy.

    UserError if it is damaged, or names code that is neither in a catalog nor ``allowed``, or files
    outside the directory of data sets.
    """
    source = Source(THEIRS)
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{source.file}: is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise UserError(f"{source.file}: expected a table")
    if too_deep(raw):
        raise UserError(f"{source.file}: {TOO_DEEP}")
    check_numbers(raw, source)
    needed = received.own_code(raw, source)
    experiment = validated(Experiment, raw, source)
    own = [*config_names.own_names(experiment), *needed]
    received.check_code(own, allowed, source)
    config_names.check(experiment, source, None)
    received.check_paths(raw, allowed, source)
    return experiment
