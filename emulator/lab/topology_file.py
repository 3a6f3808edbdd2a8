"""Read a topology from TOML, or from a dict of the same form."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emulator.errors import BadValue, valid_name
from emulator.kernel.commands import KernelWay
from emulator.lab.topology import UNSHAPED, LabBridge, LabHost, LabLink, LabTraffic, Topology
from emulator.plain_text import read_text
from emulator.profile_table import LINKS
from emulator.profiles import link_profile
from emulator.ranges import expanded
from emulator.units import parse_duration, parse_rate

Table = Mapping[str, Any]
RATES = ("rate", "up", "down")
DELAYS = ("latency", "jitter", "loss")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "hosts": ("name", "here"),
    "bridges": ("name", *RATES),
    "links": ("name", "from", "to", "profile", *RATES, *DELAYS),
    "traffic": ("from", "to", "rate", "on", "off"),
}
_TOP = ("name", "seed", *_KEYS)


def read_topology(path: Path) -> Topology:
    """Read a TOML file. BadValue, with the file's name, if it is none or does not make sense."""
    try:
        content = tomllib.loads(read_text(path))
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadValue(f"{path}: not valid TOML: {error}") from None
    try:
        return parse_topology({"name": _stem(path)} | content)
    except BadValue as error:
        raise BadValue(f"{path}: {error}") from None


def parse_topology(content: Table) -> Topology:
    """Make a topology of a dict with the keys of the file. BadValue if it does not make sense."""
    for key in content:
        valid_name("key", key, _TOP)
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise BadValue(f"seed {seed!r}: expected a whole number of 0 or more")
    return Topology(
        hosts=tuple(_each(content, "hosts", _hosts)),
        bridges=tuple(_each(content, "bridges", _bridges)),
        links=tuple(_each(content, "links", _links)),
        traffic=tuple(_each(content, "traffic", _traffic)),
        name=content.get("name", "lab"),
        seed=seed,
    )


def changed(link: LabLink, said: Mapping[str, str]) -> LabLink:
    """Return ``link`` with other values: keys of RATES and DELAYS; "none" for a rate unshapes.

    BadValue for what is wrong, and for a delay of a link that was made without.
    """
    for key in said:
        valid_name(f"link {link.name}: key", key, (*RATES, *DELAYS))
    if not said:
        raise BadValue(
            f"link {link.name}: nothing to set, expected one of {', '.join(said_keys())}"
        )
    up, down = _ways(said, (link.up, link.down))
    if not link.delayed and any(key in said for key in DELAYS):
        raise BadValue(
            f"link {link.name}: it was made without latency, jitter and loss; give it latency ="
            ' "0ms" in the topology to change them later'
        )
    return replace(link, up=up, down=down)


def said_keys() -> list[str]:
    """Examples of what a link may be set to."""
    return ["up=2mbit", "down=20mbit", "rate=none", "latency=30ms", "jitter=5ms", "loss=1%"]


def _stem(path: Path) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in path.stem)


def _each(content: Table, section: str, make: Callable[[Table], Sequence[Any]]) -> list[Any]:
    tables = content.get(section, [])
    if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
        raise BadValue(f"{section}: expected tables, as in [[{section}]]")
    made: list[Any] = []
    for number, table in enumerate(tables, 1):
        where = f"[[{section}]] number {number}"
        if not isinstance(table, Mapping):
            raise BadValue(f"{where}: expected a table with keys, found {table!r}")
        try:
            for key in table:
                valid_name("key", key, _KEYS[section])
            made += make(table)
        except BadValue as error:
            raise BadValue(f"{where}: {error}") from None
    return made


def _text(table: Table, key: str) -> str:
    if key not in table:
        raise BadValue(f"key {key!r} is missing")
    if not isinstance(table[key], str):
        raise BadValue(f"{key} {table[key]!r}: expected text in quotes")
    return str(table[key])


def _hosts(table: Table) -> list[LabHost]:
    here = table.get("here", False)
    if not isinstance(here, bool):
        raise BadValue(f"here {here!r}: expected true or false")
    return [LabHost(name, here) for name in expanded(_text(table, "name"))]


def _bridges(table: Table) -> list[LabBridge]:
    up, down = _ways(table, (UNSHAPED, UNSHAPED))
    return [LabBridge(name, up, down) for name in expanded(_text(table, "name"))]


def _links(table: Table) -> list[LabLink]:
    pairs = [
        (lower, upper)
        for lower in expanded(_text(table, "from"))
        for upper in expanded(_text(table, "to"))
    ]
    names = expanded(_text(table, "name")) if "name" in table else [f"{a}-{b}" for a, b in pairs]
    if len(names) != len(pairs):
        raise BadValue(f"name stands for {len(names)} names, from and to for {len(pairs)} links")
    profile, start = table.get("profile"), (UNSHAPED, UNSHAPED)
    if profile is not None:
        known = link_profile(_text(table, "profile"))
        delays = (known.latency_ns, known.jitter_ns, known.loss)
        start = (KernelWay(known.up_bit_s, *delays), KernelWay(known.down_bit_s, *delays))
    up, down = _ways(table, start)
    delayed = profile is not None or any(key in table for key in DELAYS)
    return [LabLink(name, *pair, up, down, delayed) for name, pair in zip(names, pairs)]


def _traffic(table: Table) -> list[LabTraffic]:
    times = [table.get(key) for key in ("on", "off")]
    if (times[0] is None) != (times[1] is None):
        raise BadValue("on and off: expected both or none")
    spans = [None if time is None else parse_duration(str(time)) for time in times]
    if 0 in spans:
        raise BadValue("on and off: expected times above 0")
    rate_bit_s = parse_rate(_text(table, "rate"))
    return [
        LabTraffic(sender, receiver, rate_bit_s, *spans)
        for sender in expanded(_text(table, "from"))
        for receiver in expanded(_text(table, "to"))
    ]


def _ways(table: Table, ways: tuple[KernelWay, KernelWay]) -> tuple[KernelWay, KernelWay]:
    """``ways`` (up, down) with the rates and delays that ``table`` gives."""
    if "rate" in table and ("up" in table or "down" in table):
        raise BadValue("rate is for both directions: expected rate, or up and down")
    # Any profile serves to check the texts.
    delays = {key: table[key] for key in DELAYS if key in table}
    read = link_profile(next(iter(LINKS)), **delays)
    fields = {key: _FIELDS[key] for key in delays}
    made = []
    for direction, way in zip(("up", "down"), ways):
        values: dict[str, Any] = {name: getattr(read, name) for name in fields.values()}
        for key in ("rate", direction):
            if key in table:
                text = _text(table, key)
                values["rate_bit_s"] = None if text == "none" else parse_rate(text)
        made.append(replace(way, **values))
    return made[0], made[1]


_FIELDS = {"latency": "latency_ns", "jitter": "jitter_ns", "loss": "loss"}
