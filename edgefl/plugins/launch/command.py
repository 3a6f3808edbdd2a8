"""``edgefl launch``: one experiment on the hosts of an inventory.

The coordinator runs here, or on another host if the inventory has a table [coordinator].
"""

from __future__ import annotations

import math
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as partial_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from edgefl.clocks.choices import LAUNCH, WALL
from edgefl.clocks.network_addresses import any_host, tcp
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.setup.resumption import Origin, RunFolder
from edgefl.clocks.wall.keys import complete, missing
from edgefl.commands import show
from edgefl.commands.options import AcceptKeys, ConfigOrNone, InventoryPath, Overrides
from edgefl.commands.run import (
    NO_CONFIG,
    Live,
    MetricsPort,
    Out,
    Overwrite,
    Require,
    Resume,
    finish,
    refuse_both,
    requirements,
    watched,
)
from edgefl.commands.running import RESULTS, RunTask, Screen, conclude, resumed, run_seeds
from edgefl.config.experiment import Experiment, availability_file, parts, traces
from edgefl.config.faults import PROCESS_KINDS
from edgefl.config.file import base_of, dump, own_names
from edgefl.errors import UserError, printable
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from edgefl.plugins.launch.agent_messages import StopEdges, run_folder
from edgefl.plugins.launch.connections import HostError, edge_addresses, listen_host
from edgefl.plugins.launch.host_data import DataSync, own_data
from edgefl.plugins.launch.host_session import HostLogs, HostsThread, RemoteCoordinator
from edgefl.plugins.launch.inventory import Host, Inventory, load_inventory
from edgefl.plugins.launch.launch_plan import (
    FileToSend,
    check_placed,
    code_files,
    coordinator_files,
    key_files,
    listen_port,
    load_placed,
    place,
    preparation,
    refuse_code,
    run_name,
)
from edgefl.plugins.launch.opening import asker
from edgefl.record.files import EXPERIMENT
from edgefl.record.tables import write_whole
from edgefl.results.progress import clock

if TYPE_CHECKING:
    pass

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


@dataclass(frozen=True, slots=True)
class Launch:
    """What is launched: the checked input of the command."""

    run: RunTask
    inventory: Inventory
    keys: Path
    sync: bool
    restarts: int
    partial: bool
    accept: bool

    def placed(self, experiment: Experiment, launched: str, results: str = "") -> RunTask:
        """Return the run with the coordinator's address, and its experiment.toml.

        ``launched``: the name of the launch's folders on its hosts. ``results``: of a coordinator
        on another host, the folder there.
        """
        place = self.inventory.coordinator.host.name
        origin = Origin(
            LAUNCH,
            WALL,
            self.run.base,
            options=("--partial",) if self.partial else (),
            inventory=self.inventory.path,
            keys=self.keys,
            place=f"{place} ({results})" if results else "",
            launched=launched,
        )
        former = self.run.resumption
        text = origin.text(self.run.experiment if former is None else former.asked)
        return replace(self.run, experiment=experiment, text=text)

    def code(self) -> dict[str, Path]:
        """The files of the user's code, by name."""
        folders = (self.run.base, Path.cwd())
        return {
            name: next(path for path in paths if path.is_file())
            for name in own_names(self.run.experiment)
            if (place := name.rpartition(":")[0]).endswith(".py")
            and (paths := [folder / Path(place).expanduser() for folder in folders])
        }

    def traces(self) -> dict[str, Path]:
        """The files with traces of links, which only the coordinator reads."""
        base = self.run.base
        return {name: base / Path(name).expanduser() for name in traces(self.run.experiment)}


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
    demands = requirements(require or ())
    refuse_both(resume, overwrite)
    hosts = load_inventory(inventory)
    run = _run_task(hosts, config, overrides or (), out, resume, overwrite)
    refuse_code(hosts, own_names(run.experiment))
    if hosts.coordinator.host.via != "local":
        refuse_faults(run.experiment)
    run.tell()
    if keys is None and run.resumption is not None:
        keys = run.resumption.keys()
    keys = keys or inventory.with_suffix(KEYS_SUFFIX)
    task = Launch(run, hosts, keys, sync, restarts, partial, accept_new_host_keys)
    if dry_run:
        preview(task, [str(config), *(overrides or ())])
        return
    with watched(run.folder, run.experiment, live_port, metrics_port):
        to_the_end = _launched(task)
    finish(conclude(run.experiment, run.folder), demands, True, to_the_end)


def _run_task(
    inventory: Inventory,
    config: Path | None,
    overrides: Sequence[str],
    out: Path | None,
    resume: Path | None,
    overwrite: bool,
) -> RunTask:
    """Read the experiment: a new one with the edges of ``inventory``, or what is resumed."""
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
        raise UserError(NO_CONFIG)
    experiment = load_placed(inventory, config, overrides)
    folder = (out or RESULTS) / experiment.name
    return RunTask(experiment, base_of(config), folder, WALL, overwrite=overwrite)


def _launched(task: Launch) -> bool:
    """Run the experiment; False after Ctrl-C."""
    experiment, resumption = task.run.experiment, task.run.resumption
    missing(task.keys, experiment.edges.ids())  # what is wrong with the keys is told first
    RunFolder(task.run.folder).refuse_if_in_use()
    began_s = time.monotonic()
    logs = HostLogs(lambda: time.monotonic() - began_s)
    run = run_name(experiment.name, secrets.token_hex(4))
    former = "" if resumption is None else resumption.origin.launched
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


def _end(hosts: HostsThread, at_once: bool) -> None:
    """Stop everything on the hosts cleanly; at once after one more Ctrl-C."""

    def tell() -> None:
        for line in hosts.news():
            show.line(line)

    try:
        hosts.end(at_once, tell)
    except KeyboardInterrupt:
        hosts.end(at_once=True)
        raise
    finally:
        hosts.close()
        tell()


def _prepare(task: Launch, hosts: HostsThread) -> dict[str, str]:
    """Bring all hosts to the point where edges can start; return the coordinator's address for
    each. Exit with status 2 if a host cannot take part.
    """
    experiment, known = task.run.experiment, set[str]()
    show.line(f"{task.inventory.path}: connecting to {len(hosts.hosts)} hosts")
    hosts.connect(asker(task.accept))
    _check(task, hosts, known)
    new_keys = complete(task.keys, experiment.edges.ids())
    if new_keys:
        (task.keys / ".gitignore").write_text("*\n", encoding="ascii")
        show.line(f"{task.keys}: made keys for {len(new_keys)} edges")
    code, data = code_files(task.code()), None
    if task.sync:
        data = DataSync(experiment, task.run.base)
        data.load()
    hosts.begin_coordinator((*coordinator_files(task.keys), *code, *code_files(task.traces())))
    addresses, texts = hosts.prepare(
        {host.name: (*key_files(task.keys, host.edges), *code) for host in hosts.hosts},
        data,
        lambda host, shards: preparation(host, experiment, shards, task.restarts),
    )
    for host in hosts.hosts:
        if host.name in texts:
            show.line(f"{host.name}: {texts[host.name]}")
    _check(task, hosts, known)
    show.line(f"{len(hosts.hosts) - len(hosts.lost)} hosts are ready")
    return addresses


def _check(task: Launch, hosts: HostsThread, known: set[str]) -> None:
    """Report hosts that cannot take part, unless they are ``known``.

    Exit with status 2, unless --partial leaves others.
    """
    hosts.news()  # so far these hosts alone, which are reported here
    new = {host: reason for host, reason in hosts.lost.items() if host not in known}
    for host, reason in new.items():
        print(f"edgefl: {printable(f'{host}: {reason}')}", file=sys.stderr, flush=True)
    known |= new.keys()
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
        self, hosts: HostsThread, addresses: Mapping[str, str], logs: HostLogs, run: RunTask
    ) -> None:
        self.hosts, self.addresses, self.logs, self.run = hosts, addresses, logs, run
        self._started = False
        # edges that injected faults have taken away, and what brings each back
        self._away: dict[str, str] = {}

    @property
    def all_gone(self) -> bool:
        return self.hosts.all_gone

    def listening(self, port: int) -> None:
        """Start the edges when the first coordinator listens; the others use the same port.

        A fault of the config may outlast its run; the next one begins with all edges.
        """
        if not self._started:
            self._started = True
            self.logs.open(self.run.folder, keep=self.run.resume)
            self.hosts.start_edges(
                {host: tcp(address, port) for host, address in self.addresses.items()}
            )
        for edge, fault in self._away.items():
            self.hosts.inject(InjectFault(fault, edge))
        self._away.clear()

    def inject(self, fault: InjectFault) -> None:
        self.hosts.inject(fault)
        match fault.fault:
            case "kill":
                self._away[fault.edge] = "restart"
            case "freeze":
                self._away.setdefault(fault.edge, "thaw")
            case "restart":
                self._away.pop(fault.edge, None)
            case "thaw" if self._away.get(fault.edge) == "thaw":
                del self._away[fault.edge]


class _HostsScreen(Screen):
    """The live display, with the hosts' news."""

    def __init__(self, hosts: HostsThread) -> None:
        super().__init__(hosts={edge: host.name for host in hosts.hosts for edge in host.edges})
        self._hosts = hosts

    def watch(self, index: int, directory: Path, port: int) -> None:
        for line in self._hosts.news():
            self.say(line)
        super().watch(index, directory, port)


def _run(
    task: Launch, hosts: HostsThread, addresses: Mapping[str, str], logs: HostLogs, run: str
) -> bool:
    """Run the coordinator; False after Ctrl-C."""
    network, remote = task.run.experiment.network, hosts.coordinator
    if remote is None:
        where = listen_host(network.host, addresses.values())
        addresses = edge_addresses(where, addresses)
    else:
        where = any_host(addresses.values())
    port = listen_port(task.inventory, task.run.experiment)
    section = network.model_copy(update={"host": where, "port": port})
    experiment = task.run.experiment.model_copy(update={"network": section})
    if remote is not None:
        placed = task.placed(experiment, run, remote.results)
        return _run_elsewhere(placed, hosts, remote, addresses, logs)
    placed = task.placed(experiment, run)
    if placed.resume:  # the next resumption ends the edges of this one
        write_whole(placed.folder / EXPERIMENT, placed.text.encode())
    return run_seeds(
        placed,
        _HostsScreen(hosts),
        fleet=False,
        keys=task.keys,
        remote=_HostEdges(hosts, addresses, logs, placed),
    )


# ---------------------------------------------------------------------- a coordinator elsewhere
POLL_S = 0.25
GIVE_UP_S = 10.0  # from the request to end, if the coordinator's host is not reached


def _run_elsewhere(
    run: RunTask,
    hosts: HostsThread,
    remote: RemoteCoordinator,
    addresses: Mapping[str, str],
    logs: HostLogs,
) -> bool:
    """Start the coordinator and the edges, show what it prints, and fetch the results.

    False after Ctrl-C. Exit with the coordinator's status if it failed.
    """
    experiment, folder = run.experiment, run.folder
    claim = RunFolder(folder, run.text, overwrite=run.overwrite, base=run.base)
    claim.claim()
    try:
        for line in claim.begin():
            show.line(line)
        logs.open(folder)
        try:
            hosts.call(remote.start(dump(experiment, {})))
            port = experiment.network.port
            hosts.start_edges({host: tcp(address, port) for host, address in addresses.items()})
            status = _followed(hosts, remote)
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
    if status == FAILED:
        conclude(experiment, folder)  # one of the runs has failed, or all
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


def _followed(hosts: HostsThread, remote: RemoteCoordinator) -> int | None:
    """Show the run until it ends; return the coordinator's status, None if its host is lost."""
    stopping = asked = False
    give_up_s = math.inf
    while True:
        try:
            for line in (*remote.printed(), *hosts.news()):
                show.line(line)
            if remote.status is not None or remote.session.failed:
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


# ---------------------------------------------------------------------- --dry-run
MB = 1e6


def preview(task: Launch, words: Sequence[str]) -> None:
    """Print what the launch would do: hosts, files, commands, duration and bytes."""
    experiment, place = task.run.experiment, task.inventory.coordinator
    code = code_files(task.code())
    port = listen_port(task.inventory, experiment)
    where = "here" if place.host.via == "local" else f"on {place.host.name} ({place.host.via})"
    show.line(
        f"coordinator: {where}, port {port or 'any free one'}, at"
        f" {place.address or 'the address that is found for each host'}"
    )
    show.line(_keys_line(task))
    if place.host.via != "local":
        folder = run_folder(place.host.folder, run_name(experiment.name, "TOKEN-coordinator"))
        _print_copies((*coordinator_files(task.keys), *code, *code_files(task.traces())), folder)
    data = DataSync(experiment, task.run.base) if task.sync else None
    if data is not None:
        data.load()
    for host in task.inventory.hosts:
        user = f", {host.user}@{host.name}" if host.user else f", {host.name}"
        show.line(f"{host.name} ({host.via}{user if host.via == 'ssh' else ''}):")
        folder = run_folder(host.folder, run_name(experiment.name, "TOKEN"))
        _print_copies((*key_files(task.keys, host.edges), *code), folder)
        show.line(f"  data: {_data_text(experiment, host, data)}")
        show.line(f"  run {host.interpreter} -m edgefl.plugins.launch.agent {folder}")
        show.line(f"  edges: {', '.join(host.edges)}")
    _print_duration(experiment, task.run.base)
    whole = ["edgefl", "launch", str(task.inventory.path), *words]
    resumption = task.run.resumption
    show.hint(shlex.join(whole) if resumption is None else resumption.command)


def _keys_line(task: Launch) -> str:

    new = missing(task.keys, task.run.experiment.edges.ids())
    if not task.keys.is_dir():
        return f"keys: {len(new)} edges would get new ones, in {task.keys}"
    return f"keys: those in {task.keys}" + (f"; new for {', '.join(new)}" if new else "")


def _print_copies(files: Sequence[FileToSend], folder: str) -> None:
    for file in files:
        show.line(f"  copy {file.source} -> {folder}/{file.target}")


def _data_text(experiment: Experiment, host: Host, data: DataSync | None) -> str:

    reason = own_data(experiment)
    if reason is not None or data is None:
        return f"none is sent ({reason or '--no-sync'})"
    size = f"the shares of its edges, {data.share_bytes(host) / MB:.3g} MB"
    if host.data is None:
        return f"{size}, unless they are there already"
    return f"its own in {host.data}; if that differs, {size}"


def _print_duration(experiment: Experiment, base: Path) -> None:
    """Print how long the run takes, and how many bytes its models are."""
    from edgefl.clocks.setup.learning import learning
    from edgefl.commands.check import CheckedExperiment, data_lines, estimate

    one, runs = experiment.by_seed()[0], len(experiment.by_seed()) * len(experiment.strategies)
    learned = learning(one, base)
    for line in data_lines(learned):
        show.line(line)
    if one.stop.emulated_s is not None:
        wall_s = one.stop.emulated_s / one.chosen_speed
        show.line(
            f"duration: at most {clock(wall_s)} for each of {runs} runs, {clock(runs * wall_s)} in"
            " all, plus the start and the last evaluations"
        )
    if any("native" in (part.devices.kind, part.links.kind) for part in parts(one)):
        show.line("no estimate: the times of native devices and links are not known in advance")
        return
    estimates = tuple(estimate(learned, index) for index in range(len(one.strategies)))
    found = CheckedExperiment(experiment, (), (), experiment.chosen_speed, estimates)
    Console().print(found.table())
