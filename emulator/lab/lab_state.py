"""The labs of this machine: what each has, in a file that other processes read and change.

The file exists while a lab runs. A lock protects its number, so that what a killed owner left is
recognised and removed by the next call.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from emulator.errors import BadValue, valid_name
from emulator.kernel.commands import KernelShape
from emulator.kernel.namespaces import (
    INTERFACE_FILES,
    NAMESPACE_FILES,
    Claims,
    end_processes,
    execute,
)
from emulator.lab.topology import Topology
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


def running() -> list[LabState]:
    """The labs that run, in order of their numbers. First remove what killed ones have left.

    Without root, nothing can be removed.
    """
    if os.geteuid() == 0:
        CLAIMS.sweep()
    return [load(number) for number in range(LABS) if LabNames(number).state_file.exists()]


def find(name: str | None = None) -> LabState:
    """The running lab ``name``; without a name that of EMULATOR_LAB, or else the only one.

    BadValue, in one line, if there is none or there are several.
    """
    labs = running()
    names = [lab.name for lab in labs]
    wanted = name or os.environ.get(ENVIRONMENT)
    if not labs:
        raise BadValue("no lab is running; start one with emulator lab run TOPOLOGY -- COMMAND")
    if wanted is not None:
        valid_name("lab", wanted, names)
        return labs[names.index(wanted)]
    if len(labs) > 1:
        raise BadValue(f"several labs are running ({', '.join(names)}): give --lab NAME")
    return labs[0]


def lab_namespace(host: str, lab: str | None = None) -> str | None:
    """The network namespace of a lab's host, for ``ip netns exec``; None if it is this machine.

    ``lab`` is the name of a running lab; without it, the environment variable EMULATOR_LAB or else
    the only lab counts. BadValue, with the nearest name, if there is none.
    """
    state = find(lab)
    return None if state.topology.host(host).here else state.names.namespace(host)


def free_name(wanted: str) -> str:
    """Return ``wanted``, followed by a number if a lab with this name runs."""
    taken = {lab.name for lab in running()}
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def clear(number: int) -> None:
    """Remove everything of a lab, whatever is left of it; end the processes of its namespaces."""
    names = LabNames(number)
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


CLAIMS = Claims("lab", LABS, clear)


def names_with(prefix: str, folder: Path) -> list[str]:
    """What begins with ``prefix`` in a folder that may be missing."""
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.startswith(prefix))
