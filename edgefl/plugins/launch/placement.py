"""The edges of an inventory's hosts as those of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from edgefl.config.errors import Source, validated
from edgefl.config.experiment import Experiment
from edgefl.config.file import load
from edgefl.config.groups import parts
from edgefl.config.links import Group
from edgefl.errors import UserError, listed, nearest
from edgefl.plugins.launch.inventory import NATIVE, Host, Inventory


def load_placed(inventory: Inventory, config: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read the experiment of a config file, with the edges of ``inventory``.

    UserError, in one line, for the first problem.
    """
    return load(config, overrides, partial(place, inventory))


def place(inventory: Inventory, experiment: Experiment) -> Experiment:
    """Return ``experiment`` with the edges of ``inventory``, whatever ``edges.count`` says.

    If the experiment names its edges, the inventory must have exactly these, and their order
    stays. Links and devices of a host replace those of the experiment for the host's edges: as
    many groups are made as are needed. UserError if edges or groups do not fit.
    """
    hosts = inventory.edge_hosts()
    ids = _ids(inventory, experiment, hosts)
    groups = _groups(inventory, experiment, [(edge, hosts[edge]) for edge in ids])
    table = experiment.model_dump(exclude_unset=True) | {
        "edges": {"names": ids},
        "groups": groups,
    }
    return validated(Experiment, table, Source(str(inventory.path)))


def check_placed(inventory: Inventory, experiment: Experiment) -> None:
    """Raise UserError unless ``inventory`` has the edges of a run, with its links and devices."""
    now, then = (
        {edge: (part.links, part.devices) for part in parts(each) for edge in part.ids}
        for each in (place(inventory, experiment), experiment)
    )
    other = [edge for edge in then if now[edge] != then[edge]]
    if other:
        raise UserError(
            f"{inventory.path}: gives {listed(other)} other links or devices than the run has:"
            " expected the inventory with which it began"
        )


def _ids(inventory: Inventory, experiment: Experiment, hosts: dict[str, Host]) -> list[str]:
    """The ids of all edges, in order."""
    wanted = experiment.edges.names
    if not wanted:
        return list(hosts)
    idle = [host for host in inventory.hosts if not set(host.edges) <= set(wanted)]
    if idle:
        spare = next(edge for edge in idle[0].edges if edge not in wanted)
        raise UserError(
            f"{inventory.path}: host {idle[0].name!r} is not needed: the config's edges.names has"
            f" no {spare!r}{nearest(spare, set(wanted) - hosts.keys())}; give the host's names, or"
            " remove it or edges.names"
        )
    missing = [edge for edge in wanted if edge not in hosts]
    if missing:
        names = listed([*map(repr, missing)])
        raise UserError(
            f"{inventory.path}: no host has {names} of the config's edges.names; give"
            " names to a host, or remove edges.names"
        )
    return list(wanted)


def _groups(
    inventory: Inventory, experiment: Experiment, edges: Sequence[tuple[str, Host]]
) -> list[dict[str, Any]]:
    """The groups of the placed experiment, as tables; none if all edges are alike."""
    said = any(host.links or host.devices for _, host in edges)
    given = list(_given(experiment.groups))
    if given and len(given) != len(edges):
        partly = next(
            (host.name for _, host in edges if host.links is None or host.devices is None), None
        )
        if partly is not None:
            raise UserError(
                f"{inventory.path}: its hosts have {len(edges)} edges, but the counts of the"
                f" config's groups add up to {len(given)}; give links and devices to every host"
                f" (not to {partly!r} yet), or change the counts, or groups=[]"
            )
        given = []
    if not said:
        return [group.model_dump() for group in experiment.groups]
    bases: Sequence[Group | None] = given or [None] * len(edges)
    found: list[dict[str, Any]] = []
    settings = [_settings(host, base) for (_, host), base in zip(edges, bases)]
    for (name, links, devices), run in groupby(settings):
        found.append(
            {
                "name": _free(name, [group["name"] for group in found]),
                "count": len(list(run)),
                "links": links,
                "devices": devices,
            }
        )
    return found


def _given(groups: Sequence[Group]) -> Iterator[Group]:
    """The group of each edge."""
    for group in groups:
        yield from [group] * group.count


def _settings(host: Host, base: Group | None) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A name for the group of an edge, and its keys of links and devices."""
    links = {} if base is None else base.links
    devices = {} if base is None else base.devices
    words = [] if base is None or (host.links and host.devices) else [base.name]
    if host.links is not None:
        links = {"kind": NATIVE} if host.links == NATIVE else _emulated(host.links)
    if host.devices is not None:
        # no spread: the profile is the speed of this host's edges, whichever share a group
        devices = (
            {"kind": NATIVE}
            if host.devices == NATIVE
            else _emulated(host.devices) | {"spread": "uniform"}
        )
    words += [word for word in (host.links, host.devices) if word]
    return "-".join(dict.fromkeys(words)) or "others", links, devices


def _emulated(profile: str) -> dict[str, Any]:
    return {"kind": "emulated", "profile": profile}


def _free(name: str, taken: Sequence[str]) -> str:
    """A name for a group: not longer than allowed, and different from those that are taken."""
    number, free = 1, name[:32]
    while free in taken:
        number += 1
        free = f"{name[:28]}-{number}"
    return free
