"""The labs of this machine, from any process: programs on their hosts, and changes of their links.

What a lab has is in a file, which exists while it runs. A lock protects its number, so that what a
killed owner left is recognised and removed by the next call. The kernel releases a lock when the
process of its owner ends, also when it is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from emulator.errors import BadValue, valid_name
from emulator.lab import commands
from emulator.lab.commands import carry_out
from emulator.lab.relay import ask
from emulator.lab.system import (
    INTERFACE_FILES,
    NAMESPACE_FILES,
    System,
    end_processes,
    execute,
    probe,
    tools,
)
from emulator.lab.topology import DELAYS, KernelShape, Topology, changed
from emulator.lab.wiring import HOSTS_FILES, LABS, LabNames, Wiring, wiring

ENVIRONMENT = "EMULATOR_LAB"
"""The environment variable with the name of the lab that a command is for."""
CUT, DOWN, UP = "cut", "down", "up"


@dataclass(frozen=True, slots=True)
class LabState:
    """A running lab.

    ``shapes`` and ``conditions`` ("up", "cut" or "down") are by name of link; ``fair``: rates
    of bridges are shared fairly.
    """

    number: int
    name: str
    owner_pid: int
    topology: Topology
    shapes: dict[str, KernelShape]
    conditions: dict[str, str]
    fair: bool = True

    @property
    def names(self) -> LabNames:
        return LabNames(self.number)

    @property
    def wiring(self) -> Wiring:
        return wiring(self.topology, self.names, self.fair)

    def changed(self, link: str, shape: KernelShape, condition: str) -> LabState:
        """The state with another shape and condition of a link."""
        shapes = self.shapes | {link: shape}
        return replace(self, shapes=shapes, conditions=self.conditions | {link: condition})


def save(state: LabState) -> None:
    """Write the file, in one step."""
    target = state.names.state_file
    fresh = target.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    fresh.replace(target)


def load(number: int) -> LabState:
    """Read the file. BadValue if this lab does not run (any more)."""
    try:
        content = LabNames(number).state_file.read_bytes()
    except FileNotFoundError:
        raise BadValue(f"lab number {number} has ended") from None
    return msgspec.json.decode(content, type=LabState)


@contextmanager
def changing(number: int) -> Iterator[LabState]:
    """The state, while no other process changes the lab. The caller saves what it changed."""
    try:
        folder = os.open(LabNames(number).folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BadValue(f"lab number {number} has ended") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield load(number)
    finally:
        os.close(folder)


@contextmanager
def claimed() -> Iterator[int]:
    """Claim a number that no other process has; at the end, clear it.

    First clear what killed processes have left. BadValue if all numbers are in use.
    """
    sweep()
    for number in range(LABS):
        lock = _lock(LabNames(number).lock_file, create=True)
        if lock is not None:
            break
    else:
        raise BadValue(f"lab: {LABS} at once is the maximum on this host")
    try:
        yield number
    finally:
        _give_back(number, lock)


def examine() -> System:
    """Find what this system has; with root and the tools, this makes and removes a namespace."""
    if not tools().can_try:
        return tools()
    with claimed() as number:
        return probe(LabNames(number).namespace("probe"))


def sweep() -> None:
    """Clear what killed processes have left."""
    for number in range(LABS):
        lock = _lock(LabNames(number).lock_file)
        if lock is not None:
            _give_back(number, lock)


def _lock(file: Path, create: bool = False) -> int | None:
    """Lock the file and return its descriptor; None if it is missing or a live process has it."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and lock the last owner may have removed the file; then the lock protects
        # nothing.
        if os.stat(file).st_ino == os.fstat(lock).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _give_back(number: int, lock: int) -> None:
    try:
        _clear(LabNames(number))
        # Last, so that the next call tries again if something is left.
        LabNames(number).lock_file.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _clear(names: LabNames) -> None:
    """Remove everything of a lab, whatever is left of it; end the processes of its namespaces."""
    namespaces = names_with(names.namespace_prefix, NAMESPACE_FILES)
    for namespace in namespaces:
        end_processes(namespace, signal.SIGKILL)
    for interface in names_with(names.prefix, INTERFACE_FILES):
        # Its peer may go meanwhile with a namespace, and then it goes too.
        try:
            execute(["ip", "link", "del", "dev", interface])
        except BadValue:
            if (INTERFACE_FILES / interface).exists():
                raise
    for namespace in namespaces:
        execute(["ip", "netns", "del", namespace])
    for folder in names_with(names.namespace_prefix, HOSTS_FILES):
        shutil.rmtree(HOSTS_FILES / folder, ignore_errors=True)
    with suppress(OSError):  # others may use it
        HOSTS_FILES.rmdir()
    shutil.rmtree(names.folder, ignore_errors=True)


def names_with(prefix: str, folder: Path) -> list[str]:
    """What begins with ``prefix`` in a folder that may be missing."""
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.startswith(prefix))


@dataclass(frozen=True, slots=True)
class LabMachine:
    """A host of a running lab. ``namespace`` is None for this machine itself.

    ``outside_address``: that of this machine itself as the host reaches it; None if it does not.
    """

    name: str
    address: str
    namespace: str | None
    outside_address: str | None
    lab: str

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command line that runs ``command`` on this host."""
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        return [*inside, *command]

    def environment(self) -> dict[str, str]:
        """The environment of programs on this host: EMULATOR_LAB, EMULATOR_OWN_ADDRESS.

        EMULATOR_HOST_ADDRESS is the address of this machine itself, if the host reaches it.
        """
        outside = {"EMULATOR_HOST_ADDRESS": self.outside_address} if self.outside_address else {}
        return os.environ | {ENVIRONMENT: self.lab, "EMULATOR_OWN_ADDRESS": self.address} | outside

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a program on this host and wait for its end; options are those of subprocess.run."""
        options.setdefault("env", self.environment())
        return subprocess.run(self.argv(command), **options)

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program on this host; options are those of subprocess.Popen.

        Programs that still run at the end of the lab are ended, except those on this machine
        itself.
        """
        options.setdefault("env", self.environment())
        return subprocess.Popen(self.argv(command), **options)


@dataclass(frozen=True, slots=True)
class LabConnection:
    """A link of a running lab, or the shared capacity of a bridge. As text: what it does now."""

    name: str
    lab_number: int

    def __str__(self) -> str:
        state = load(self.lab_number)
        wire, shape = state.wiring.wire(self.name), state.shapes[self.name]
        by = {"relay": ", by the relay", "netem": ", by netem"}.get(shape.delay, "")
        ends = f"{wire.lower.node} to {wire.upper.node}"
        if wire.lower.node == wire.upper.node:
            ends = f"shared by {len(wire.sharers)} hosts"
        condition = state.conditions[self.name]
        now = "" if condition == UP else f" [{condition}]"
        return f"{self.name}: {ends}, up {shape.up}, down {shape.down}{by}{now}"

    def cut(self) -> ExitStack:
        """Let both ends lose all frames, as a cable that is cut somewhere; interfaces stay up.

        ``with link.cut():`` restores the link at the end of the block; without ``with`` it stays.
        """
        return self._become(CUT)

    def down(self) -> ExitStack:
        """Switch the interfaces of both ends off: programs get errors such as "unreachable".

        ``with link.down():`` restores the link at the end of the block; without ``with`` it stays.
        """
        return self._become(DOWN)

    def restore(self) -> None:
        """Undo ``cut`` and ``down``."""
        self._become(UP)

    def set(self, **values: str) -> None:
        """Change rate, up, down, latency, jitter or loss (text with a unit; "none" for a rate).

        Frames on their way keep their delay, and order is kept. Not so on a link by netem: frames
        with a new, shorter latency overtake, and those on their way are lost where latency and loss
        become 0 or begin, or a rate begins. Frames that wait for a rate are lost where it becomes
        "none". BadValue for what is wrong, and for a jitter on a link by netem.
        """
        with changing(self.lab_number) as state:
            wire, before = state.wiring.wire(self.name), state.shapes[self.name]
            delays = any(key in values for key in DELAYS)
            if delays and wire.link.delayed and before.delay == "none":
                raise BadValue(
                    f"link {self.name}: the lab was made without latency, jitter and loss; make it"
                    " again without --no-latency to change them"
                )
            link = changed(replace(wire.link, up=before.up, down=before.down), values)
            after = replace(before, up=link.up, down=link.down)
            if after.delay == "netem" and (after.up.jitter_ns or after.down.jitter_ns):
                raise BadValue(
                    f"link {self.name}: its latency is made by netem, which reorders frames under"
                    " jitter; give it a jitter in the topology, and the relay makes both"
                )
            if state.conditions[self.name] != CUT:
                carry_out(commands.change(wire, before, after))
            if after.delay == "relay" and delays:
                ways = {
                    key: {name: getattr(way, name) for name in ("latency_ns", "jitter_ns", "loss")}
                    for key, way in (("up", after.up), ("down", after.down))
                }
                ask(state.names.relay_socket, {"link": self.name} | ways)
            save(state.changed(self.name, after, state.conditions[self.name]))

    def _become(self, condition: str) -> ExitStack:
        with changing(self.lab_number) as state:
            plan, shape, before = state.wiring, state.shapes[self.name], state.conditions[self.name]
            wire = plan.wire(self.name)
            steps = commands.mend(wire, shape) if before == CUT else []
            if before == DOWN or condition == UP:
                steps += commands.bring_up(plan, wire)
            if condition == CUT:
                steps += commands.cut(wire)
            elif condition == DOWN:
                steps += commands.take_down(wire)
            if condition != before or condition == UP:
                carry_out(steps)
                save(state.changed(self.name, shape, condition))
        guard = ExitStack()
        guard.callback(self.restore)
        return guard


class AttachedLab:
    """A running lab by its number; ``attach`` finds it by its name. As text: all that it has."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        state = self.state
        lines = [f"lab {state.name} (process {state.owner_pid})"]
        for host, address in state.wiring.addresses.items():
            here = state.topology.host(host).here
            where = "this machine" if here else f"namespace {state.names.namespace(host)}"
            lines.append(f"  host {host}: {address}, {where}")
        links = [LabConnection(wire.link.name, self.number) for wire in state.wiring.wires]
        lines += [f"  link {link}" for link in links]
        return "\n".join([*lines, *(f"  {line}" for line in traffic_lines(self.traffic()))])

    @property
    def state(self) -> LabState:
        """Its state now. BadValue if it has ended."""
        return load(self.number)

    @property
    def name(self) -> str:
        return self.state.name

    def host(self, name: str) -> LabMachine:
        """The host ``name``. BadValue, with the nearest name, if there is none."""
        state = self.state
        namespace = None if state.topology.host(name).here else state.names.namespace(name)
        plan = state.wiring
        here = {host.name for host in state.topology.hosts if host.here}
        near = {name, *(route.target for route in plan.routes[name])} & here
        outside = plan.addresses[near.pop()] if near else None
        return LabMachine(name, plan.addresses[name], namespace, outside, state.name)

    def link(self, name: str) -> LabConnection:
        """The link ``name``; also the bridge of this name, or the only link of such a host."""
        return LabConnection(self.state.wiring.wire(name).link.name, self.number)

    def relay(self) -> dict[str, Any] | None:
        """Counts and lateness of the relayed links, in ms; None if no link needs the relay."""
        socket_file = self.state.names.relay_socket
        return ask(socket_file, {}) if socket_file.exists() else None

    def traffic(self) -> list[dict[str, Any]]:
        """The background flows, with the datagrams and bytes that were sent and have arrived."""
        state = self.state
        flows = []
        for number, flow in enumerate(state.topology.traffic):
            counts: dict[str, Any] = {"from": flow.sender, "to": flow.receiver}
            for end in ("sent", "arrived"):
                file = state.names.counts_file(number, end)
                if file.exists():
                    counts[end] = json.loads(file.read_text(encoding="utf-8"))
            flows.append(counts)
        return flows


def traffic_lines(flows: Sequence[dict[str, Any]]) -> list[str]:
    """One line about each background flow of ``AttachedLab.traffic``."""
    lines = []
    for flow in flows:
        sent, arrived = (flow.get(key, {}).get("bytes", 0) for key in ("sent", "arrived"))
        lines.append(
            f"traffic {flow['from']} to {flow['to']}: {sent} bytes sent, {arrived} arrived"
        )
    return lines


def running_labs() -> list[AttachedLab]:
    """The labs that run, in order of their numbers. First remove what killed ones have left.

    Without root, nothing can be removed.
    """
    if os.geteuid() == 0:
        sweep()
    return [AttachedLab(number) for number in range(LABS) if LabNames(number).state_file.exists()]


def attach(name: str | None = None) -> AttachedLab:
    """The running lab ``name``; without a name that of EMULATOR_LAB, or else the only one.

    BadValue, in one line, if there is none or there are several.
    """
    labs = {lab.name: lab for lab in running_labs()}
    wanted = name or os.environ.get(ENVIRONMENT)
    if not labs:
        raise BadValue("no lab is running; start one with emulator lab run TOPOLOGY -- COMMAND")
    if wanted is not None:
        return labs[valid_name("lab", wanted, labs)]
    if len(labs) > 1:
        raise BadValue(f"several labs are running ({', '.join(labs)}): give --lab NAME")
    return next(iter(labs.values()))


def lab_namespace(host: str, lab: str | None = None) -> str | None:
    """The network namespace of a lab's host, for ``ip netns exec``; None if it is this machine.

    ``lab`` is the name of a running lab; without it, the environment variable EMULATOR_LAB or else
    the only lab counts. BadValue, with the nearest name, if there is none.
    """
    return attach(lab).host(host).namespace
