"""A running lab, from any process: programs on its hosts, and changes of its links."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator.errors import BadValue, valid_name
from emulator.kernel.commands import KernelShape, KernelWay
from emulator.lab import lab_commands as commands
from emulator.lab.lab_commands import carry_out
from emulator.lab.lab_relay import ask
from emulator.lab.lab_state import CUT, DOWN, ENVIRONMENT, UP, LabState, changing, find, load, save
from emulator.lab.topology import changed
from emulator.lab.wiring import Wire


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
        """The environment of programs on this host: EMULATOR_LAB, EMULATOR_OWN_ADDRESS."""
        return os.environ | {ENVIRONMENT: self.lab, "EMULATOR_OWN_ADDRESS": self.address}

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
    """A link of a running lab, or the shared capacity of a bridge."""

    name: str
    lab_number: int

    def cut(self) -> None:
        """Let both ends lose all frames, as a cable that is cut somewhere; interfaces stay up."""
        self._become(CUT)

    def down(self) -> None:
        """Switch the interfaces of both ends off: programs get errors such as "unreachable"."""
        self._become(DOWN)

    def restore(self) -> None:
        """Undo ``cut`` and ``down``."""
        self._become(UP)

    def set(self, **said: str) -> None:
        """Change rate, up, down, latency, jitter or loss (text with a unit; "none" for a rate).

        Frames on their way keep their delay, and order is kept. BadValue for what is wrong.
        """
        with changing(self.lab_number) as state:
            wire = state.wiring.wire(self.name)
            before = state.shapes[wire.link.name]
            link = changed(replace(wire.link, up=before.up, down=before.down), said)
            after = replace(before, up=link.up, down=link.down)
            _check_delays(self.name, before, after)
            if state.conditions[wire.link.name] != CUT:
                carry_out(commands.change(wire, before, after))
            if after.delay == "relay" and _delays(before) != _delays(after):
                ask(state.names.relay_socket, {"link": wire.link.name} | _as_json(after))
            save(state.changed(wire.link.name, after, state.conditions[wire.link.name]))

    def _become(self, condition: str) -> None:
        with changing(self.lab_number) as state:
            plan = state.wiring
            wire = plan.wire(self.name)
            shape, before = state.shapes[wire.link.name], state.conditions[wire.link.name]
            if condition == before and condition != UP:
                return
            steps = commands.mend(wire, shape) if before == CUT else []
            if before == DOWN or condition == UP:
                steps += commands.bring_up(plan, wire)
            if condition == CUT:
                steps += commands.cut(wire)
            elif condition == DOWN:
                steps += commands.take_down(wire)
            carry_out(steps)
            save(state.changed(wire.link.name, shape, condition))


class AttachedLab:
    """A running lab by its number; ``attach`` finds it by its name."""

    def __init__(self, number: int) -> None:
        self.number = number

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
        found = []
        for number, flow in enumerate(state.topology.traffic):
            told: dict[str, Any] = {"from": flow.sender, "to": flow.receiver}
            for end in ("sent", "arrived"):
                file = state.names.counts_file(number, end)
                if file.exists():
                    told[end] = json.loads(file.read_text(encoding="utf-8"))
            found.append(told)
        return found

    def link_line(self, name: str) -> str:
        """One line about a link."""
        state = self.state
        wire = state.wiring.wire(name)
        name = wire.link.name
        return described(wire, state.shapes[name], state.conditions[name])

    def lines(self) -> list[str]:
        """What the lab has and does, for people."""
        state = self.state
        found = [f"lab {state.name} (process {state.owner_pid})"]
        for host, address in state.wiring.addresses.items():
            here = state.topology.host(host).here
            where = "this machine" if here else f"namespace {state.names.namespace(host)}"
            found.append(f"  host {host}: {address}, {where}")
        found += [f"  link {self.link_line(wire.link.name)}" for wire in state.wiring.wires]
        for flow in self.traffic():
            sent, arrived = (flow.get(key, {}).get("bytes", 0) for key in ("sent", "arrived"))
            found.append(
                f"  traffic {flow['from']} to {flow['to']}: {sent} bytes sent, {arrived} arrived"
            )
        return found


def attach(name: str | None = None) -> AttachedLab:
    """The running lab ``name``; without a name that of EMULATOR_LAB, or else the only one."""
    return AttachedLab(find(name).number)


def described(wire: Wire, shape: KernelShape, condition: str) -> str:
    """One line about a link: its ends, what it does in each direction, and its condition."""
    ways = [f"{name} {_way_text(way)}" for name, way in (("up", shape.up), ("down", shape.down))]
    by = {"relay": ", by the relay", "netem": ", by netem"}.get(shape.delay, "")
    ends = (
        f"{wire.lower.node} to {wire.upper.node}"
        if wire.lower.node != wire.upper.node
        else (f"shared by {len(wire.sharers)} hosts")
    )
    state = "" if condition == UP else f" [{condition}]"
    return f"{wire.link.name}: {ends}, {', '.join(ways)}{by}{state}"


def _way_text(way: KernelWay) -> str:
    rate = "not shaped" if way.rate_bit_s is None else f"{way.rate_bit_s / 1e6:g} Mbit/s"
    delay = f" {way.latency_ns / 1e6:g} ms" if way.delays else ""
    jitter = f" +- {way.jitter_ns / 1e6:g} ms" if way.jitter_ns else ""
    return f"{rate}{delay}{jitter}" + (f" loss {100 * way.loss:g} %" if way.loss else "")


def _delays(shape: KernelShape) -> list[tuple[int, int, float]]:
    return [(way.latency_ns, way.jitter_ns, way.loss) for way in (shape.up, shape.down)]


def _as_json(shape: KernelShape) -> dict[str, Any]:
    return {
        key: {name: getattr(way, name) for name in ("latency_ns", "jitter_ns", "loss")}
        for key, way in (("up", shape.up), ("down", shape.down))
    }


def _check_delays(name: str, before: KernelShape, after: KernelShape) -> None:
    if after.delay == "netem" and (after.up.jitter_ns or after.down.jitter_ns):
        raise BadValue(
            f"link {name}: its latency is made by netem, which reorders frames under jitter; give"
            " it a jitter in the topology, and the relay makes both"
        )


def valid_action(action: str) -> str:
    """Return what can be done to a link, or raise BadValue with the nearest word."""
    return valid_name("action", action, ["cut", "down", "restore", "set"])
