"""A lab that this process owns: make it, keep it, and remove everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from emulator.lab import background
from emulator.lab.attached import (
    UP,
    AttachedLab,
    LabMachine,
    LabState,
    claimed,
    names_with,
    running_labs,
    save,
)
from emulator.lab.commands import build, carry_out
from emulator.lab.relay import RelayedLink, RelayProcess, own_environment
from emulator.lab.system import (
    NAMESPACE_FILES,
    System,
    choose,
    end_processes,
    probe,
    require_tools,
    tools,
)
from emulator.lab.topology import KernelShape, Topology, check_name, parse_topology, read_topology
from emulator.lab.wiring import LabNames, Wiring, wiring

TERM_S = 2.0  # time for programs to end after SIGTERM
BEGIN_S = 10.0  # time for background traffic to begin on a busy machine
LOOK_S = 0.02


class Lab(AttachedLab):
    """A lab that this process owns; use it as a context manager.

    ``topology`` is a TOML file, a dict of the same form, or a Topology. With ``latency`` False,
    latency, jitter and loss are left out. ``shaper`` is htb or tbf; None: htb if the kernel has it.
    BadValue, in one line, if it cannot be made: Linux, root and ip and tc are needed. What an owner
    that was killed left, the next lab removes.
    """

    def __init__(
        self,
        topology: Path | str | Mapping[str, Any] | Topology,
        *,
        name: str | None = None,
        latency: bool = True,
        shaper: str | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if isinstance(topology, Path | str):
            topology = read_topology(Path(topology))
        elif isinstance(topology, Mapping):
            topology = parse_topology(topology)
        self.topology = topology
        self._wanted = check_name("name", name or topology.name)
        self._latency, self._shaper, self._say = latency, shaper, say
        self._relay: RelayProcess | None = None
        self._flows: dict[subprocess.Popen[bytes], Path] = {}  # each with the file of its counts
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        require_tools(tools())
        with ExitStack() as stack:
            super().__init__(stack.enter_context(claimed()))
            stack.callback(self._end)
            self._make(probe(LabNames(self.number).namespace("probe")))
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
            wire.link.name: choose(
                system,
                wire.link.up,
                wire.link.down,
                shaper=self._shaper,
                latency=self._latency,
                delayed=wire.link.delayed,
            )
            for wire in plan.wires
        }
        for line in _remarks(system, plan, shapes, self._latency):
            self._say(line)
        names.folder.mkdir(mode=0o755)
        self._relay = _relay(plan, shapes)
        carry_out(build(plan, shapes, system.ipv6))
        _write_hosts(plan)
        taken, number, name = {lab.name for lab in running_labs()}, 1, self._wanted
        while name in taken:
            number += 1
            name = f"{self._wanted}-{number}"
        conditions = dict.fromkeys(shapes, UP)
        save(
            LabState(
                self.number, name, os.getpid(), self.topology, shapes, conditions, system.cls_u32
            )
        )
        for number in range(len(self.topology.traffic)):
            self._start_flow(number)

    def _start_flow(self, number: int) -> None:
        """Start the counter, then the sender of a background flow."""
        flow, names = self.topology.traffic[number], LabNames(self.number)
        receiver = self.host(flow.receiver)
        peer = [receiver.address, str(background.FIRST_PORT + number)]
        rest = [flow.on_ns, flow.off_ns] if flow.on_ns and flow.off_ns else []
        numbers = [str(value) for value in (flow.rate_bit_s, *rest)]
        self._start(receiver, ["count", *peer], names.counts_file(number, "arrived"))
        sender = self.host(flow.sender)
        self._start(sender, ["send", *peer], names.counts_file(number, "sent"), numbers)

    def _start(
        self, machine: LabMachine, words: list[str], counts: Path, numbers: Sequence[str] = ()
    ) -> None:
        program = [sys.executable, "-m", "emulator.lab.background"]
        process = machine.start(
            [*program, *words, str(counts), *numbers],
            env=own_environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._flows[process] = counts

    def stop_traffic(self) -> list[dict[str, Any]]:
        """End the background traffic and return what was counted, as ``traffic`` does."""
        # Senders first, so that what they sent may arrive.
        for process, counts in reversed(self._flows.items()):
            until_s = time.monotonic() + BEGIN_S
            # one that is ended before it begins leaves no counts
            while not counts.exists() and process.poll() is None and time.monotonic() < until_s:
                time.sleep(LOOK_S)
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
    if any(shape.delay == "relay" for shape in shapes.values()):
        why = "netem reorders frames" if system.sch_netem else "the kernel has no netem"
        lines.append(f"latency, jitter and loss are made by a relay in user space, because {why}")
    if not latency and any(wire.link.up.delays or wire.link.down.delays for wire in plan.wires):
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
