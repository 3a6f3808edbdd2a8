"""Run a program behind a link that the Linux kernel shapes; needs root.

It makes a namespace, runs the program in it, and removes everything. The run has one thread. It
waits for the end of the program, forwards signals, and relays the frames if netem cannot be used.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from emulator.clock import precise_timers
from emulator.errors import BadValue
from emulator.host import REAL_TIME, host_facts, real_time_priority
from emulator.kernel.commands import KernelShape, Place, VethEnd, make
from emulator.kernel.namespaces import claimed, end_processes, execute
from emulator.kernel.probe import choose, probe, require_tools, tools
from emulator.kernel.relay import Relay, RelayedLink
from emulator.units import NS_PER_S

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_S = 10.0  # time for a program to end after a signal
TERM_S = 1.0  # time for its background processes to end after SIGTERM
# after the program's end, sent bytes may still arrive, until none arrive for this time
STILL_S = 5.0
LOOK_S = 0.1


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


def run(
    shape: KernelShape,
    command: Sequence[str],
    *,
    shaper: str | None = None,
    latency: bool = True,
    seed: int = 0,
    log: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Run ``command`` behind the link and return its exit status. BadValue if that is impossible.

    If a signal ended the command or this run, the status is 128 + the signal. ``say`` gets messages
    for the user. ``log`` is the path of a JSON file to write. ``latency`` False leaves out latency,
    jitter and loss. Call it from the main thread, because it handles signals.
    """
    require_tools(tools())
    if not command or shutil.which(command[0]) is None:
        raise BadValue(f"COMMAND {command[0] if command else ''!r}: no such program")
    if log is not None and (log.is_dir() or not log.parent.is_dir()):
        raise BadValue(f"--log {log}: expected a file in a directory that exists")
    with Signals().caught() as signals, claimed() as place:
        system = probe(place, tools())
        shape = choose(system, shape, shaper, latency)
        with ExitStack() as stack:
            relay = None
            if shape.delay == "relay":
                taps = place.host.name, place.own.name
                link = RelayedLink("", *taps, shape.up, shape.down, seed)
                relay = Relay([link], stack, time.monotonic_ns())
            plan = make(place, shape, system.ipv6)
            for step in plan:
                execute(step)
            record = {"command": list(command), "seed": seed, "plan": plan, **_facts(place, shape)}
            for line in announcement(shape, place, record["congestion_control"]):
                say(line)
            status, outcome = _carry(place, command, relay, signals, say)
            record |= outcome | {"qdiscs": {"host": _qdiscs(place.host), "own": _qdiscs(place.own)}}
    if log is not None:
        try:
            log.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadValue(
                f"--log {log}: {error.strerror} (COMMAND ended with status {status})"
            ) from None
    return status


def announcement(shape: KernelShape, place: Place, control: Mapping[str, str]) -> list[str]:
    """Lines that describe the link, and what a user may not expect.

    ``control``: the congestion control of both ends.
    """
    ends = (("own", place.own, "COMMAND"), ("host", place.host, "this host"))
    lines = [
        "link: "
        + ", ".join(f"{who} {end.address} (TCP {control[name]})" for name, end, who in ends)
    ]
    if shape.delay == "relay":
        jitter = shape.up.jitter_ns or shape.down.jitter_ns
        why = "netem reorders frames under jitter" if jitter else "the kernel has no netem"
        lines.append(
            f"latency, jitter and loss are made by a relay in user space, because {why}; the file"
            " of --log has its lateness"
        )
    if shape.delay == "none" and (shape.up.delays or shape.down.delays):
        lines.append("latency, jitter and loss are left out (--no-latency)")
    return lines


def _facts(place: Place, shape: KernelShape) -> dict[str, Any]:
    ways = {name: asdict(way) for name, way in (("up", shape.up), ("down", shape.down))}
    kernel = Path("/proc/sys/net/ipv4")
    control, timestamps = kernel / "tcp_congestion_control", kernel / "tcp_timestamps"
    inside = ["ip", "netns", "exec", place.namespace]
    own = execute([*inside, "cat", str(control), str(timestamps)]).split()
    return ways | {
        "shaper": shape.shaper,
        "delay": shape.delay,
        "host_address": place.host.address,
        "own_address": place.own.address,
        "congestion_control": {"host": control.read_text().strip(), "own": own[0]},
        "tcp_timestamps": {"host": int(timestamps.read_text()), "own": int(own[1])},
        "host": host_facts(),
    }


def _qdiscs(end: VethEnd) -> object:
    return json.loads(
        execute(["tc", *end.inside, "-s", "-j", "qdisc", "show", "dev", end.name]) or "[]"
    )


def _carry(
    place: Place,
    command: Sequence[str],
    relay: Relay | None,
    signals: Signals,
    say: Callable[[str], None],
) -> tuple[int, dict[str, object]]:
    began_s = time.monotonic()
    if signals.received is not None:
        return 128 + signals.received, {"status": None, "signal": signals.received}
    environment = os.environ | {
        "EMULATOR_HOST_ADDRESS": place.host.address,
        "EMULATOR_OWN_ADDRESS": place.own.address,
    }
    process = subprocess.Popen(["ip", "netns", "exec", place.namespace, *command], env=environment)
    signals.pass_to(process)
    with ExitStack() as stack:
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        # after the start, because a program inherits timer slack
        priority = stack.enter_context(_in_time(relay))
        while process.poll() is None:
            _wait(relay, 0.5, [ended])
            if time.monotonic() >= signals.kill_at_s:
                end_processes(place.namespace, signal.SIGKILL)
        lost_bytes = _finish(place, relay, signals)
    if lost_bytes:
        say(f"{lost_bytes} bytes that COMMAND had sent were not delivered")
    if relay and relay.strain():
        say(
            "this host is too slow or too busy for the relay: 1 % of the frames left later than"
            f" {relay.strain()} after they were due"
        )
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    ended_by = {
        "status": status,
        "signal": signals.received,
        "undelivered_bytes": lost_bytes,
        "seconds": round(time.monotonic() - began_s, 6),
    }
    return status, ended_by | {"relay": relay.summary()[""] | priority if relay else None}


@contextmanager
def _in_time(relay: Relay | None) -> Iterator[dict[str, bool]]:
    """Set timer slack and real-time priority for a relay, if allowed; yield which were set."""
    if relay is None:
        yield {}
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    real_time = real_time_priority() == REAL_TIME
    try:
        yield {"timer_slack_1ns": precise_timers(), "real_time_priority": real_time}
    finally:
        if real_time:
            os.sched_setscheduler(0, *before)


def _wait(relay: Relay | None, most_s: float, files: list[int]) -> None:
    """Wait until one of ``files`` is ready, a frame is due, or ``most_s`` have passed."""
    if relay is None:
        select.select(files, [], [], most_s)
        return
    rest_s = (relay.next_ns() - time.monotonic_ns()) / NS_PER_S
    ready, _, _ = select.select([*files, *relay.taps], [], [], max(0.0, min(rest_s, most_s)))
    relay.turn(ready, time.monotonic_ns())


def _finish(place: Place, relay: Relay | None, signals: Signals) -> int:
    """End the processes that COMMAND left running, and let its sent bytes arrive.

    Return how many bytes of TCP are still unsent or unacknowledged.
    """
    asked_s = time.monotonic()
    while end_processes(place.namespace, signal.SIGTERM) and time.monotonic() - asked_s < TERM_S:
        _pause(relay)
    unsent_bytes, moved_s = _unsent(place), time.monotonic()
    while unsent_bytes and signals.received is None and time.monotonic() - moved_s < STILL_S:
        _pause(relay)
        before, unsent_bytes = unsent_bytes, _unsent(place)
        moved_s = time.monotonic() if unsent_bytes != before else moved_s
    return unsent_bytes


def _pause(relay: Relay | None) -> None:
    until_s = time.monotonic() + LOOK_S
    while (rest_s := until_s - time.monotonic()) > 0:
        _wait(relay, rest_s, [])


def _unsent(place: Place) -> int:
    tables = [name for name in ("/proc/net/tcp", "/proc/net/tcp6") if Path(name).exists()]
    rows = [
        row.split()
        for row in execute(["ip", "netns", "exec", place.namespace, "cat", *tables]).splitlines()
    ]
    # Below the header row, field 3 is the state (0A: listening, where the queue has another
    # meaning), and field 4 is "tx_queue:rx_queue" in hexadecimal.
    return sum(
        int(row[4].partition(":")[0], 16) for row in rows if row[0] != "sl" and row[3] != "0A"
    )
