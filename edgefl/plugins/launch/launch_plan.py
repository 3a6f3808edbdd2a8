"""What a launch copies to each host and starts there; does no input or output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgefl.clocks.setup.network import shape_of
from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.errors import UserError, listed
from edgefl.loading.file import to_json
from edgefl.loading.names import own_names
from edgefl.plugins.launch.agent_messages import CODE, KEYS, PrepareEdges
from edgefl.plugins.launch.inventory import Host, Inventory

BITS = 8
MBIT = 1e6


@dataclass(frozen=True, slots=True)
class UpperBounds:
    """Of one strategy and seed. None: the config sets no limit.

    ``wall_s``: of the run itself, without the start, the last evaluations, and the end.
    """

    wall_s: float | None
    up_bytes: float | None
    down_bytes: float | None


def upper_bounds(experiment: Experiment, model_bytes: int) -> UpperBounds:
    """The limits that ``[stop]``, ``speed`` and the links set.

    A task moves one model down and one up. Emulated links carry at most their rate, for the whole
    run; a medium that edges share carries at most its own.
    """
    stop, edges = experiment.stop, len(experiment.edges.ids())
    wall_s = None if stop.emulated_s is None else stop.emulated_s / experiment.chosen_speed
    by_updates = None
    if stop.updates is not None:
        # discarded updates do not count, so this holds unless some are discarded
        by_updates = float((stop.updates + edges) * model_bytes)
    return UpperBounds(
        wall_s,
        _least(by_updates, _carried(experiment, "up")),
        _least(by_updates, _carried(experiment, "down")),
    )


def _carried(experiment: Experiment, way: str) -> float | None:
    """Bytes that the links carry in one direction until ``stop.emulated_s``."""
    emulated_s = experiment.stop.emulated_s
    shaped = parts(experiment)
    if emulated_s is None or any(part.links.kind == "native" for part in shaped):
        return None
    medium = experiment.medium
    shared = medium.rate_mbit_s if medium.kind == "tdma" else getattr(medium, f"{way}_mbit_s")
    if way in medium.shared:
        return None if shared is None else shared * MBIT / BITS * emulated_s
    if any(getattr(part.links, f"trace_{way}") is not None for part in shaped):
        return None
    rate_bit_s = sum(shape_of(part.links).rates_bit_s[way] * len(part.ids) for part in shaped)
    return rate_bit_s / BITS * emulated_s


def _least(*found: float | None) -> float | None:
    return min((each for each in found if each is not None), default=None)


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


def code_files(found: Mapping[str, Path]) -> tuple[FileToSend, ...]:
    """The files of the user's code, or of traces, in the folder of code on a host.

    ``found``: by the name in the config, such as "my_algo.py:MyAlgo".
    """
    files = {}
    for name, source in found.items():
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
    )


def listen_port(inventory: Inventory, experiment: Experiment) -> int:
    """The port on which the coordinator listens; 0: any free one."""
    place = inventory.coordinator
    elsewhere = DEFAULT_PORT if place.host.via != "local" else 0
    return place.listen_port or experiment.network.port or elsewhere


def run_name(experiment: str, token: str) -> str:
    """The name of the run's folder on hosts. ``token`` makes it unique."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', experiment)[:40]}-{token}"
