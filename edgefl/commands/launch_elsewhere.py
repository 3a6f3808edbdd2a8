"""The run of ``edgefl launch`` if the coordinator is on another host."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from edgefl.commands import show
from edgefl.config.faults import PROCESS_KINDS
from edgefl.config.groups import availability_file
from edgefl.errors import UserError
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from edgefl.hosts.network_addresses import tcp
from edgefl.hosts.setup.resumption import RunFolder
from edgefl.launch.agent_messages import StopEdges
from edgefl.launch.connections.connection import HostError
from edgefl.loading.file import dump

if TYPE_CHECKING:
    from edgefl.commands.launch_task import Launch
    from edgefl.config.experiment import Experiment
    from edgefl.launch.hosts_thread import HostLogs, HostsThread
    from edgefl.launch.remote_coordinator import RemoteCoordinator

POLL_S = 0.25
GIVE_UP_S = 10.0  # from the request to end, if the coordinator's host is not reached


def run_elsewhere(
    task: Launch,
    experiment: Experiment,
    text: str,
    hosts: HostsThread,
    remote: RemoteCoordinator,
    addresses: Mapping[str, str],
    logs: HostLogs,
) -> bool:
    """Start the coordinator and the edges, show what it prints, and fetch the results.

    ``experiment``: that of the task, with the coordinator's address. ``text``: experiment.toml of
    this launch.
    False after Ctrl-C. Exit with the coordinator's status if it failed.
    """
    folder = task.folder
    claim = RunFolder(folder, text, overwrite=task.overwrite, base=task.base)
    claim.claim()
    try:
        for line in claim.begin():
            show.line(line)
        logs.open(folder)
        try:
            hosts.call(remote.start(dump(experiment, {})))
            port = experiment.network.port
            hosts.start_edges({host: tcp(address, port) for host, address in addresses.items()})
            status = _followed(hosts, remote, logs)
            if status not in (BAD_INPUT, None):
                hosts.call(remote.fetch(experiment.name, folder))
                claim.write()  # it has fetched that of the coordinator there
        except HostError as error:
            raise UserError(f"coordinator: {error}") from None
    finally:
        claim.undo()
        claim.release()
    if status in (OVER, INTERRUPTED):
        return status == OVER
    raise typer.Exit(FAILED if status is None else status)


def refuse_faults(experiment: Experiment) -> None:
    """Raise UserError for faults that only a coordinator in this process can inject."""
    if any(entry.kind in PROCESS_KINDS for entry in experiment.faults):
        raise UserError(
            f"faults: {', '.join(PROCESS_KINDS)} need a coordinator on this machine: no"
            " [coordinator] in the inventory"
        )
    if availability_file(experiment):
        raise UserError(
            "edges.availability.file: a coordinator elsewhere does not have that file: no"
            " [coordinator] in the inventory"
        )


def _followed(hosts: HostsThread, remote: RemoteCoordinator, logs: HostLogs) -> int | None:
    """Show the run until it ends; return the coordinator's status, None if its host is lost."""
    stopping = asked = False
    give_up_s = math.inf
    while True:
        try:
            for line in (*remote.printed(), *map(str, hosts.news())):
                show.line(line)
            logs.flush()
            if remote.status is not None or remote.failure:
                return remote.status
            if hosts.all_gone and not stopping:
                stopping = True
                show.line("no edge left: the run ends")
            # without a connection the request to end would be lost
            asked = asked and remote.session.connected
            if stopping and not asked and remote.session.connected:
                asked, give_up_s = True, math.inf
                hosts.call(remote.session.order(StopEdges()))
            if stopping and not asked:
                give_up_s = min(give_up_s, time.monotonic() + GIVE_UP_S)
                if time.monotonic() >= give_up_s:
                    show.line(
                        f"{remote.place.host.name}: not reached, so the coordinator there goes on;"
                        f" its results will be in {remote.results}"
                    )
                    return None
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            if stopping:
                raise
            stopping = True
            show.line("ending the run")
