"""Read the runs that a profile is made from, check that they suffice, and write the profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.errors import UserError, undamaged
from edgefl.loading.file import FACTS, load
from edgefl.profile import repeat
from edgefl.profile.edge_profile import (
    DeviceProfile,
    LinkProfile,
    MeasuredRun,
    device_profile,
    lacks,
    link_profile,
)
from edgefl.record.files import EVENTS, LINKS
from edgefl.record.tables import write_whole
from edgefl.results import rundirs
from edgefl.results.measured import measured
from edgefl.results.tail import read_csv, read_events
from emulator.compute import Device

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
    directories = [run for runs in rundirs.find([path]).values() for run in runs]
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
    base = rundirs.read_config(directories[0]).get(FACTS, {}).get("base")
    return NativeProfile(
        path,
        experiment,
        {edge: link_profile(edge, runs) for edge in native["links"]},
        {edge: device_profile(edge, runs) for edge in native["devices"]},
        base,
    )


def write(
    profile: NativeProfile, folder: Path, match: repeat.Match, made: Mapping[str, Device]
) -> list[Path]:
    """Write the config and its traces into ``folder``; return the paths, the config first.

    ``made``: the devices of the profile's experiment, by edge. UserError if the config exists: the
    user may have changed it.
    """
    config = folder / f"{profile.experiment.name}.toml"
    if config.exists():
        raise UserError(f"{config}: already exists; choose another --out DIR, or delete it")
    traces = str(folder.resolve() / TRACES) + "/" if profile.base else TRACES
    tables = repeat.edge_tables(
        profile.experiment, profile.links, profile.devices, traces, match, made
    )
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
    text = repeat.config_text(profile.experiment, tables, str(profile.source), profile.base)
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
    facts = rundirs.read_config(directories[0]).get(FACTS, {})
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
