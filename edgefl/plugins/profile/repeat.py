"""The experiment that repeats runs with emulated links and devices, as a commented TOML file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import tomli_w

from edgefl.config.experiment import Experiment, Part, parts
from edgefl.config.file import FACTS, load
from edgefl.errors import UserError, undamaged
from edgefl.plugins.profile.edge_profile import (
    LEAST_PINGS,
    DeviceProfile,
    LinkProfile,
    LinkRate,
    MeasuredRun,
    device_profile,
    lacks,
    link_profile,
)
from edgefl.record.files import EVENTS, LINKS
from edgefl.record.tables import write_whole
from edgefl.results import run_files
from edgefl.results.families.native import WAYS, measured
from edgefl.results.read import read_csv, read_events
from emulator.compute import Device

EQUAL_SHARE = 0.02  # edges whose numbers differ by at most this share are equal
EQUAL_LATENCY_S = 0.0002
DIGITS = 5
GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
WRITTEN_APART = ("links", "devices", "groups")
# of [network]: where this machine listens is no part of the experiment
OF_THIS_MACHINE = ("host", "port")


class Match(StrEnum):
    """What the rates of a profile reproduce."""

    rate = "rate"  # the goodput on the wire
    time = "time"  # the whole time of a transfer of the same size, with what is not the wire


@dataclass(frozen=True, slots=True)
class EdgeTables:
    """An edge's keys for ``[groups.links]`` and ``[groups.devices]``, and where they come from.

    ``measured``: "links", "devices" or both; the others were given and stay exact. ``traces``: by
    file name, the rows (s, bit/s) that a key names.
    """

    edge: str
    links: dict[str, Any]
    devices: dict[str, Any]
    measured: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    traces: dict[str, tuple[tuple[float, float | None], ...]] = field(default_factory=dict)


def edge_tables(
    experiment: Experiment,
    links: Mapping[str, LinkProfile],
    native: Mapping[str, DeviceProfile],
    folder: str,
    match: Match,
    made: Mapping[str, Device],
) -> list[EdgeTables]:
    """Return the tables of all edges in order; an emulated part keeps the numbers that it had.

    ``folder``: that of the trace files, as the config names it. ``made``: the experiment's devices.
    """
    found = []
    for part in parts(experiment):
        for edge in part.ids:
            notes: list[str] = []
            traces: dict[str, tuple[tuple[float, float | None], ...]] = {}
            of_links = (
                _link_keys(edge, links[edge], folder, match, notes, traces)
                if edge in links
                else part.links.model_dump(exclude_none=True, exclude={"kind"})
            )
            of_device = (
                _device_keys(native[edge], experiment.training.batch_size, notes)
                if edge in native
                else _kept_device(part, made[edge])
            )
            of_radio, of_energy = _powers(part)
            of_links, of_device = of_links | of_radio, of_device | of_energy
            measured = frozenset(
                name for name, of in (("links", links), ("devices", native)) if edge in of
            )
            found.append(EdgeTables(edge, of_links, of_device, measured, tuple(notes), traces))
    return found


def _powers(part: Part) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of the radio and of the device's energy, as numbers: their profiles may not stay."""
    radio, energy = part.links.radio, part.devices.energy
    return (
        {} if radio is None else {"radio": asdict(radio.power(part.links.profile))},
        {} if energy is None else {"energy": asdict(energy.power(part.devices.profile))},
    )


def _kept_device(part: Part, device: Any) -> dict[str, Any]:
    """The keys that make this emulated device again, in whatever group its edge is."""
    section = part.devices
    if section.spread == "classes":
        raise UserError(
            'devices.spread = "classes": runtime classes are drawn for a whole group, so this'
            " group cannot be divided by edge; expected native devices or another spread"
        )
    kept = section.model_dump(exclude_none=True, include={"throttling", "bursts"})
    if section.spread == "exponential":
        kept["spread"] = section.spread
    if section.task_jitter:
        kept["task_jitter"] = section.task_jitter
    return {"samples_per_s": device.samples_per_s, **kept}


def _link_keys(
    edge: str,
    link: LinkProfile,
    folder: str,
    match: Match,
    notes: list[str],
    traces: dict[str, tuple[tuple[float, float | None], ...]],
) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for way in WAYS:
        rate = link.rates[way]
        share = link.whole_share(way) if match is Match.time else 1.0
        keys[f"{way}_mbit_s"] = _rounded(share * rate.bit_s / 1e6)
        if rate.trace:
            name = f"{folder}{edge}_{way}.csv"
            keys[f"trace_{way}"] = name
            traces[name] = tuple((at_s, bit_s and share * bit_s) for at_s, bit_s in rate.trace)
        notes.append(f"{way}: {_of_rate(rate)}; {link.counts[way]} busy periods")
        if way in link.slower:
            notes.append(
                f"{way}: while other edges moved too, {link.slower[way]:.2f} of the goodput alone"
            )
    keys["latency_ms"] = _rounded(1e3 * link.latency_s)
    pings, idle = link.counts["pings"], link.counts["idle_pings"]
    notes.append(
        f"latency: half of the median of {idle} idle round trips"
        if idle >= LEAST_PINGS
        else f"latency: half of the shortest of {pings} round trips, because {idle} were idle"
    )
    if link.jitter_s:
        keys["jitter_ms"] = _rounded(1e3 * link.jitter_s)
        notes.append("jitter: from the middle 68 % of these round trips")
    rest = link.rest
    of_task = "" if rest.share is None else f": {100 * rest.share:.1f} % of a task"
    counted = "not in the model" if match is Match.rate else "in the rates, for models of this size"
    notes.append(
        f"{counted}: {1e3 * rest.down_s:.1f} ms of a download, {1e3 * rest.up_s:.1f} ms from there"
        f" to the end of the upload{of_task}"
    )
    return keys


def _of_rate(rate: LinkRate) -> str:
    low, mean, high = (
        f"{each / 1e6:.3g}" for each in (rate.low_bit_s, rate.bit_s, rate.high_bit_s)
    )
    what = "a trace, because the rate varied" if rate.trace else "constant"
    return f"{what}; mean {mean}, at 10 and 90 % of the time {low} and {high} Mbit/s"


def _device_keys(device: DeviceProfile, batch: int, notes: list[str]) -> dict[str, Any]:
    notes.append(
        f"device: {device.trainings} trainings of {device.samples:.0f} samples on average, in"
        f" batches of {batch}; median {device.median:.4g}, 5th to 95th percentile {device.p5:.4g}"
        f" to {device.p95:.4g}"
    )
    if device.overhead_s is not None:
        notes.append(
            f"device: of each training, {1e3 * device.overhead_s:.1f} ms do not depend on its"
            " samples; the speed contains them"
        )
    return {"samples_per_s": _rounded(device.samples_per_s)}


# ------------------------------------------------------------------ groups of equal edges
def grouped(tables: Sequence[EdgeTables]) -> list[list[EdgeTables]]:
    """Join neighbours that are equal: the same keys, and numbers within EQUAL_SHARE.

    Only neighbours, because a group takes the next edges of the experiment, and an edge's place
    decides which data it has. An edge with a trace is a group of its own.
    """
    found: list[list[EdgeTables]] = []
    for each in tables:
        if found and not each.traces and all(_equal(each, member) for member in found[-1]):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _equal(one: EdgeTables, other: EdgeTables) -> bool:
    if one.traces or other.traces or one.measured != other.measured:
        return False
    for name in WRITTEN_APART[:2]:
        ours, theirs = getattr(one, name), getattr(other, name)
        if name not in one.measured and ours != theirs:
            return False
        if ours.keys() != theirs.keys() or not all(
            _near(key, value, theirs[key]) for key, value in ours.items()
        ):
            return False
    return True


def _near(key: str, value: Any, other: Any) -> bool:
    if not isinstance(value, float):
        return bool(value == other)
    least = 1e3 * EQUAL_LATENCY_S if key in ("latency_ms", "jitter_ms") else 0.0
    return bool(abs(value - other) <= max(EQUAL_SHARE * min(value, other), least))


def _mean(name: str, group: Sequence[EdgeTables]) -> dict[str, Any]:
    """The group's table ``name``: the mean of each measured number, and others as they are."""
    tables = [getattr(each, name) for each in group]
    return {
        key: _rounded(sum(each[key] for each in tables) / len(tables))
        if isinstance(value, float) and name in group[0].measured
        else value
        for key, value in tables[0].items()
    }


# ------------------------------------------------------------------ the file
def config_text(
    experiment: Experiment, tables: Sequence[EdgeTables], run: str, base: str | None
) -> str:
    """Return the TOML text of the repeated experiment, with a comment at each group.

    ``run``: the run that was measured. ``base``: the folder of the run's own code, if it has one.
    """
    network = experiment.network.model_dump(exclude_none=True, exclude=set(OF_THIS_MACHINE))
    kept = experiment.model_dump(exclude_none=True, exclude={*WRITTEN_APART, "speed", "network"})
    whole = kept | {"network": network} | ({"run": {"base": base}} if base else {})
    lines = [
        f"# The experiment of {run} with emulated links and devices, from what that run measured.",
        "# All other keys are those of the run. Written by edgefl profile.",
        tomli_w.dumps(whole),
        tomli_w.dumps({"links": {"kind": "emulated"}, "devices": {"kind": "emulated"}}),
    ]
    names: set[str] = set()
    for number, group in enumerate(grouped(tables)):
        edges = ", ".join(each.edge for each in group)
        lines += [f"# {edges}", *(f"#   {note}" for note in _notes(group))]
        name = group[0].edge if len(group) == 1 else f"group-{number}"
        if not GROUP_NAME.fullmatch(name) or name in names:
            name = f"group-{number}"
        names.add(name)
        table = {
            "name": name,
            "count": len(group),
            "links": _mean("links", group),
            "devices": _mean("devices", group),
        }
        lines.append(tomli_w.dumps({"groups": [table]}))
    return "\n".join(lines)


def _notes(group: Sequence[EdgeTables]) -> list[str]:
    if len(group) == 1:
        return list(group[0].notes)
    return [
        f"equal within {100 * EQUAL_SHARE:g} %, so these are means",
        *(f"{each.edge}: {note}" for each in group for note in each.notes),
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


MOST_NAMED = 6  # edges in an error line
TRACES = "traces/"
CLOCK = "wall"


@dataclass(frozen=True, slots=True)
class NativeProfile:
    """What the runs tell of their native parts, and the experiment that repeats them.

    ``links`` and ``devices``: of the native ones, by edge. ``base``: the folder of the runs' own
    code, None if they have none.
    """

    source: Path
    experiment: Experiment
    links: dict[str, LinkProfile]
    devices: dict[str, DeviceProfile]
    base: str | None


def read(path: Path) -> NativeProfile:
    """Make the profile of the run in ``path``, or of all strategies and seeds below it.

    UserError if the runs have no native part, measured too little, or belong to different
    experiments.
    """
    directories = [run for runs in run_files.find([path]).values() for run in runs]
    experiment = _experiment(path, directories)
    native = _native(experiment)
    if not any(native.values()):
        raise UserError(
            f"{path}: links and devices of this run are emulated, so nothing was measured; expected"
            ' a run with links.kind = "native" or devices.kind = "native"'
        )
    runs = []
    for run in directories:
        with undamaged(run):
            runs.append(_measured_run(run))
    _check_enough(path, experiment, native, runs)
    base = run_files.read_config(directories[0]).get(FACTS, {}).get("base")
    return NativeProfile(
        path,
        experiment,
        {edge: link_profile(edge, runs) for edge in native["links"]},
        {edge: device_profile(edge, runs) for edge in native["devices"]},
        base,
    )


def write(
    profile: NativeProfile, folder: Path, match: Match, made: Mapping[str, Device]
) -> list[Path]:
    """Write the config and its traces into ``folder``; return the paths, the config first.

    ``made``: the devices of the profile's experiment, by edge. UserError if the config exists: the
    user may have changed it.
    """
    config = folder / f"{profile.experiment.name}.toml"
    if config.exists():
        raise UserError(f"{config}: already exists; choose another --out DIR, or delete it")
    traces = str(folder.resolve() / TRACES) + "/" if profile.base else TRACES
    tables = edge_tables(profile.experiment, profile.links, profile.devices, traces, match, made)
    paths = [config]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (item for each in tables for item in each.traces.items()):
            paths.append(folder / name)
            paths[-1].parent.mkdir(exist_ok=True)
            lines = [f"{at_s:.6f},{'' if rate is None else round(rate)}" for at_s, rate in rows]
            write_whole(paths[-1], "\n".join(["seconds,bit_s", *lines, ""]).encode())
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be written ({error.strerror})") from error
    text = config_text(profile.experiment, tables, str(profile.source), profile.base)
    write_whole(config, text.encode())
    load(config)  # it must be one that edgefl accepts
    return paths


def _measured_run(run: Path) -> MeasuredRun:
    requests_s: defaultdict[str, list[float]] = defaultdict(list)
    ended_s = 0.0
    for row in read_events(run / EVENTS):
        ended_s = row["t"]
        if row.get("event") == "fresh_requested":
            requests_s[row["edge"]].append(ended_s)
    return MeasuredRun(measured(run), read_csv(run / LINKS), requests_s, ended_s)


def _experiment(path: Path, directories: Sequence[Path]) -> Experiment:
    """The experiment of these runs, with all their seeds, under a name of its own."""
    found = [load(run / "config.toml") for run in directories]
    for run, other in zip(directories, found):
        if _without_seed(other) != _without_seed(found[0]):
            raise UserError(
                f"{path}: {directories[0].name} and {run.name} are runs of different experiments;"
                " expected the directory of one run or of one experiment"
            )
    facts = run_files.read_config(directories[0]).get(FACTS, {})
    if facts.get("clock", CLOCK) != CLOCK:
        raise UserError(
            f"{path}: a run under the virtual clock measures nothing; expected a run on the wall"
            ' clock with links.kind = "native" or devices.kind = "native"'
        )
    seeds = sorted({one.seed for one in found})
    changes: dict[str, Any] = {"name": f"{found[0].name[:57]}-repeat"}
    if len(seeds) > 1:
        changes |= {"seed": Experiment.model_fields["seed"].default, "seeds": tuple(seeds)}
    return found[0].model_copy(update=changes)


def _without_seed(experiment: Experiment) -> Experiment:
    # with speed = "auto", each run chooses its own
    network = experiment.network.model_copy(update={"port": 0})
    return experiment.model_copy(update={"seed": 0, "speed": 1.0, "network": network})


def _native(experiment: Experiment) -> dict[str, list[str]]:
    """The edges with native links, and those with native devices."""
    if experiment.medium.kind != "none" and any(
        part.links.kind == "native" for part in parts(experiment)
    ):
        raise UserError(
            f'medium.kind = "{experiment.medium.kind}": the native links of this run are not on'
            " that medium, but emulated ones would be; expected a run without a medium"
        )
    return {
        table: [
            edge
            for part in parts(experiment)
            if getattr(part, table).kind == "native"
            for edge in part.ids
        ]
        for table in ("links", "devices")
    }


def _check_enough(
    path: Path, experiment: Experiment, native: dict[str, list[str]], runs: Sequence[MeasuredRun]
) -> None:
    missing = {
        edge: lacking
        for edge in experiment.edges.ids()
        if (lacking := lacks(edge, runs, edge in native["links"], edge in native["devices"]))
    }
    if missing:
        named = [f"{edge} has {', '.join(of)}" for edge, of in list(missing.items())[:MOST_NAMED]]
        more = len(missing) - len(named)
        raise UserError(
            f"{path}: measured too little: {'; '.join(named)}"
            + (f"; and {more} more edges" if more > 0 else "")
            + " (a longer run measures more)"
        )
