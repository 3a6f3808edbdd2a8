"""What ``emulator lab run``, ``up`` and ``down`` do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emulator.errors import BadValue
from emulator.host import host_facts
from emulator.kernel.probe import require_tools, tools
from emulator.kernel.run import Signals
from emulator.lab.attached import attach
from emulator.lab.lab_relay import own_environment
from emulator.lab.running import Lab

LOOK_S = 0.2
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
        time.sleep(LOOK_S / 4)
    return state.name


def _carry(lab: Lab, command: list[str], on: str | None, signals: Signals) -> int | None:
    """Wait for the command, a signal, or a failure of the lab; return the command's status."""
    if not command:
        while signals.received is None and not lab.failed:
            time.sleep(LOOK_S)
        return None
    machine = lab.host(on) if on else None
    environment = os.environ | {"EMULATOR_LAB": lab.name}
    process = machine.start(command) if machine else subprocess.Popen(command, env=environment)
    signals.pass_to(process)
    while True:
        try:
            status = process.wait(LOOK_S)
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
