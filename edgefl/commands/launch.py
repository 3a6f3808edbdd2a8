"""``edgefl launch``: one experiment on the hosts of an inventory."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial as partial_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.commands import show
from edgefl.commands import wall as on_wall
from edgefl.commands.conclude import conclude
from edgefl.commands.configs import ConfigOrNone
from edgefl.commands.inventories import AcceptKeys, InventoryPath
from edgefl.commands.launch_task import Launch
from edgefl.commands.live_option import Live, MetricsPort, watched
from edgefl.commands.require import Require, requirements
from edgefl.commands.resume import resumed
from edgefl.commands.resume_option import Overwrite, Resume, refuse_both
from edgefl.commands.run import Out, Overrides, finish
from edgefl.commands.run_task import RESULTS, RunTask
from edgefl.errors import UserError, printable
from edgefl.hosts.choices import LAUNCH, WALL
from edgefl.hosts.network_addresses import any_host, tcp
from edgefl.record.files import EXPERIMENT
from edgefl.record.tables import write_whole

if TYPE_CHECKING:
    from edgefl.launch.hosts_thread import HostLogs, HostsThread
    from edgefl.launch.inventory import Inventory

KEYS_SUFFIX = ".keys"  # of the folder next to the inventory

Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="DIR",
        help="CURVE keys of the run; missing ones are made. Default: INVENTORY.keys next to the"
        " inventory.",
    ),
]
Sync = Annotated[
    bool,
    typer.Option(
        "--sync/--no-sync", help="Send hosts that lack the data the shares of their edges."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print what would be copied and started, and contact no host."),
]
Restarts = Annotated[
    int, typer.Option("--restarts", min=0, help="How often an edge that dies is started again.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Start without the hosts that cannot take part.")
]


def launch(
    inventory: InventoryPath,
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    out: Out = None,
    resume: Resume = None,
    overwrite: Overwrite = False,
    keys: Keys = None,
    sync: Sync = True,
    dry_run: DryRun = False,
    restarts: Restarts = 3,
    partial: Partial = False,
    accept_new_host_keys: AcceptKeys = False,
    live_port: Live = None,
    metrics_port: MetricsPort = None,
    require: Require = None,
) -> None:
    """Run an experiment on an inventory's hosts: keys, data and code out, logs and results back."""
    from edgefl.commands.launch_elsewhere import refuse_faults
    from edgefl.launch.inventory import load_inventory
    from edgefl.launch.launch_plan import refuse_code
    from edgefl.loading.names import own_names

    demands = requirements(require or ())
    refuse_both(resume, overwrite)
    hosts = load_inventory(inventory)
    given = _given(hosts, config, overrides or (), out, resume)
    refuse_code(hosts, own_names(given.experiment))
    if hosts.coordinator.host.via != "local":
        refuse_faults(given.experiment)
    given.tell()
    task = Launch(
        hosts,
        given.experiment,
        given.config,
        given.folder,
        keys or _keys_of(given) or inventory.with_suffix(KEYS_SUFFIX),
        sync,
        restarts,
        partial,
        accept_new_host_keys,
        given.found,
        overwrite,
    )
    if dry_run:
        from edgefl.commands.launch_preview import preview

        preview(task, overrides or ())
        return
    with watched(task.folder, task.experiment, live_port, metrics_port):
        to_the_end = _launched(task)
    finish(conclude(task.experiment, task.folder), demands, True, to_the_end)


def _given(
    inventory: Inventory,
    config: Path | None,
    overrides: Sequence[str],
    out: Path | None,
    resume: Path | None,
) -> RunTask:
    """Read the experiment: a new one with the edges of ``inventory``, or what is resumed."""
    from edgefl.launch.placement import check_placed, load_placed, place

    if resume is not None:
        found = resumed(
            resume, LAUNCH, (config, overrides), out=out, placed=partial_of(place, inventory)
        )
        if inventory.coordinator.host.via != "local":
            raise UserError(
                f"{inventory.path}: the coordinator is on {inventory.coordinator.host.name}, and"
                f" the runs in {found.folder} were begun on this machine: expected no [coordinator]"
            )
        check_placed(inventory, found.asked)
        return RunTask.resumed(found)
    if config is None:
        raise UserError("CONFIG: missing: an experiment file (edgefl configs lists some)")
    experiment = load_placed(inventory, config, overrides)
    return RunTask(experiment, config, (out or RESULTS) / experiment.name, WALL)


def _keys_of(given: RunTask) -> Path | None:
    return None if given.found is None else given.found.keys()


def _launched(task: Launch) -> bool:
    """Run the experiment; False after Ctrl-C."""
    from edgefl.hosts.setup.resumption import RunFolder
    from edgefl.hosts.wall.keys import missing
    from edgefl.launch.hosts_thread import HostLogs, HostsThread
    from edgefl.launch.launch_plan import run_name

    experiment = task.experiment
    missing(task.keys, experiment.edges.ids())  # what is wrong with the keys is told first
    RunFolder(task.folder).refuse_if_in_use()
    began_s = time.monotonic()
    logs = HostLogs(lambda: time.monotonic() - began_s)
    run = run_name(experiment.name, secrets.token_hex(4))
    former = "" if task.found is None else task.found.origin.launched
    hosts = HostsThread(task.inventory, run, logs.add, former)
    at_once = True
    try:
        addresses = _prepare(task, hosts)
        to_the_end = _run(task, hosts, addresses, logs, run)
        at_once = False
        return to_the_end
    except UserError:
        at_once = False
        raise
    finally:
        _end(hosts, at_once)
        logs.close()


def _end(hosts: HostsThread, at_once: bool) -> None:
    """End everything on the hosts, in order; at once after one more Ctrl-C."""

    def tell() -> None:
        for news in hosts.news():
            show.line(str(news))

    try:
        hosts.end(at_once, tell)
    except KeyboardInterrupt:
        hosts.end(at_once=True)
        raise
    finally:
        hosts.close()
        tell()


# ---------------------------------------------------------------------- before the run
def _prepare(task: Launch, hosts: HostsThread) -> dict[str, str]:
    """Bring all hosts to the point where edges can start; return the coordinator's address for
    each. Exit with status 2 if a host cannot take part.
    """
    from edgefl.hosts.wall.keys import complete
    from edgefl.launch.connections.opening import asker
    from edgefl.launch.host_data import DataSync
    from edgefl.launch.launch_plan import code_files, coordinator_files, key_files, preparation

    show.line(f"{task.inventory.path}: connecting to {len(hosts.hosts)} hosts")
    hosts.connect(asker(task.accept))
    _check(task, hosts)
    made = complete(task.keys, task.experiment.edges.ids())
    if made:
        (task.keys / ".gitignore").write_text("*\n", encoding="ascii")
        show.line(f"{task.keys}: made keys for {len(made)} edges")
    addresses = hosts.addresses()
    code = code_files(task.code())
    traces = code_files(task.traces())
    hosts.begin((*coordinator_files(task.keys), *code, *traces))
    _check(task, hosts)
    hosts.send({host.name: (*key_files(task.keys, host.edges), *code) for host in hosts.hosts})
    _check(task, hosts)
    shards: Mapping[str, str | None] = {}
    if task.sync:
        shards = hosts.sync(DataSync(task.experiment, task.base), show.line)
        _check(task, hosts)
    hosts.prepare(
        {
            host.name: preparation(host, task.experiment, shards.get(host.name), task.restarts)
            for host in hosts.hosts
        }
    )
    _check(task, hosts)
    show.line(f"{len(hosts.hosts) - len(hosts.lost)} hosts are ready")
    return addresses


def _check(task: Launch, hosts: HostsThread) -> None:
    """Report hosts that cannot take part. Exit with status 2, unless --partial leaves others."""
    hosts.news()  # so far these hosts alone, which are told here
    new = {host: reason for host, reason in hosts.lost.items() if host not in hosts.told}
    for host, reason in new.items():
        print(f"edgefl: {printable(f'{host}: {reason}')}", file=sys.stderr, flush=True)
    hosts.told |= new.keys()
    if hosts.all_gone:
        raise UserError(f"{task.inventory.path}: no host can take part; nothing was started")
    if new and not task.partial:
        raise UserError(
            f"{task.inventory.path}: {len(new)} of {len(hosts.hosts)} hosts cannot take part, so"
            " nothing was started (--partial: start without them)"
        )


# ---------------------------------------------------------------------- the run
class _HostEdges:
    """The edges on the hosts, for the launcher of the coordinator."""

    def __init__(
        self, hosts: HostsThread, addresses: Mapping[str, str], logs: HostLogs, task: Launch
    ) -> None:
        self.hosts, self.addresses, self.logs, self.folder = hosts, addresses, logs, task.folder
        self.resume = task.found is not None
        self._started = False

    @property
    def all_gone(self) -> bool:
        return self.hosts.all_gone

    def listening(self, port: int) -> None:
        """Start the edges when the first coordinator listens; the others use the same port."""
        if not self._started:
            self._started = True
            self.logs.open(self.folder, keep=self.resume)
            self.hosts.start_edges(
                {host: tcp(address, port) for host, address in self.addresses.items()}
            )

    def inject(self, fault: Any) -> None:
        self.hosts.inject(fault)


class _HostsScreen(on_wall.Screen):
    """The live display, with the hosts' news."""

    def __init__(self, hosts: HostsThread, logs: HostLogs) -> None:
        super().__init__(hosts={edge: host.name for host in hosts.hosts for edge in host.edges})
        self._of_hosts, self._logs = hosts, logs

    def watch(self, index: int, directory: Path, port: int) -> None:
        for news in self._of_hosts.news():
            self.say(str(news))
        self._logs.flush()
        super().watch(index, directory, port)


def _run(
    task: Launch, hosts: HostsThread, addresses: Mapping[str, str], logs: HostLogs, run: str
) -> bool:
    """Run the coordinator; False after Ctrl-C."""
    from edgefl.launch.connections.addresses import edge_addresses, listen_host
    from edgefl.launch.launch_plan import listen_port

    network, remote = task.experiment.network, hosts.coordinator
    if remote is None:
        where = listen_host(network.host, addresses.values())
        addresses = edge_addresses(where, addresses)
    else:
        where = any_host(addresses.values())
    port = listen_port(task.inventory, task.experiment)
    section = network.model_copy(update={"host": where, "port": port})
    experiment = task.experiment.model_copy(update={"network": section})
    if remote is not None:
        from edgefl.commands.launch_elsewhere import run_elsewhere

        text = task.text(run, remote.results)
        return run_elsewhere(task, experiment, text, hosts, remote, addresses, logs)
    resume = task.found is not None
    if resume:  # the next resumption ends the edges of this one
        write_whole(task.folder / EXPERIMENT, task.text(run).encode())
    return on_wall.run_seeds(
        experiment,
        task.config,
        task.folder,
        _HostsScreen(hosts, logs),
        task.text(run),
        resume,
        task.overwrite,
        speed_auto=task.found is not None and task.found.speed_auto,
        fleet=False,
        keys=task.keys,
        remote=_HostEdges(hosts, addresses, logs, task),
    )
