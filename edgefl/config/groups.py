"""The links and devices of each edge: the base sections with the overrides of its group."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edgefl.config.errors import Loc, Source, validated
from edgefl.config.experiment import Experiment
from edgefl.config.links import LINK_DEFAULTS, Devices, Group, Links, Medium
from edgefl.config.section import Section
from edgefl.errors import nearest
from emulator import profiles
from emulator.capacity.trace import Start, Trace, read_trace
from emulator.errors import BadValue
from emulator.units import to_ns

# keys that a profile sets: a group with a profile does not inherit them from the base section
ONE_PROFILE = {
    "links": (
        "up_mbit_s",
        "down_mbit_s",
        "latency_ms",
        "jitter_ms",
        "loss",
        "trace_up",
        "trace_down",
    ),
    "devices": ("samples_per_s",),
}
CHECKED = Source("config")  # for a valid experiment: no error will name this source
# keys of a speed, which a group with another unit does not inherit
SPEEDS = ("samples_per_s", "tokens_per_s", "samples_per_slot", "profile")
WITHOUT_CAPS = ("bottleneck", "tdma")  # media on which edges have no rate of their own
TRACES = ("trace_up", "trace_down")
Table = TypeVar("Table", bound=Section)


@dataclass(frozen=True, slots=True)
class Part:
    """Edges with the same links and devices.

    ``name`` is empty if the experiment has no groups. ``at``: where its tables are in the file.
    """

    name: str
    at: Loc
    ids: tuple[str, ...]
    links: Links
    devices: Devices


def parts(experiment: Experiment, source: Source = CHECKED) -> list[Part]:
    """Return the groups in order, or one part with all edges.

    UserError if a key of a group is invalid.
    """
    ids = experiment.edges.ids()
    if not experiment.groups:
        return [Part("", (), tuple(ids), experiment.links, experiment.devices)]
    found: list[Part] = []
    first = 0
    for index, group in enumerate(experiment.groups):
        at = ("groups", index)
        links = _merged(Links, experiment.links, group, "links", at, source)
        devices = _merged(Devices, experiment.devices, group, "devices", at, source)
        mine = tuple(ids[first : first + group.count])
        found.append(Part(group.name, at, mine, links, devices))
        first += group.count
    return found


class PartFinder:
    """Finds an edge's part, and its place in it, without a table of all edges."""

    def __init__(self, experiment: Experiment) -> None:
        self.parts, self._places = parts(experiment), experiment.edges.places()
        self._firsts = [0]
        for part in self.parts[:-1]:
            self._firsts.append(self._firsts[-1] + len(part.ids))

    def find(self, edge: str) -> tuple[int, int]:
        """Return (index in ``parts``, place in its ids). KeyError if there is no such edge."""
        place = self._places[edge]
        index = bisect_right(self._firsts, place) - 1
        return index, place - self._firsts[index]

    def part(self, edge: str) -> Part:
        return self.parts[self.find(edge)[0]]


def _merged(
    kind: type[Table], base: Table, group: Group, table: str, loc: Loc, source: Source
) -> Table:
    said: dict[str, Any] = getattr(group, table)
    whole = base.model_dump(exclude_none=True)
    if "profile" in said:
        whole = {key: value for key, value in whole.items() if key not in ONE_PROFILE[table]}
    if "unit" in said:
        whole = {key: value for key, value in whole.items() if key not in SPEEDS}
    if "spread" in said:
        whole = {
            key: value
            for key, value in whole.items()
            if key not in ("slowest_ratio", "sigma", "long", "gamma", "task_samples", "sampler")
        }
    return validated(kind, whole | said, source, (*loc, table))


def check(experiment: Experiment, source: Source, base: Path | None) -> None:
    """Check groups, traces and the medium together; UserError for the first problem.

    Without ``base``, trace files are not read.
    """
    _check_traces(experiment.medium, ("medium",), source, base)
    found = parts(experiment, source)
    modelled = any(part.devices.energy or part.links.radio for part in found)
    if experiment.stop.target_joules is not None and not modelled:
        said = "expected with [devices.energy] or [links.radio]: without, no energy is modelled"
        raise source.error(("stop", "target_joules"), said)
    for part in found:
        loc = (*part.at, "links")
        if part.links.kind == "native":
            continue
        if experiment.medium.kind in WITHOUT_CAPS:
            _check_no_own_rate(part.links, loc, experiment.medium, source)
        _check_traces(part.links, loc, source, base)


def _check_traces(table: Links | Medium, loc: Loc, source: Source, base: Path | None) -> None:
    for key in TRACES:
        name = getattr(table, key)
        if name is not None and base is not None:
            try:
                trace(name, base)
            except BadValue as error:
                raise source.error((*loc, key), f"{error}{_near(base / name)}") from error


def trace(name: str, base: Path, start: Start = "run") -> Trace:
    """Read a trace file; ``name`` is relative to ``base``, the config's directory.

    BadValue if it is missing or not a trace.
    """
    return read_trace(base / Path(name).expanduser(), start)


def traces(experiment: Experiment) -> list[str]:
    """The names of all trace files, each once."""
    tables: list[Medium | Links] = [
        experiment.medium,
        *(part.links for part in parts(experiment) if part.links.kind == "emulated"),
    ]
    return list(
        dict.fromkeys(
            name for one in tables for name in (one.trace_up, one.trace_down) if name is not None
        )
    )


def availability_file(experiment: Experiment) -> list[str]:
    """The name of the file with the edges' availability, if there is one."""
    section = experiment.edges.availability
    return [] if section is None or section.file is None else [section.file]


def warnings(experiment: Experiment, base: Path) -> list[str]:
    """Return warnings about traces, and about keys that have no effect on the chosen medium."""
    found: list[str] = []
    for read in (trace(name, base) for name in traces(experiment)):
        found += read.warnings
        if experiment.stop.emulated_s is None or read.period_ns < to_ns(experiment.stop.emulated_s):
            found.append(f"{read.name} {read.repeats}")
    return found + _unused(experiment)


def _unused(experiment: Experiment) -> list[str]:
    medium = experiment.medium
    if medium.kind not in WITHOUT_CAPS:
        return []
    links = [part.links for part in parts(experiment) if part.links.kind == "emulated"]
    rates = dict.fromkeys(rate for one in links for rate in _rates_said(one, medium.shared))
    named = dict.fromkeys(
        one.profile for one in links if one.profile is not None and one.loss is None
    )
    unused = [f"the loss of profile {name}" for name in named if profiles.link_profile(name).loss]
    if rates:
        unused.append(", ".join(rates))
    return [
        f'links: {what} has no effect on a medium of kind "{medium.kind}", where edges have no'
        " rate of their own"
        for what in unused
    ]


def _rates_said(links: Links, ways: tuple[str, ...]) -> list[str]:
    """The rates that differ from the defaults, for messages."""
    keys = [f"{way}_mbit_s" for way in ways]
    values = {key: getattr(links, key) for key in keys if getattr(links, key) is not None}
    unsaid = LINK_DEFAULTS if links.profile is None else {}
    return [f"{key} = {value:g}" for key, value in values.items() if value != unsaid.get(key)]


def _check_no_own_rate(links: Links, loc: Loc, medium: Medium, source: Source) -> None:
    for key in (*(f"trace_{way}" for way in medium.shared), "loss"):
        if getattr(links, key):
            or_medium = (
                f" (or medium.{key}: the shared rate)"
                if key in TRACES and medium.kind == "bottleneck"
                else ""
            )
            said = (
                f'edges on a medium of kind "{medium.kind}" have no rate of their own: expected'
                f' kind = "cell"{or_medium}, or no {key}'
            )
            raise source.error((*loc, key), said)


def _near(path: Path) -> str:
    return (
        ""
        if path.exists()
        else nearest(
            path.name, [file.name for file in path.parent.glob("*") if file.suffix == path.suffix]
        )
    )
