"""What was run, in short, and in what the configs of compared runs differ.

The strategy and its options are no difference, nor are keys that change no result: names, the
recording, the limits of the verdict, and the transport on the wall clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgefl.errors import UserError, listed, printable
from edgefl.results import run_files

# keys, or whole tables, that are the strategy's own or change no result; seeds are compared apart
IGNORED = {"name", "seed", "seeds", "speed", "strategies", "data.dir"}
IGNORED |= {"network", "record", "fidelity", "run"}
COUNTED = ("network.grace_s", "network.task_timeout_s")  # emulated seconds, although in [network]
CLOCK, DIGEST = "clock", "data_digest"  # of [run]; each seed has its own data_digest
WALL, SPEED = "wall", "speed"
NO_CONFIG = "config.toml"
NOT_READ = "config.toml cannot be read, so nothing is known about its settings"
SHOWN_KEYS = 5
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A key in which runs of a strategy differ from the others. None: the key is not given.

    ``runs``: titles of the runs of the strategy that differ; () for all of them.
    """

    key: str
    value: Any
    instead: Any
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return "links.up_mbit_s = 2 instead of 1"."""
        what = f"{self.key} = {_shown(self.value)} instead of {_shown(self.instead)}"
        if self.key == NO_CONFIG:
            what = NOT_READ
        return f"{what} ({listed(self.runs)})" if self.runs else what


TDMA, NATIVE, LISTS = "tdma", "native links", ("groups", "edges.names")
MEDIA = {"bottleneck": "one shared line", "cell": "one shared cell", TDMA: "a TDMA channel"}
STOPS = {
    "emulated_s": "{:g} s",
    "versions": "{:g} versions",
    "updates": "{:g} updates",
    "target_joules": "{:g} J",
    "no_progress_s": "{:g} s without progress",
}


def in_short(config: Config) -> list[str]:
    """Return what was run as short phrases: the data, the model, the edges, their links, the end.

    ``config``: the tables of a config.toml. Nothing has checked them, so what is not understood is
    left out.
    """

    def value(key: str) -> Any:
        table, _, name = key.rpartition(".")
        found = config.get(table) if table else config
        return found.get(name) if isinstance(found, Mapping) else None

    def of(form: str, key: str) -> str:
        return _phrase(form, value(key))

    split = of(", {}", "partition.name") + of(" {:g}", "partition.alpha")
    data = of("{}", "task") or of("{}", "data.name") + split * bool(of("{}", "data.name"))
    groups, names = (found if isinstance(found := value(key), list) else [] for key in LISTS)
    named = [_phrase("{0[count]:d} {0[name]}", each) for each in groups]
    count = len(names) or value("edges.count")
    edges = _phrase("{:d} edge" + "s" * (count != 1), count)
    rates = of("{:g} Mbit/s up", "links.up_mbit_s"), of("{:g} Mbit/s down", "links.down_mbit_s")
    links = of("{} links", "links.profile") or ", ".join(filter(None, rates))
    medium = of("{}", "medium.kind")
    stops = [of(form, f"stop.{key}") for key, form in STOPS.items()]
    phrases = [
        data,
        "" if of("{}", "task") else of("{}", "model.name"),
        edges + (f" ({', '.join(named)})" if named and all(named) else ""),
        NATIVE if of("{}", "links.kind") == "native" else "" if groups or medium == TDMA else links,
        MEDIA.get(medium, ""),
        _phrase("until {}", " or ".join(filter(None, stops))),
    ]
    return [phrase for phrase in phrases if phrase]


def _phrase(form: str, value: Any) -> str:
    """Return ``form`` with the value; "" if there is none, or one of another type."""
    with suppress(ValueError, TypeError, LookupError, AttributeError):
        return printable(form.format(value), 60) if value not in (None, "", []) else ""
    return ""


def differences(
    strategies: Mapping[str, Sequence[Path]],
    baseline: str | None = None,
    without: Collection[str] = (),
    on_wall: bool = False,
) -> dict[str, tuple[Difference, ...]]:
    """Return in what each strategy differs; () for a strategy that is like the others.

    ``strategies``: run directories by name, as of ``run_files.find``. What is usual is what
    ``baseline`` has, or else most runs; of equally many, the first one. ``without``: keys that do
    not count. ``on_wall``: wall seconds are compared, so the speed of runs on the wall clock does.
    """
    configs = {
        name: [_facts(run, on_wall) for run in of_strategy]
        for name, of_strategy in strategies.items()
    }
    seeds = {name: _seeds(of_strategy) for name, of_strategy in strategies.items()}
    like = list(strategies) if baseline is None else [baseline]
    known = [config for name in like for config in configs[name] if config is not None]
    keys = {key for of in configs.values() for config in of for key in config or ()}
    usual = {
        key: _most([_value(each, key) for each in known if _has_noted(each, key)])
        for key in sorted(keys - set(without))
    }
    unread = {name for name, of in configs.items() if None in of}  # their seeds are not known
    usual_seeds = _most([seeds[name] for name in like if name not in unread])
    found = {
        name: list(_of_strategy(of_strategy, configs[name], usual))
        for name, of_strategy in strategies.items()
    }
    for name, own in seeds.items():
        if name not in unread and usual_seeds not in (None, own):
            found[name].append(Difference("seeds", own, usual_seeds))
    return {name: tuple(differing) for name, differing in found.items()}


def refuse(found: Mapping[str, Sequence[Difference]]) -> None:
    """For ``--strict``: UserError that names all strategies that differ, and in what."""
    different = [f"{name}: {in_one_line(of)}" for name, of in found.items() if of]
    if different:
        raise UserError(
            f"--strict: the runs differ in more than the strategy: {'; '.join(different)}; leave"
            " these runs out, or run them with the same config"
        )


def in_one_line(differing: Sequence[Difference]) -> str:
    """Return the differences in one line; of many, the first ones."""
    return listed([str(each) for each in differing], SHOWN_KEYS)


def _of_strategy(
    of_strategy: Sequence[Path], configs: Sequence[Config | None], usual: Config
) -> Iterator[Difference]:
    """Yield the differences of a strategy's runs, one for each key and value."""
    titles = [run_files.title(run) for run in of_strategy]
    having: list[tuple[str, Any, list[str]]] = []  # not a dict: a value may not be hashable
    if unread := [name for name, config in zip(titles, configs) if config is None]:
        having.append((NO_CONFIG, None, unread))
    for key in usual:
        for name, config in zip(titles, configs):
            if config is None or not _differs(config, key, usual):
                continue
            value = _value(config, key)
            same = (names for of, other, names in having if of == key and other == value)
            if (names := next(same, None)) is None:
                having.append((key, value, names := []))
            names.append(name)
    for key, value, names in having:
        some = () if len(names) == len(titles) else tuple(names)
        yield Difference(key, value, usual.get(key), some)


def _has_noted(config: Config, key: str) -> bool:
    """Whether the config tells ``key``: runs of an older version have not noted each fact."""
    is_fact = key == CLOCK or key.startswith(DIGEST)
    return not is_fact or key in config


def _differs(config: Config, key: str, usual: Config) -> bool:
    array, inside, _ = key.partition("[")
    if inside and _value(config, array) != usual.get(array):
        return False  # an array of another length is one difference, not one for each key
    return _has_noted(config, key) and bool(_value(config, key) != usual[key])


def _facts(run: Path, on_wall: bool) -> dict[str, Any] | None:
    """Return a run's keys that count, by dotted place; None without a config."""
    config = run_files.read_config(run)
    if not config:
        return None
    facts = {
        key: value
        for key, value in _flat(config)
        if key in COUNTED or not {key, key.split(".")[0].split("[")[0]} & IGNORED
    }
    if facts.get("data.source") == "shard":
        facts["data.source"] = "partition"  # a shard is an edge's share of it, in a file
    noted = config.get("run", {})
    if on_wall and noted.get(CLOCK) == WALL:  # "auto" is another one on each host
        facts[SPEED] = run_files.read_summary(run).get(SPEED, config.get(SPEED))
    keys = {CLOCK: CLOCK, DIGEST: f"{DIGEST} of seed {config.get('seed')}"}
    return facts | {key: noted[fact] for fact, key in keys.items() if fact in noted}


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
    from edgefl.config.experiment import Experiment  # it takes long, and figures need none

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


def _seeds(of_strategy: Sequence[Path]) -> list[Any]:
    """Return the seeds of a strategy's runs, without those whose config is missing."""
    configs = [run_files.read_config(run) for run in of_strategy]
    return [config["seed"] for config in configs if "seed" in config]


def _shown(value: Any) -> str:
    match value:
        case None | []:
            return "nothing"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case list():
            return f"[{listed([_shown(each) for each in value], 8)}]"
    return printable(str(value), 60)
