"""Topologies: what a file says, and one line for what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator import BadValue, parse_topology, read_topology
from emulator.kernel.commands import KernelWay
from emulator.lab.topology import LabBridge, LabHost, LabLink, LabTraffic
from emulator.lab.topology_file import changed
from emulator.profiles import link_profile

MS, MBIT = 1_000_000, 1_000_000
PAIR = [{"name": "a"}, {"name": "b"}]


def test_a_file_with_all_sections(tmp_path: Path) -> None:
    file = tmp_path / "my cell.toml"
    file.write_text(
        """
        seed = 3
        hosts = [{name = "server"}, {name = "edge-[1-2]"}, {name = "laptop", here = true}]
        bridges = [{name = "cell", up = "5mbit", down = "20mbit"}]
        [[links]]
        from = "edge-[1-2]"
        to = "cell"
        up = "2mbit"
        latency = "10ms"
        [[links]]
        name = "backbone"
        from = "cell"
        to = "server"
        rate = "1gbit"
        [[traffic]]
        from = "laptop"
        to = "server"
        rate = "1mbit"
        on = "2s"
        off = "500ms"
        """
    )
    found = read_topology(file)
    assert (found.name, found.seed) == ("my-cell", 3)
    assert found.hosts == (
        LabHost("server"),
        LabHost("edge-1"),
        LabHost("edge-2"),
        LabHost("laptop", here=True),
    )
    assert found.bridges == (LabBridge("cell", KernelWay(5 * MBIT), KernelWay(20 * MBIT)),)
    up, down = KernelWay(2 * MBIT, 10 * MS), KernelWay(None, 10 * MS)
    gbit = KernelWay(1000 * MBIT)
    assert found.links == (
        LabLink("edge-1-cell", "edge-1", "cell", up, down, delayed=True),
        LabLink("edge-2-cell", "edge-2", "cell", up, down, delayed=True),
        LabLink("backbone", "cell", "server", gbit, gbit),
    )
    assert found.traffic == (LabTraffic("laptop", "server", MBIT, 2000 * MS, 500 * MS),)


def test_a_profile_and_what_overrides_it() -> None:
    lte = link_profile("lte")
    table = {"from": "a", "to": "b", "profile": "lte", "down": "1mbit", "loss": "2%"}
    (link,) = parse_topology({"hosts": PAIR, "links": [table]}).links
    assert link.up == KernelWay(lte.up_bit_s, lte.latency_ns, lte.jitter_ns, 0.02)
    assert link.down == KernelWay(MBIT, lte.latency_ns, lte.jitter_ns, 0.02)


def content(**sections: Any) -> dict[str, Any]:
    return {"hosts": PAIR} | sections


def link(lower: str, upper: str, **more: Any) -> dict[str, Any]:
    return {"from": lower, "to": upper} | more


CELL = [{"name": "cell"}]
THREE = [{"name": "c1"}, {"name": "c2"}, {"name": "c3"}]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "no hosts: a lab needs at least one [[hosts]]"),
        (content(host=[]), "key 'host' does not exist: did you mean hosts? (valid: name, seed,"),
        (content(seed=-1), "seed -1: expected a whole number of 0 or more"),
        (content(hosts="a"), "hosts: expected tables, as in [[hosts]]"),
        (content(hosts=["a"]), "[[hosts]] number 1: expected a table with keys, found 'a'"),
        (content(hosts=[{}]), "[[hosts]] number 1: key 'name' is missing"),
        (content(hosts=[{"name": "a", "heer": True}]), "key 'heer' does not exist: did you mean"),
        (content(hosts=[{"name": "a", "here": 1}]), "here 1: expected true or false"),
        (content(hosts=[{"name": "a b"}]), "host or bridge 'a b': expected letters, digits"),
        (content(hosts=[{"name": "localhost"}]), "not localhost"),
        (content(hosts=[{"name": "a-[3-1]"}]), "the range is empty"),
        (content(hosts=[{"name": "h[1-255]"}]), "255 hosts: 254 is the maximum of one lab"),
        (
            content(hosts=[{"name": "h[1-33]"}], links=[link("h[1-16]", "h[1-32]")]),
            "512 links and bridges: 500 is the maximum of one lab",
        ),
        (content(hosts=[*PAIR, {"name": "A"}]), "host or bridge 'A' exists twice: expected"),
        (content(bridges=[{"name": "b"}]), "host or bridge 'b' exists twice"),
        (
            content(hosts=[{"name": "a", "here": True}, {"name": "b", "here": True}]),
            "hosts a and b are both here: at most one is this machine",
        ),
        (content(links=[link("a", "a")]), "link a-a: from and to are both a, a loop"),
        (content(links=[link("a", "bb")]), "link a-bb to: host or bridge 'bb' does not exist: did"),
        (
            content(links=[link("a", "b"), link("b", "a")]),
            "links a-b and b-a both join b and a: expected one",
        ),
        (
            content(bridges=CELL, links=[link("a", "cell"), link("b", "cell", name="a-cell")]),
            "link 'a-cell' exists twice; give one of them another name, with name = ...",
        ),
        (
            content(bridges=THREE, links=[link("c1", "c2"), link("c2", "c3"), link("c3", "c1")]),
            "bridges c1 - c2 - c3 - c1 form a loop: expected one way between two",
        ),
        (
            content(bridges=[{"name": "cell", "up": "1mbit"}], links=[link("a", "cell")]),
            "bridge cell: its shared rate needs a link above it, with from = 'cell'",
        ),
        (content(links=[link("a", "b", rate="2mbits")]), "number 1: rate '2mbits': unknown unit"),
        (content(links=[link("a", "b", rate="1mbit", up="1mbit")]), "rate is for both directions"),
        (content(links=[link("a", "b", profile="lt")]), "did you mean lte?"),
        (content(links=[link("a", "b", latency="30")]), "the unit is missing"),
        (content(links=[link("a", "b", rate=3)]), "rate 3: expected text in quotes"),
        (content(links=[link("a", "b", name="x[1-2]")]), "name stands for 2 names, from and to"),
        (content(traffic=[link("a", "c", rate="1mbit")]), "host 'c' does not exist"),
        (content(traffic=[link("a", "a", rate="1mbit")]), "traffic from a to itself"),
        (content(traffic=[link("a", "b", rate="1mbit", on="1s")]), "on and off: expected both"),
        (content(traffic=[link("a", "b")]), "[[traffic]] number 1: key 'rate' is missing"),
    ],
)
def test_what_makes_no_sense_is_one_line(found: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadValue) as error:
        parse_topology(found)
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        ("hosts = [", "not valid TOML"),
        ("seed = 1", "no hosts"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "lab.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadValue) as error:
        read_topology(file)
    assert str(error.value).startswith(f"{file}: ") and reason in str(error.value)


def test_what_a_link_is_set_to() -> None:
    way = KernelWay(2 * MBIT, 10 * MS)
    before = LabLink("x", "a", "b", way, way, delayed=True)
    after = changed(before, {"up": "none", "latency": "20ms"})
    assert (after.up, after.down) == (KernelWay(None, 20 * MS), KernelWay(2 * MBIT, 20 * MS))
    plain = LabLink("x", "a", "b")
    assert changed(plain, {"rate": "1mbit"}).down == KernelWay(MBIT)
    for said, reason in (
        ({"latency": "1ms"}, "link x: it was made without latency, jitter and loss"),
        ({"rat": "1mbit"}, "link x: key 'rat' does not exist: did you mean rate?"),
        ({}, "link x: nothing to set, expected one of up=2mbit"),
    ):
        with pytest.raises(BadValue) as error:
            changed(plain, said)
        assert reason in str(error.value)
