"""Which edges have which links and devices: the base sections, with what each group overrides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edgefl.config import Experiment
from edgefl.config_errors import Loc, Source, validated
from edgefl.config_links import Devices, Group, Links
from edgefl.config_section import Section
from edgefl.errors import nearest
from emulator.capacity.trace import Start, Trace, read_trace
from emulator.errors import BadValue

ONE_PROFILE = {  # what a profile says: a group that names one does not take these from the base section
    "links": ("up_mbit_s", "down_mbit_s", "latency_ms", "jitter_ms", "loss", "trace_up", "trace_down"),
    "devices": ("samples_per_s",),
}
Table = TypeVar("Table", bound=Section)


@dataclass(frozen=True, slots=True)
class Part:
    """Edges alike. ``name`` is empty if the experiment has no groups."""

    name: str
    ids: tuple[str, ...]
    links: Links
    devices: Devices


def parts(experiment: Experiment, source: Source = Source("config")) -> list[Part]:
    """The groups in order, or one part with all edges. UserError for a key of a group that is wrong."""
    ids = experiment.edges.ids()
    if not experiment.groups:
        return [Part("", tuple(ids), experiment.links, experiment.devices)]
    found: list[Part] = []
    first = 0
    for index, group in enumerate(experiment.groups):
        links = _merged(Links, experiment.links, group, "links", ("groups", index), source)
        devices = _merged(Devices, experiment.devices, group, "devices", ("groups", index), source)
        found.append(Part(group.name, tuple(ids[first : first + group.count]), links, devices))
        first += group.count
    return found


def _merged(kind: type[Table], base: Table, group: Group, table: str, loc: Loc, source: Source) -> Table:
    said: dict[str, Any] = getattr(group, table)
    whole = base.model_dump(exclude_none=True)
    if "profile" in said:
        whole = {key: value for key, value in whole.items() if key not in ONE_PROFILE[table]}
    if "spread" in said:
        whole = {key: value for key, value in whole.items() if key not in ("slowest_ratio", "sigma", "task_samples")}
    return validated(kind, whole | said, source, (*loc, table))


def check(experiment: Experiment, source: Source, base: Path | None) -> None:
    """UserError for what is wrong with groups, traces and the medium together; without ``base`` no file is looked for."""
    if experiment.medium.kind == "tdma":
        _check_no_cuts(experiment, source)
    for index, part in enumerate(parts(experiment, source)):
        loc: Loc = ("groups", index, "links") if experiment.groups else ("links",)
        if part.links.kind == "native":
            continue
        if experiment.medium.kind in ("bottleneck", "tdma"):
            _check_no_own_rate(part.links, loc, experiment.medium.kind, source)
        for key in ("trace_up", "trace_down"):
            name = getattr(part.links, key)
            if name is not None and base is not None:
                try:
                    trace(name, base)
                except BadValue as error:
                    raise source.error((*loc, key), f"{error}{_near(base / name)}") from error


def _check_no_cuts(experiment: Experiment, source: Source) -> None:
    for index, fault in enumerate(experiment.faults):
        if fault.kind.startswith("cut"):
            raise source.error(("faults", index, "kind"), f"links on a TDMA channel have no rate of their own to cut, found {fault.kind!r}")


def trace(name: str, base: Path, start: Start = "run") -> Trace:
    """The trace in a file of the config's folder. BadValue if it is none, or there is none."""
    return read_trace(base / Path(name).expanduser(), start)


def traces(experiment: Experiment) -> list[str]:
    """The names of all trace files, each once."""
    links = [part.links for part in parts(experiment) if part.links.kind == "emulated"]
    return list(dict.fromkeys(name for one in links for name in (one.trace_up, one.trace_down) if name is not None))


def warnings(experiment: Experiment, base: Path) -> list[str]:
    """What people should know about the traces before they run this."""
    return [warning for name in traces(experiment) for warning in trace(name, base).warnings]


def _check_no_own_rate(links: Links, loc: Loc, medium: str, source: Source) -> None:
    for key in ("trace_up", "trace_down", "loss"):
        if getattr(links, key):
            raise source.error((*loc, key), f'edges on a medium of kind "{medium}" have no rate of their own: expected kind = "cell", or no {key}')


def _near(path: Path) -> str:
    return "" if path.exists() else nearest(path.name, [file.name for file in path.parent.glob("*") if file.suffix == path.suffix])
