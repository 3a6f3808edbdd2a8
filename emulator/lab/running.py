"""Run a lab: make it, keep it while its owner lives, and remove everything.

The functions at the end are what ``emulator lab run``, ``up`` and ``down`` do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from emulator.errors import BadValue
from emulator.host import host_facts
from emulator.kernel.commands import KernelShape
from emulator.kernel.namespaces import NAMESPACE_FILES, end_processes
from emulator.kernel.probe import System, choose, examine, require_tools, tools
from emulator.kernel.relay import RelayedLink
from emulator.kernel.run import Signals
from emulator.lab import background
from emulator.lab.attached import AttachedLab, LabMachine, attach
from emulator.lab.lab_commands import build, carry_out
from emulator.lab.lab_relay import RelayProcess, own_environment
from emulator.lab.lab_state import CLAIMS, UP, LabState, free_name, names_with, save
from emulator.lab.topology import LabLink, Topology, check_name, parse_topology, read_topology
from emulator.lab.wiring import LabNames, Wiring, wiring

TERM_S = 2.0  # time for programs to end after SIGTERM
LOOK_S = 0.02


class Lab(AttachedLab):
    """A lab that this process owns; use it as a context manager.

    ``topology`` is a TOML file, a dict of the same form, or a Topology. With ``latency`` False,
    latency, jitter and loss are left out. BadValue, in one line, if it cannot be made: Linux, root
    and ip and tc are needed. What an owner that was killed left, the next lab removes.
    """

    def __init__(
        self,
        topology: Path | str | Mapping[str, Any] | Topology,
        *,
        name: str | None = None,
        latency: bool = True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if isinstance(topology, Path | str):
            topology = read_topology(Path(topology))
        elif isinstance(topology, Mapping):
            topology = parse_topology(topology)
        self.topology = topology
        self._wanted = check_name("name", name or topology.name)
        self._latency = latency
        self._say = say
        self._relay: RelayProcess | None = None
        self._flows: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        require_tools(tools(), "emulator lab")
        system = examine()
        with ExitStack() as stack:
            super().__init__(stack.enter_context(CLAIMS.claimed()))
            stack.callback(self._end)
            self._make(system)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def failed(self) -> str:
        """Why the lab no longer works; '' if it does."""
        return "the relay has ended" if self._relay is not None and self._relay.ended else ""

    def _make(self, system: System) -> None:
        names = LabNames(self.number)
        plan = wiring(self.topology, names, system.cls_u32)
        shapes = {
            wire.link.name: shape_for(system, wire.link, self._latency) for wire in plan.wires
        }
        for line in _remarks(system, plan, shapes, self._latency):
            self._say(line)
        names.folder.mkdir(mode=0o755)
        self._relay = _relay(plan, shapes)
        carry_out(build(plan, shapes, system.ipv6))
        _write_hosts(plan)
        state = LabState(
            self.number,
            free_name(self._wanted),
            os.getpid(),
            self.topology,
            shapes,
            dict.fromkeys(shapes, UP),
            system.cls_u32,
        )
        save(state)
        for number in range(len(self.topology.traffic)):
            self._start_flow(number)

    def _start_flow(self, number: int) -> None:
        """Start the counter, then the sender of a background flow."""
        flow, names = self.topology.traffic[number], LabNames(self.number)
        receiver = self.host(flow.receiver)
        peer = [receiver.address, str(background.FIRST_PORT + number)]
        rest = [flow.on_ns, flow.off_ns] if flow.on_ns and flow.off_ns else []
        numbers = [str(value) for value in (flow.rate_bit_s, *rest)]
        self._start(receiver, ["count", *peer, str(names.counts_file(number, "arrived"))])
        sent = ["send", *peer, str(names.counts_file(number, "sent")), *numbers]
        self._start(self.host(flow.sender), sent)

    def _start(self, machine: LabMachine, words: list[str]) -> None:
        command = [sys.executable, "-m", "emulator.lab.background", *words]
        self._flows.append(
            machine.start(
                command, env=own_environment(), stdin=subprocess.DEVNULL, start_new_session=True
            )
        )

    def stop_traffic(self) -> list[dict[str, Any]]:
        """End the background traffic and return what was counted, as ``traffic`` does."""
        # Senders first, so that what they sent may arrive.
        for process in reversed(self._flows):
            process.terminate()
            process.wait()
        self._flows.clear()
        return self.traffic()

    def _end(self) -> None:
        """End programs and the relay; the claim then removes what is left."""
        for process in self._flows:
            process.terminate()
        namespaces = names_with(LabNames(self.number).namespace_prefix, NAMESPACE_FILES)
        until_s = time.monotonic() + TERM_S
        number: int = signal.SIGTERM
        while sum(end_processes(name, number) for name in namespaces):
            if time.monotonic() > until_s:
                break
            number = 0  # once is enough; from now on only count
            time.sleep(LOOK_S)
            for process in self._flows:
                process.poll()
        for process in self._flows:
            process.kill()
            process.wait()
        if self._relay is not None:
            self._relay.end()


def shape_for(system: System, link: LabLink, latency: bool = True) -> KernelShape:
    """How this system makes a link. BadValue if it cannot.

    A link that names latency, jitter or loss gets what makes them, also where they are 0 now.
    """
    shaper = "htb" if system.sch_htb else "tbf"
    up, down = link.up, link.down
    if link.delayed and not (up.delays or down.delays):
        up = replace(up, latency_ns=1)
    shape = choose(system, KernelShape(up, down, shaper), None, latency)
    return replace(shape, up=link.up, down=link.down)


def _relay(plan: Wiring, shapes: Mapping[str, KernelShape]) -> RelayProcess | None:
    links = [
        RelayedLink(
            wire.link.name,
            wire.upper.made_as,
            wire.lower.made_as,
            shapes[wire.link.name].up,
            shapes[wire.link.name].down,
            plan.topology.seed * 2**16 + number,
        )
        for number, wire in enumerate(plan.wires)
        if shapes[wire.link.name].delay == "relay"
    ]
    return RelayProcess(links, plan.names.relay_socket) if links else None


def _remarks(
    system: System, plan: Wiring, shapes: Mapping[str, KernelShape], latency: bool
) -> list[str]:
    """What a user may not expect of this system."""
    lines = []
    delayed = [name for name, shape in shapes.items() if shape.up.delays or shape.down.delays]
    if any(shape.delay == "relay" for shape in shapes.values()):
        why = "netem reorders frames" if system.sch_netem else "the kernel has no netem"
        lines.append(f"latency, jitter and loss are made by a relay in user space, because {why}")
    if delayed and not latency:
        lines.append("latency, jitter and loss are left out (--no-latency)")
    shared = any(bridge.shared for bridge in plan.topology.bridges)
    if shared and not (system.sch_htb and system.cls_u32):
        lines.append(
            "a bridge's rate has one queue for all, because the kernel lacks sch_htb or cls_u32"
        )
    return lines


def _write_hosts(plan: Wiring) -> None:
    """Names for the hosts: ``ip netns exec`` shows this file in place of /etc/hosts."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address} {host}" for host, address in plan.addresses.items()]
    own = Path("/etc/hosts")
    own_lines = own.read_text(encoding="utf-8", errors="replace") if own.exists() else ""
    for host in plan.topology.hosts:
        if not host.here:
            file = plan.names.hosts_file(host.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines) + "\n" + own_lines, encoding="utf-8")


ASK_S = 0.2
DOWN_S = 60.0
MOST_LATE = 5  # links that are named
_READY = "is running"


def run_lab(
    topology: Path,
    command: list[str],
    *,
    name: str | None,
    on: str | None,
    latency: bool,
    log: Path | None,
    say: Callable[[str], None],
    detached: bool = False,
) -> int:
    """Run ``command`` in a lab and return its exit status; without one wait for a signal.

    ``on`` is the host of the command. Call it from the main thread, because it handles signals.
    """
    require_tools(tools(), "emulator lab")
    lab = Lab(topology, name=name, latency=latency, say=say)
    if on is not None:
        lab.topology.host(on)
    if command:
        program(command)
    elif on is not None:
        raise BadValue(f"--on {on}: expected a COMMAND to run there, after --")
    if log is not None and (log.is_dir() or not log.parent.is_dir()):
        raise BadValue(f"--log {log}: expected a file in a directory that exists")
    with Signals().caught() as signals, lab:
        hosts, links = len(lab.topology.hosts), len(lab.topology.links)
        say(f"lab {lab.name} {_READY}: {hosts} hosts, {links} links")
        if detached:
            _leave_terminal()
        status = _carry(lab, command, on, signals) if signals.received is None else None
        found = {"traffic": lab.stop_traffic(), "relay": None if lab.failed else lab.relay()}
        record = {"command": command, "status": status, "host": host_facts(), **found}
        record["lab"] = asdict(lab.state)
        for line in [*([lab.failed] if lab.failed else []), *_report(found)]:
            say(line)
        failed = bool(lab.failed)
    if log is not None:
        log.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if status is None:  # stopped by a signal, which is the only end without a command
        return 128 + (signals.received or 0) if command else int(failed)
    return status or int(failed)


def program(command: list[str]) -> list[str]:
    """Return ``command``. BadValue if there is no such program."""
    if not command or shutil.which(command[0]) is None:
        raise BadValue(f"COMMAND {command[0] if command else ''!r}: no such program")
    return command


def start_detached(topology: Path, options: list[str], say: Callable[[str], None]) -> str:
    """Start ``emulator lab run`` in the background; return the lab's name when it is ready."""
    require_tools(tools(), "emulator lab")
    command = [sys.executable, "-m", "emulator.cli", "lab", "run", *options, "--detached"]
    process = subprocess.Popen(
        [*command, str(topology)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=own_environment(),
        start_new_session=True,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            told = line.removeprefix("emulator: ").rstrip()
            words = told.split()
            if words[:1] == ["lab"] and f" {_READY}:" in told:
                return words[1]
            if process.poll() is None:
                say(told)
            else:
                raise BadValue(told)
    raise BadValue(f"the lab did not start (status {process.wait()})")


def end_lab(name: str | None) -> str:
    """End a running lab and wait until it is removed; return its name."""
    require_tools(tools(), "emulator lab")
    state = attach(name).state
    os.kill(state.owner_pid, signal.SIGTERM)
    until_s = time.monotonic() + DOWN_S
    while state.names.folder.exists():
        if time.monotonic() > until_s:
            raise BadValue(
                f"lab {state.name}: its owner, process {state.owner_pid}, has not ended within"
                f" {DOWN_S:g} s"
            )
        time.sleep(ASK_S / 4)
    return state.name


def _carry(lab: Lab, command: list[str], on: str | None, signals: Signals) -> int | None:
    """Wait for the command, a signal, or a failure of the lab; return the command's status."""
    if not command:
        while signals.received is None and not lab.failed:
            time.sleep(ASK_S)
        return None
    machine = lab.host(on) if on else None
    environment = os.environ | {"EMULATOR_LAB": lab.name}
    process = machine.start(command) if machine else subprocess.Popen(command, env=environment)
    signals.pass_to(process)
    while True:
        try:
            status = process.wait(ASK_S)
            return status if status >= 0 else 128 - status
        except subprocess.TimeoutExpired:
            if lab.failed and signals.received is None:
                process.terminate()
                signals.received = signal.SIGTERM
            if time.monotonic() >= signals.kill_at_s:
                process.kill()


def _leave_terminal() -> None:
    """Close what connects to the starter, which has read that the lab is ready."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (1, 2):
        os.dup2(nothing, file)
    os.close(nothing)


def _report(found: dict[str, Any]) -> list[str]:
    """Lines about the background traffic, and about a relay that was late."""
    lines = []
    for flow in found["traffic"]:
        sent, arrived = (flow.get(key, {}).get("bytes", 0) for key in ("sent", "arrived"))
        lines.append(
            f"traffic {flow['from']} to {flow['to']}: {sent} bytes sent, {arrived} arrived"
        )
    relay = found["relay"]
    late = relay["strain"].split(", ") if relay and relay["strain"] else []
    if late:
        more = f" and {len(late) - MOST_LATE} more" if len(late) > MOST_LATE else ""
        lines.append(
            "this host is too slow or too busy for the relay: 1 % of the frames left later than"
            f" {', '.join(late[:MOST_LATE])}{more} after they were due"
        )
    return lines
