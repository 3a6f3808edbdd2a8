"""In what the configs of compared runs differ, apart from the strategy and its options.

Keys that change no result do not count: names, the recording, the limits of the verdict, and the
transport on the wall clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, listed, printable
from edgefl.results import rundirs

# keys, or whole tables, that are the strategy's own or change no result
IGNORED = {
    "name",
    "seed",  # compared per scheme
    "seeds",
    "speed",
    "strategies",
    "data.dir",
    "network",
    "record",
    "fidelity",
    "run",
}
COUNTED = ("network.grace_s", "network.task_timeout_s")  # emulated seconds, although in [network]
CLOCK, DIGEST = "clock", "data_digest"  # of [run]; each seed has its own data_digest
NO_CONFIG = "config.toml"
SHOWN_KEYS = 5
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A key in which runs of a scheme differ from the others. None: the key is not given.

    ``runs``: titles of the runs of the scheme that differ; () for all of them.
    """

    key: str
    value: Any
    instead: Any
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return "links.up_mbit_s = 2 instead of 1"."""
        if self.key == NO_CONFIG:
            return self._of_runs("no readable config.toml")
        return self._of_runs(f"{self.key} = {_told(self.value)} instead of {_told(self.instead)}")

    def _of_runs(self, what: str) -> str:
        return f"{what} ({listed(self.runs)})" if self.runs else what


def differences(
    schemes: Mapping[str, Sequence[Path]],
    baseline: str | None = None,
    without: Collection[str] = (),
) -> dict[str, tuple[Difference, ...]]:
    """Return in what each scheme differs; () for a scheme that is like the others.

    ``schemes``: run directories by name, as of ``rundirs.find``. What is usual is what ``baseline``
    has, or else most runs; of equally many, the first one. ``without``: keys that do not count.
    """
    configs = {name: [_facts(run) for run in runs] for name, runs in schemes.items()}
    seeds = {name: _seeds(runs) for name, runs in schemes.items()}
    like = list(schemes) if baseline is None else [baseline]
    known = [config for name in like for config in configs[name] if config is not None]
    keys = sorted(
        {key for runs in configs.values() for config in runs for key in config or ()} - set(without)
    )
    usual = {key: _most([_value(each, key) for each in _telling(known, key)]) for key in keys}
    usual_seeds = _most([seeds[name] for name in like])
    return {
        name: (
            *_of_scheme(runs, configs[name], usual),
            *(
                [Difference("seeds", own, usual_seeds)]
                if (own := seeds[name]) != usual_seeds
                else ()
            ),
        )
        for name, runs in schemes.items()
    }


def refuse(found: Mapping[str, Sequence[Difference]]) -> None:
    """For ``--strict``: UserError that names all schemes that differ, and in what."""
    different = [f"{name}: {told(differing)}" for name, differing in found.items() if differing]
    if different:
        raise UserError(
            f"--strict: the runs differ in more than the strategy: {'; '.join(different)}; leave"
            " these runs out, or run them with the same config"
        )


def told(differing: Sequence[Difference]) -> str:
    """Return the differences in one line; of many, the first ones."""
    return listed([str(each) for each in differing], SHOWN_KEYS)


def _of_scheme(
    runs: Sequence[Path], configs: Sequence[Config | None], usual: Config
) -> Iterator[Difference]:
    """Yield the differences of a scheme's runs, one for each key and value."""
    titles = [rundirs.title(run) for run in runs]

    def of(places: Sequence[int]) -> tuple[str, ...]:
        return () if len(places) == len(runs) else tuple(titles[place] for place in places)

    if unread := [place for place, config in enumerate(configs) if config is None]:
        yield Difference(NO_CONFIG, None, None, of(unread))
    for key, expected in usual.items():
        having: list[tuple[Any, list[int]]] = []  # not a dict: a value may not be hashable
        for place, config in enumerate(configs):
            if config is None or not _differs(config, key, usual):
                continue
            value = _value(config, key)
            same = next((places for other, places in having if other == value), None)
            if same is None:
                having.append((value, same := []))
            same.append(place)
        for value, places in having:
            yield Difference(key, value, expected, of(places))


def _telling(configs: Sequence[Config], key: str) -> list[Config]:
    """Return the configs that tell ``key``: runs of an older version have not noted each fact."""
    return [config for config in configs if not _is_fact(key) or key in config]


def _is_fact(key: str) -> bool:
    return key == CLOCK or key.startswith(DIGEST)


def _differs(config: Config, key: str, usual: Config) -> bool:
    array, inside, _ = key.partition("[")
    if inside and _value(config, array) != usual.get(array):
        return False  # an array of another length is one difference, not one for each key
    return bool(_telling([config], key)) and bool(_value(config, key) != usual[key])


def _facts(run: Path) -> dict[str, Any] | None:
    """Return a run's keys that count, by dotted place; None without a config."""
    config = rundirs.read_config(run)
    if not config:
        return None
    found = {key: value for key, value in _flat(config) if not _is_ignored(key)}
    if found.get("data.source") == "shard":
        found["data.source"] = "partition"  # a shard is an edge's share of it, in a file
    facts = config.get("run", {})
    keys = {CLOCK: CLOCK, DIGEST: f"{DIGEST} of seed {config.get('seed')}"}
    return found | {key: facts[fact] for fact, key in keys.items() if fact in facts}


def _is_ignored(key: str) -> bool:
    return key not in COUNTED and (key in IGNORED or key.split(".")[0].split("[")[0] in IGNORED)


def _flat(value: Config, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted place, value) of all keys.

    An array of tables has its length as value, and its tables have their position as place.
    """
    for key, inner in value.items():
        place = f"{at}.{key}" if at else key
        if isinstance(inner, Mapping):
            yield from _flat(inner, place)
        elif isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner):
            yield place, f"{len(inner)} {'entry' if len(inner) == 1 else 'entries'}"
            for position, table in enumerate(inner):
                yield from _flat(table, f"{place}[{position}]")
        else:
            yield place, inner


def _value(config: Config, key: str) -> Any:
    """Return a key's value, or its default: older versions did not write each of today's keys."""
    if key in config:
        return config[key]
    value: Any = Experiment
    for part in key.split("."):
        if isinstance(value, type) and issubclass(value, BaseModel):
            field = value.model_fields.get(part)
            value = None if field is None or field.is_required() else field.get_default()
        else:
            value = getattr(value, part, None)
    return list(value) if isinstance(value, tuple) else value


def _most(values: Sequence[Any]) -> Any:
    """Return the most frequent value, the first of equally frequent ones; None without any."""
    return max(values, key=values.count, default=None)


def _seeds(runs: Sequence[Path]) -> list[Any]:
    """Return the seeds of a scheme's runs, without those whose config is missing."""
    return [config["seed"] for run in runs if "seed" in (config := rundirs.read_config(run))]


def _told(value: Any) -> str:
    match value:
        case None | []:
            return "nothing"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case list():
            return f"[{listed([_told(each) for each in value], 8)}]"
    return printable(str(value), 60)
