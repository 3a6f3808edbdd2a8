"""How an experiment is spread over the hosts of an inventory; reads the config, contacts no host.

First the edges of the hosts as those of the experiment; then what a launch copies to each host and
starts there, and the limits of its runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from edgefl.config.experiment import Experiment, parts
from edgefl.config.file import load, own_names, to_json
from edgefl.config.keys import nearest_key
from edgefl.config.links import Group
from edgefl.config.section import Source, validated
from edgefl.errors import UserError, listed, nearest
from edgefl.plugins.launch.agent_messages import CODE, KEYS, PrepareEdges
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
        "edges": experiment.edges.model_dump(exclude_unset=True, exclude={"count"})
        | {"names": ids},
        "groups": groups,
    }
    return validated(Experiment, table, Source(str(inventory.path), near=nearest_key))


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
    own = [group for group in experiment.groups for _ in range(group.count)]  # of each edge
    if own and len(own) != len(edges):
        partly = next(
            (host.name for _, host in edges if host.links is None or host.devices is None), None
        )
        if partly is not None:
            raise UserError(
                f"{inventory.path}: its hosts have {len(edges)} edges, but the counts of the"
                f" config's groups add up to {len(own)}; give links and devices to every host"
                f" (not to {partly!r} yet), or change the counts, or groups=[]"
            )
        own = []
    if not any(host.links or host.devices for _, host in edges):
        return [group.model_dump() for group in experiment.groups]
    bases: Sequence[Group | None] = own or [None] * len(edges)
    tables: list[dict[str, Any]] = []
    settings = [_settings(host, base) for (_, host), base in zip(edges, bases)]
    for (name, links, devices), run in groupby(settings):
        free = _free(name, [group["name"] for group in tables])
        tables.append({"name": free, "count": len(list(run)), "links": links, "devices": devices})
    return tables


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


# ---------------------------------------------------------------------- files and orders
SAME_MACHINE = ("local", "netns")
NICE = 10  # on the coordinator's machine: edges must not delay it
DEFAULT_PORT = 7700  # of a coordinator on another host
SECRET, PLAIN = 0o600, 0o644


@dataclass(frozen=True, slots=True)
class FileToSend:
    """A file of this machine, and its place below the run's folder on a host."""

    source: Path
    target: str
    mode: int = PLAIN


def code_files(sources: Mapping[str, Path]) -> tuple[FileToSend, ...]:
    """The files of the user's code, or of traces, in the folder of code on a host.

    ``sources``: by the name in the config, such as "my_algo.py:MyAlgo".
    """
    files = {}
    for name, source in sources.items():
        place = name.rpartition(":")[0] or name
        if place.startswith(("/", "~")) or ".." in PurePosixPath(place).parts:
            raise UserError(
                f"{name!r}: expected a file below the config's folder, because edges on other hosts"
                " get it under the same path"
            )
        files[place] = FileToSend(source, f"{CODE}/{place}")
    return tuple(files.values())


def refuse_code(inventory: Inventory, names: Sequence[str]) -> None:
    """Raise UserError if a host must not run the user's code that the config names."""
    places = (inventory.coordinator.host, *inventory.hosts)
    closed = [host.name for host in places if not host.allow_code]
    if names and closed:
        code = ", ".join(map(repr, dict.fromkeys(names)))
        raise UserError(
            f"{inventory.path}: the config names {code}, which is your own code: set allow_code ="
            f" true for {listed(closed)}, if their edges may run it"
        )


def coordinator_files(keys: Path) -> tuple[FileToSend, ...]:
    """The keys of a coordinator on another host."""
    names = ("coordinator.key", "coordinator.key_secret", "allowed.json")
    return tuple(FileToSend(keys / name, f"{KEYS}/{name}", SECRET) for name in names)


def key_files(keys: Path, edges: Sequence[str]) -> tuple[FileToSend, ...]:
    """The secret keys of these edges, and the coordinator's public key."""
    secret = [f"edges/{edge}.key_secret" for edge in edges]
    return (
        FileToSend(keys / "coordinator.key", f"{KEYS}/coordinator.key", SECRET),
        *(FileToSend(keys / name, f"{KEYS}/{name}", SECRET) for name in secret),
    )


def preparation(
    host: Host, experiment: Experiment, shards: str | None, restarts: int
) -> PrepareEdges:
    """The order that prepares the edges of a host. ``shards``: where their shares of the data are
    on the host; None: it has the data. The times in which edges are away come with the run.
    """
    edges = experiment.edges.model_copy(update={"availability": None})
    first = experiment.model_copy(update={"edges": edges}).by_seed()[0]
    return PrepareEdges(
        edges=host.edges,
        config=to_json(first, first.strategies[0]),
        keys=f"../{KEYS}",
        data=host.data if shards is None else None,
        shards=shards,
        allow=tuple(dict.fromkeys(own_names(experiment))),
        restarts=restarts,
        nice=NICE if host.via in SAME_MACHINE else 0,
        per_process=experiment.edges.per_process,
    )


def listen_port(inventory: Inventory, experiment: Experiment) -> int:
    """The port on which the coordinator listens; 0: any free one."""
    place = inventory.coordinator
    elsewhere = DEFAULT_PORT if place.host.via != "local" else 0
    return place.listen_port or experiment.network.port or elsewhere


def run_name(experiment: str, token: str) -> str:
    """The name of the run's folder on hosts. ``token`` makes it unique."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', experiment)[:40]}-{token}"
