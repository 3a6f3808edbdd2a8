"""What ``emulator lab`` and ``emulator kernel`` do: a lab around a program, until it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from emulator.errors import BadValue
from emulator.host import host_facts
from emulator.lab.attached import attach, traffic_lines
from emulator.lab.commands import build
from emulator.lab.relay import own_environment
from emulator.lab.running import Lab
from emulator.lab.system import end_processes, execute, require_tools, tools
from emulator.lab.topology import KernelWay, LabHost, LabLink, Topology

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_S = 10.0  # time for a program to end after a signal
TERM_S = 1.0  # time for its background processes to end after SIGTERM
# after the program's end, sent bytes may still arrive, until none arrive for this time
STILL_S = 5.0
LOOK_S = 0.1
ASK_S = 0.2
DOWN_S = 60.0
MOST_LATE = 5  # links that are named
_READY = "is running"


class Signals:
    """The signals that end a run early.

    SIGINT and SIGQUIT from a terminal reach the program directly, so they are not forwarded.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.kill_at_s = float("inf")
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def caught(self) -> Iterator[Signals]:
        """Handle signals from here on, so that none ends this process in the middle."""
        before = {number: signal.signal(number, self._take) for number in PASSED_ON}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        """Forward signals to ``process`` from now on, including one received before."""
        self._process = process
        if self.received is not None:
            self._forward(self.received)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if (
            self._process is not None
            and number in (signal.SIGINT, signal.SIGQUIT)
            and _in_foreground()
        ):
            return
        self.received = number
        self._forward(number)

    def _forward(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self.kill_at_s = min(self.kill_at_s, time.monotonic() + GRACE_S)
            self._process.send_signal(number)


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


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
    require_tools(tools())
    lab = Lab(topology, name=name, latency=latency, say=say)
    if on is not None:
        lab.topology.host(on)
    if command:
        program(command)
    elif on is not None:
        raise BadValue(f"--on {on}: expected a COMMAND to run there, after --")
    _check_log(log)
    with Signals().caught() as signals, lab:
        hosts, links = len(lab.topology.hosts), len(lab.topology.links)
        say(f"lab {lab.name} {_READY}: {hosts} hosts, {links} links")
        if detached:
            _leave_terminal()
        status = _carry(lab, command, on, signals)
        traffic, relay = lab.stop_traffic(), None if lab.failed else lab.relay()
        record = {"command": command, "status": status, "host": host_facts(), "traffic": traffic}
        record |= {"relay": relay, "lab": asdict(lab.state)}
        failed = lab.failed
        for line in [*([failed] if failed else []), *traffic_lines(traffic), *_late(relay)]:
            say(line)
    _write_log(log, record)
    if status is None:  # stopped by a signal, which is the only end without a command
        return 128 + (signals.received or 0) if command else int(bool(failed))
    return status or int(bool(failed))


def run_behind_link(
    ways: tuple[KernelWay, KernelWay],
    command: Sequence[str],
    *,
    shaper: str | None = None,
    latency: bool = True,
    seed: int = 0,
    log: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Run ``command`` behind a link (up, down) to this machine, and return its exit status.

    It is a lab of two hosts. If a signal ended the command or this run, the status is 128 + the
    signal. ``log``: the path of a JSON file with the setup and the measurements. BadValue if it is
    impossible. Call it from the main thread, because it handles signals.
    """
    require_tools(tools(), "kernel mode")
    program(command)
    _check_log(log)
    hosts = LabHost("this-machine", here=True), LabHost("command")
    link = LabLink("link", "command", "this-machine", *ways)
    topology = Topology(hosts, links=(link,), name="kernel", seed=seed)
    with (
        Signals().caught() as signals,
        Lab(topology, latency=latency, shaper=shaper, say=say) as lab,
    ):
        began_s, state = time.monotonic(), lab.state
        (wire,), shape = state.wiring.wires, state.shapes["link"]
        ends = {"host": wire.upper, "own": wire.lower}
        # Other addresses of this machine are reached, too.
        route = ["route", "add", "default", "via", wire.upper.address, "dev", wire.lower.name]
        execute(["ip", *wire.lower.inside, *route, "onlink"])
        facts = {name: _tcp_facts(end.inside) for name, end in ends.items()}
        say(
            f"link: COMMAND {wire.lower.address} (TCP {facts['own'][0]}), this host"
            f" {wire.upper.address} (TCP {facts['host'][0]})"
        )
        status = _carry(lab, list(command), "command", signals)
        unsent_bytes = _drained(state.names.namespace("command"), signals)
        relay, failed = None if lab.failed else lab.relay(), lab.failed
        if unsent_bytes:
            say(f"{unsent_bytes} bytes that COMMAND had sent were not delivered")
        for line in [*([failed] if failed else []), *_late(relay)]:
            say(line)
        record = {
            "command": list(command),
            "seed": seed,
            "plan": build(state.wiring, state.shapes, tools().ipv6),
            **asdict(shape),
            **{f"{name}_address": end.address for name, end in ends.items()},
            "congestion_control": {name: control for name, (control, _) in facts.items()},
            "tcp_timestamps": {name: int(stamps) for name, (_, stamps) in facts.items()},
            "host": host_facts(),
            "status": status,
            "signal": signals.received,
            "undelivered_bytes": unsent_bytes,
            "seconds": round(time.monotonic() - began_s, 6),
            "relay": relay and relay.pop("links")["link"] | relay,
            "qdiscs": {
                name: json.loads(
                    execute(["tc", *end.inside, "-s", "-j", "qdisc", "show", "dev", end.name])
                    or "[]"
                )
                for name, end in ends.items()
            },
        }
    _write_log(log, record)
    return 128 + (signals.received or 0) if status is None else status or int(bool(failed))


def program(command: Sequence[str]) -> Sequence[str]:
    """Return ``command``. BadValue if there is no such program."""
    if not command or shutil.which(command[0]) is None:
        raise BadValue(f"COMMAND {command[0] if command else ''!r}: no such program")
    return command


def start_detached(topology: Path, options: list[str], say: Callable[[str], None]) -> str:
    """Start ``emulator lab run`` in the background; return the lab's name when it is ready."""
    require_tools(tools())
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
    told = ""
    with process.stderr as lines:
        for line in lines:
            if told:
                say(told)
            told = line.removeprefix("emulator: ").rstrip()
            words = told.split()
            if words[:1] == ["lab"] and f" {_READY}:" in told:
                return words[1]
    status = process.wait()
    raise BadValue(told or f"the lab did not start (status {status})")  # the last line says why


def end_lab(name: str | None) -> str:
    """End a running lab and wait until it is removed; return its name."""
    require_tools(tools())
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
    if signals.received is not None:
        return None
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


def _check_log(log: Path | None) -> None:
    if log is not None and (log.is_dir() or not log.parent.is_dir()):
        raise BadValue(f"--log {log}: expected a file in a directory that exists")


def _write_log(log: Path | None, record: dict[str, Any]) -> None:
    if log is None:
        return
    try:
        log.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadValue(
            f"--log {log}: {error.strerror} (COMMAND ended with status {record['status']})"
        ) from None


def _late(relay: dict[str, Any] | None) -> list[str]:
    """A line about a relay that was late."""
    late = relay["strain"].split(", ") if relay and relay["strain"] else []
    if not late:
        return []
    more = f" and {len(late) - MOST_LATE} more" if len(late) > MOST_LATE else ""
    return [
        "this host is too slow or too busy for the relay: 1 % of the frames left later than"
        f" {', '.join(late[:MOST_LATE])}{more} after they were due"
    ]


def _tcp_facts(inside: tuple[str, ...]) -> list[str]:
    """The congestion control of a namespace ("-n", its name), and whether it has timestamps."""
    files = [f"/proc/sys/net/ipv4/tcp_{name}" for name in ("congestion_control", "timestamps")]
    return execute([*_exec(inside[1:]), "cat", *files]).split()


def _exec(namespace: Sequence[str]) -> list[str]:
    return ["ip", "netns", "exec", *namespace] if namespace else []


def _drained(namespace: str, signals: Signals) -> int:
    """End the processes that COMMAND left running, and let its sent bytes arrive.

    Return how many bytes of TCP are still unsent or unacknowledged.
    """
    asked_s = time.monotonic()
    while end_processes(namespace, signal.SIGTERM) and time.monotonic() - asked_s < TERM_S:
        time.sleep(LOOK_S)
    unsent_bytes, moved_s = _unsent(namespace), time.monotonic()
    while unsent_bytes and signals.received is None and time.monotonic() - moved_s < STILL_S:
        time.sleep(LOOK_S)
        before, unsent_bytes = unsent_bytes, _unsent(namespace)
        moved_s = time.monotonic() if unsent_bytes != before else moved_s
    return unsent_bytes


def _unsent(namespace: str) -> int:
    tables = [name for name in ("/proc/net/tcp", "/proc/net/tcp6") if Path(name).exists()]
    rows = [row.split() for row in execute([*_exec([namespace]), "cat", *tables]).splitlines()]
    # Below the header row, field 3 is the state (0A: listening, where the queue has another
    # meaning), and field 4 is "tx_queue:rx_queue" in hexadecimal.
    return sum(
        int(row[4].partition(":")[0], 16) for row in rows if row[0] != "sl" and row[3] != "0A"
    )
