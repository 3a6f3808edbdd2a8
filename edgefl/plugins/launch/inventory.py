"""The inventory: a TOML file with the hosts of a run, and its edges.

The text below each key is its entry in the generated reference
(docs/reference/generated/inventory.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from edgefl.config.section import EDGE_ID, PATTERNS, Loc, Section, Source, check_numbers, validated
from edgefl.config.toml import BadTOML, parsed
from edgefl.errors import UserError, as_user_error, near_file, nearest
from emulator import profiles
from emulator.plain_text import read_text
from emulator.ranges import MOST_NAMES, expanded

Via = Literal["ssh", "netns", "local"]
SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Host:
    """One machine, and the edges that run on it.

    ``identity`` and ``known_hosts`` are files of this machine; ``python``, ``venv``, ``data`` and
    ``folder`` are paths on the host, where "~/" at the start is the home folder. ``port`` is that
    of ssh; None: that of ``~/.ssh/config``, else 22. ``folder`` is different for each host that
    shares this machine's files.
    """

    name: str
    via: Via = "ssh"
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    known_hosts: Path | None = None
    python: str | None = None
    venv: str | None = None
    edges: tuple[str, ...] = ()
    links: str | None = None
    devices: str | None = None
    data: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    allow_code: bool = False
    folder: str = "~/.edgefl"

    @property
    def interpreter(self) -> str:
        """The Python that edges of this host use.

        Without ``python`` it is that of ``environment``. With it, ``edgefl hosts install`` may have
        made an environment on top of it: ``installer.interpreter`` asks the host.
        """
        return self.python or f"{self.environment}/bin/python"

    @property
    def environment(self) -> str:
        """The folder of the environment that ``edgefl hosts install`` makes."""
        return self.venv or f"{self.folder}/venv"


# ---------------------------------------------------------------------- the file
NATIVE = "native"
HOST_NAME = r"^[A-Za-z0-9:]([A-Za-z0-9_.:%-]{0,252}[A-Za-z0-9])?$"
MOST_EDGES = 100_000  # on one host
SSH_KEYS = ("user", "port", "identity", "known_hosts")  # have a meaning with via = "ssh" alone
# other names for a key: those of ssh, Ansible, Dask and Ray
ALIASES = {
    "address": "host",
    "hostname": "host",
    "name": "host",
    "ip": "host",
    "username": "user",
    "ssh_user": "user",
    "key": "identity",
    "key_file": "identity",
    "identity_file": "identity",
    "private_key": "identity",
    "count": "edges",
    "workers": "edges",
    "remote_python": "python",
    "environment": "env",
    "type": "via",
}
Text = Annotated[str, Field(min_length=1)]


def _under_home(path: str) -> str:
    """Commands start in the home folder, but agents and coordinators work in folders of theirs."""
    return path if path == "~" or path.startswith(("/", "~/")) else f"~/{path}"


HostPath = Annotated[Text, AfterValidator(_under_home)]


class Login(Section):
    """How to reach a host, and which Python it has."""

    via: Via = "ssh"
    """How the host is reached. `"ssh"`: by OpenSSH's protocol; `~/.ssh/config` applies. `"netns"`:
    a network namespace of this machine, made by `emulator lab` or `ip netns add` (needs root).
    `"local"`: this machine.
    """
    user: Text | None = None
    """Name of the user on the host (ssh). Default: that of `~/.ssh/config`, else yours."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port of the ssh server. Default: that of `~/.ssh/config`, else 22."""
    identity: Text | None = None
    """File with the private key for ssh, relative to the inventory's directory. Default: the keys
    of `~/.ssh` and of a running ssh-agent.
    """
    known_hosts: Text | None = None
    """File with the keys of known hosts, relative to the inventory's directory; accepted keys are
    added to it. Default: `~/.ssh/known_hosts`.
    """
    python: Text | None = None
    """Python on the host whose packages edges use, such as one that has torch already. `edgefl
    hosts install` does not change it: what it lacks goes into an environment on top, in `folder`.
    Default: `python3`, of whose packages none are used; with `via = "netns"` or `"local"`, the
    Python that runs this command.
    """
    venv: Text | None = None
    """Virtual environment of the edges on the host, which `edgefl hosts install` makes. Default:
    `venv` in `folder`. Give `python` or `venv`, not both.
    """
    folder: HostPath = "~/.edgefl"
    """Work folder on the host, for the environment, keys, shares of the data and logs. A relative
    path begins in the home folder.
    """

    @model_validator(mode="after")
    def _keys_fit(self) -> Login:
        if self.python is not None and self.venv is not None:
            raise ValueError("venv: expected python or venv, found both")
        key = next((key for key in SSH_KEYS if getattr(self, key) is not None), None)
        if self.via != "ssh" and key is not None:
            raise ValueError(f'{key}: expected only with via = "ssh", found "{self.via}"')
        return self


class CoordinatorHost(Login):
    """Where the coordinator runs. Default: in the process that launches the run."""

    via: Via = "local"
    """How the coordinator's host is reached. `"local"`: the coordinator runs here. `"ssh"` and
    `"netns"`: as for other hosts; then `host` is required.
    """
    host: str | None = Field(None, pattern=HOST_NAME)
    """Name or address of the coordinator's host. Not used with `via = "local"`."""
    address: str | None = Field(None, pattern=HOST_NAME)
    """Address at which edges reach the coordinator. Default: found for each host."""
    listen_port: int = Field(0, ge=0, le=65535)
    """TCP port on which the coordinator listens for edges; 0: any free port here, 7700 on another
    host.
    """
    allow_code: bool = False
    """Whether a coordinator on another host may get and run Python files that the config names."""

    @model_validator(mode="after")
    def _has_a_host(self) -> CoordinatorHost:
        if self.via != "local" and self.host is None:
            raise ValueError(f'host: missing; via = "{self.via}" needs it')
        return self


class HostDefaults(Login):
    """Values for all hosts that do not have the key themselves."""

    edges: int = Field(1, ge=1, le=MOST_EDGES)
    """Number of edges on the host; many share a process (`edges.per_process`). The id of a single
    edge is the host's name, where other characters than a-z, 0-9, `_` and `-` become `-`; those of
    several end in -1, -2, ...
    """
    links: Text | None = None
    """Links of the host's edges: a link profile such as `"lte"` (`emulator profiles` lists them),
    or `"native"`: the real network without shaping. Default: those of the config.
    """
    devices: Text | None = None
    """Devices of the host's edges: a device profile such as `"pi4"`, whose speed each edge then
    has, or `"native"`: the real speed of the hardware. Default: those of the config.
    """
    data: HostPath | None = None
    """Directory with the data set on the host; a relative path begins in the home folder. Default:
    edges get their shares of the data sent.
    """
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the host's edges. Those of `[defaults]` are added."""
    allow_code: bool = False
    """Whether the host's edges may get and run Python files that the config names."""

    @model_validator(mode="after")
    def _profiles_exist(self) -> HostDefaults:
        for key, known in (("links", profiles.link_profile), ("devices", profiles.device_profile)):
            name = getattr(self, key)
            if name is not None and name != NATIVE:
                try:
                    known(name)
                except ValueError as error:
                    raise ValueError(f'{key}: {error}, or "{NATIVE}"') from None
        wrong = next((key for key in self.env if not re.fullmatch(r"[A-Za-z_]\w*", key)), None)
        if wrong is not None:
            raise ValueError(f"env: expected a name of letters, digits and _, found {wrong!r}")
        return self


class HostEntry(HostDefaults):
    """A host, or several that differ only in their number."""

    host: Text
    """Name or address of the host; `"pi-[1-8]"` or `"10.0.0.[1-4,9]"` stand for several, and zeros
    in front are kept: `"pi-[01-12]"`. With `via = "netns"` it is a host of a
    running `emulator lab`, or the name of a namespace.
    """
    names: tuple[Annotated[str, Field(pattern=EDGE_ID)], ...] = Field((), strict=False)
    """Ids of the host's edges, instead of `edges`."""

    @model_validator(mode="after")
    def _one_count(self) -> HostEntry:
        if self.names and "edges" in self.model_fields_set:
            raise ValueError("names: expected edges or names, found both")
        return self


class InventoryFile(Section):
    """The tables of an inventory."""

    coordinator: CoordinatorHost = CoordinatorHost()
    defaults: HostDefaults = HostDefaults()
    hosts: tuple[HostEntry, ...] = Field(min_length=1, strict=False)


@dataclass(frozen=True, slots=True)
class CoordinatorPlace:
    """Where the coordinator runs: its host, the address for edges (None: to be found), its port."""

    host: Host
    address: str | None
    listen_port: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a run, ranges expanded, in the order of the file."""

    path: Path
    coordinator: CoordinatorPlace
    hosts: tuple[Host, ...]

    def edge_hosts(self) -> dict[str, Host]:
        """Map each edge id to its host, in order."""
        return {edge: host for host in self.hosts for edge in host.edges}

    def all_hosts(self) -> list[Host]:
        """Every host once: that of the coordinator first, unless it is this machine."""
        own = self.coordinator.host
        known = {host.name for host in self.hosts}
        return [*([] if own.via == "local" or own.name in known else [own]), *self.hosts]


def load_inventory(path: Path) -> Inventory:
    """Read an inventory. UserError, in one line, for the first problem; nothing is contacted."""
    tables, source = _read(path), Source(str(path), near=_near)
    check_numbers(tables, source)
    _check_hosts(tables, source)
    file = validated(InventoryFile, tables, source)
    hosts: list[Host] = []
    for index, entry in enumerate(tables["hosts"]):
        loc: Loc = ("hosts", index)
        merged = validated(HostEntry, _merged(tables.get("defaults", {}), entry), source, loc)
        hosts += [
            _host(merged, name, loc, source, _edge_ids(merged, name, loc, source))
            for name in _names(merged, loc, source)
        ]
        if len(hosts) > MOST_NAMES:
            raise source.error(loc, f"expected at most {MOST_NAMES} hosts in all")
    _check_names_differ(hosts, source)
    own = file.coordinator
    place = _host(own, own.host or "coordinator", ("coordinator",), source)
    place = replace(place, allow_code=own.allow_code or own.via == "local")
    return Inventory(path, CoordinatorPlace(place, own.address, own.listen_port), tuple(hosts))


def _check_hosts(tables: Mapping[str, Any], source: Source) -> None:
    """Say in plain words what is wrong with files that have no array of hosts."""
    hosts = tables.get("hosts")
    if hosts is None and "strategies" in tables:
        raise source.error((), "is the config of an experiment, expected an inventory of hosts")
    if hosts is None or isinstance(hosts, dict):
        wrong = "[hosts]" if hosts is not None else "none"
        raise source.error(("hosts",), f"expected a table [[hosts]] for each host, found {wrong}")


def _read(path: Path) -> dict[str, Any]:
    try:
        with as_user_error():
            text = read_text(path)
        return parsed(text)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file{near_file(path, '*.toml')}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except BadTOML as error:
        raise UserError(f"{path}: {error}") from error


def _near(key: str, valid: Sequence[str]) -> str:
    meant = ALIASES.get(key.lower())
    return f" (nearest: {meant!r})" if meant in valid else nearest(key, valid)


def _merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the file with the defaults that apply to it."""
    kept = dict(defaults)
    if {"python", "venv"} & entry.keys():
        kept = {key: value for key, value in kept.items() if key not in ("python", "venv")}
    if entry.get("via", kept.get("via", "ssh")) != "ssh":
        kept = {key: value for key, value in kept.items() if key not in SSH_KEYS}
    if "names" in entry:
        kept.pop("edges", None)
    return {**kept, **entry, "env": {**kept.get("env", {}), **entry.get("env", {})}}


def _names(entry: HostEntry, loc: Loc, source: Source) -> list[str]:
    """The names for which an entry stands."""
    try:
        names = expanded(entry.host)
    except ValueError as error:
        raise source.error((*loc, "host"), str(error)) from error
    wrong = next((name for name in names if not re.fullmatch(HOST_NAME, name)), None)
    if wrong is not None:
        raise source.error((*loc, "host"), f"expected a name or an address, found {wrong!r}")
    if entry.names and len(names) > 1:
        raise source.error(
            (*loc, "names"), f"expected a single host, found {len(names)} ({entry.host})"
        )
    return names


def _host(login: Login, name: str, loc: Loc, source: Source, edges: tuple[str, ...] = ()) -> Host:
    """The host of this name, with the keys that ``login`` has."""
    base = Path(source.file).parent
    identity = None if login.identity is None else base / Path(login.identity).expanduser()
    if identity is not None and not identity.is_file():
        near = near_file(identity, "*")
        raise source.error((*loc, "identity"), f"no file {identity}{near}")
    known = None if login.known_hosts is None else base / Path(login.known_hosts).expanduser()
    if known is not None and not known.parent.is_dir():
        raise source.error((*loc, "known_hosts"), f"no directory {known.parent}")
    keys = {field.name for field in fields(Host)}
    values = {key: value for key, value in login if key in keys}
    if login.via != "ssh":  # these hosts share the files of this machine
        values["folder"] = f"{login.folder}/{name}"
        if login.venv is None:
            values["python"] = login.python or sys.executable
    own = {"name": name, "identity": identity, "known_hosts": known, "edges": edges}
    return Host(**values | own)


def _edge_ids(entry: HostEntry, name: str, loc: Loc, source: Source) -> tuple[str, ...]:
    if entry.names:
        return entry.names
    own = re.sub(r"[^a-z0-9_-]", "-", name.lower())
    numbers = range(1, entry.edges + 1)
    ids = (own,) if entry.edges == 1 else tuple(f"{own}-{number}" for number in numbers)
    if not all(re.fullmatch(EDGE_ID, edge) for edge in ids):
        raise source.error(
            (*loc, "host"),
            f"no edge id can be made of {name!r} (it is {PATTERNS[EDGE_ID]}): give names",
        )
    return ids


def _check_names_differ(hosts: Sequence[Host], source: Source) -> None:
    owners: dict[str, str] = {}
    names: set[str] = set()
    for host in hosts:
        if host.name in names:
            raise source.error(("hosts",), f"host {host.name!r} is given twice")
        names.add(host.name)
        for edge in host.edges:
            owner = owners.setdefault(edge, host.name)
            if host.edges.count(edge) > 1:
                raise source.error(("hosts",), f"edge {edge!r} is twice on host {host.name!r}")
            if owner != host.name:
                where = f"{owner!r} and {host.name!r}"
                raise source.error(("hosts",), f"edge {edge!r} is on hosts {where}: give names")
