"""What an environment on a host has and needs: decisions without input or output.

An edge runs in an environment of its own, ``venv`` of the inventory. With ``python`` it is a layer
on top of that Python's packages: these are used where their versions fit, and not changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from rich.filesize import decimal

from edgefl.launch.host import Host
from edgefl.launch.wheels import MACHINES, OwnWheel, Target

OLDEST = (3, 11)
STAMP = ".edgefl-install"  # in the environment: the fingerprint of what was installed
MADE = ".edgefl-made"  # in an environment that `edgefl hosts install` made: from which Python
LAYER = "edgefl_layer.pth"  # in site-packages: the packages of another environment
LARGE = ("torch",)  # packages that a layer takes from below in another than the pinned version


# Numbers that a host tells: larger ones are no answer, and would take memory to work with.
VersionPart = Annotated[int, Field(ge=0, le=999)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True, slots=True)
class Facts:
    """What ``environment_probe`` tells about a Python on a host."""

    python: tuple[VersionPart, VersionPart, VersionPart]
    implementation: str
    machine: str
    system: str
    bits: int
    libc: tuple[str, str]
    executable: str
    in_venv: bool
    stamp: str = ""
    made: str = ""
    free_bytes: Count = 0
    can_make_environments: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    same_code: bool = False
    site: tuple[str, ...] = ()

    @classmethod
    def parsed(cls, text: bytes) -> Facts:
        """Parse the probe's output. ValueError if it is something else."""
        found: Any = json.loads(text)
        names = {each.name for each in fields(cls)}
        if not isinstance(found, dict) or not found.keys() <= names:
            raise ValueError("unexpected keys")
        return TypeAdapter(cls).validate_python(found)

    @property
    def target(self) -> Target:
        """What wheels must fit. ValueError if the C library is unknown."""
        name, version = self.libc
        parts = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", version, re.ASCII)
        if name != "glibc" or parts is None:
            raise ValueError(f"expected a Linux with glibc, found {name or 'another C library'}")
        return Target(self.machine, self.python[:2], (int(parts[1]), int(parts[2])))


def refusal(facts: Facts, exists: bool) -> str | None:
    """Return why this Python cannot have an environment for edges; None if it can.

    ``exists``: there is an environment already.
    """
    version = ".".join(map(str, facts.python))
    if facts.implementation != "cpython" or facts.python[:2] < OLDEST:
        return (
            f"{facts.executable} is {facts.implementation} {version}, expected CPython"
            f" {OLDEST[0]}.{OLDEST[1]} or newer: name one with `python` in the inventory"
        )
    if facts.system != "Linux":
        return f"the system is {facts.system}, expected Linux"
    if facts.bits < 64 or facts.machine not in MACHINES:
        return (
            f"there is no torch for {facts.machine} with a {facts.bits}-bit Python; expected"
            f" 64 bits and {' or '.join(MACHINES)}"
        )
    if not (exists or facts.can_make_environments):
        major, minor, _ = facts.python
        return (
            f"{facts.executable} cannot make environments: on Debian, Ubuntu and Raspberry Pi OS,"
            f" `sudo apt install python{major}.{minor}-venv`"
        )
    try:
        facts.target  # noqa: B018  # it raises
    except ValueError as error:
        return str(error)
    return None


def fingerprint(own: OwnWheel, facts: Facts, host: Host) -> str:
    """Return a digest of what the environment is made from: code, pins, Python, layer below.

    The pins are a file of the wheel.
    """
    below = sorted(facts.packages.items()) if host.python else []
    parts = [own.digest(), facts.python, facts.machine, facts.executable, below]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def made_from(facts: Facts, host: Host) -> str:
    """Return what the environment is based on, as it is kept in the file ``MADE``."""
    return f"{facts.executable} {'with its packages' if host.python else 'alone'}"


def kept(facts: Facts, pins: Mapping[str, str], ranges: Mapping[str, str]) -> dict[str, str]:
    """Return the packages below a layer that are used.

    These are the ones of the pinned version, and a torch within ``ranges`` (name -> specifier).
    """
    from packaging.specifiers import SpecifierSet

    return {
        name: version
        for name, version in facts.packages.items()
        if version.partition("+")[0] == pins.get(name)
        or (name in LARGE and SpecifierSet(ranges.get(name, "")).contains(version))
    }


def space_needed(unpacked: Iterable[int], packed: Iterable[int]) -> int:
    """Return bytes for wheels and what is installed from them, with a tenth more for bytecode."""
    return round(1.1 * sum(unpacked)) + sum(packed)


def no_room(facts: Facts, needed: int) -> str | None:
    """Return why the files do not fit; None if they do."""
    if facts.free_bytes >= needed:
        return None
    return f"{decimal(facts.free_bytes)} free on its disk, expected {decimal(needed)}"
