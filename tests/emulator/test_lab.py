"""Labs without a system: topologies, the commands word for word, what a system allows, the relay.

One line says what makes no sense.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import command_lines, text
from paths import ROOT

from emulator import BadValue, Lab, Latency, parse_topology, read_topology
from emulator.cli import run
from emulator.errors import Unavailable
from emulator.lab import attached, commands
from emulator.lab.attached import LabConnection, LabState
from emulator.lab.commands import batches
from emulator.lab.relay import DelayLine, line
from emulator.lab.system import System, choose, require_tools
from emulator.lab.topology import (
    UNSHAPED,
    KernelShape,
    KernelWay,
    LabBridge,
    LabHost,
    LabLink,
    LabTraffic,
    changed,
)
from emulator.lab.wiring import LabNames, Wiring, wiring
from emulator.units import FOREVER

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


def content(**sections: Any) -> dict[str, Any]:
    return {"hosts": PAIR} | sections


def link(lower: str, upper: str, **more: Any) -> dict[str, Any]:
    return {"from": lower, "to": upper} | more


THREE = [{"name": "c1"}, {"name": "c2"}, {"name": "c3"}]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "no hosts: a lab needs at least one [[hosts]]"),
        (content(host=[]), "key 'host' does not exist: did you mean hosts? (valid: name, seed,"),
        (content(seed=-1), "seed -1: expected a whole number, 0 or more"),
        (content(hosts=["a"]), "[[hosts]] number 1: expected a table with keys, found 'a'"),
        (content(hosts=[{}]), "[[hosts]] number 1: key 'name' is missing"),
        (content(hosts=[{"name": "a", "here": 1}]), "here 1: expected true or false"),
        (content(hosts=[{"name": "a b"}]), "host or bridge 'a b': expected letters, digits"),
        (content(hosts=[{"name": "h[1-255]"}]), "255 hosts: 254 is the maximum of one lab"),
        (content(hosts=[*PAIR, {"name": "A"}]), "host or bridge 'A' exists twice: expected"),
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
            content(bridges=THREE, links=[link("c1", "c2"), link("c2", "c3"), link("c3", "c1")]),
            "link c3-c1: bridges c3 and c1 form a loop with the links above",
        ),
        (
            content(bridges=[{"name": "cell", "up": "1mbit"}], links=[link("a", "cell")]),
            "bridge cell: its shared rate needs a link above it, with from = 'cell'",
        ),
        (content(links=[link("a", "b", rate="2mbits")]), "number 1: rate '2mbits': unknown unit"),
        (content(links=[link("a", "b", rate="1mbit", up="1mbit")]), "rate is for both directions"),
        (content(links=[link("a", "b", profile="lt")]), "did you mean lte?"),
        (content(links=[link("a", "b", name="x[1-2]")]), "name stands for 2 names, from and to"),
        (content(traffic=[link("a", "b", rate="1mbit", on="1s")]), "on and off: expected both"),
    ],
)
def test_what_makes_no_sense_is_one_line(found: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadValue) as error:
        parse_topology(found)
    assert reason in str(error.value) and "\n" not in str(error.value)


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


NAMES = LabNames(3)


def wired(fair: bool = True, **content: Any) -> Wiring:
    return wiring(parse_topology(content), NAMES, fair)


def names(*words: str) -> list[dict[str, str]]:
    return [{"name": word} for word in words]


def between(lower: str, upper: str, **more: str) -> dict[str, str]:
    return {"from": lower, "to": upper} | more


def shapes(plan: Wiring, shaper: str = "htb", delay: str = "none") -> dict[str, KernelShape]:
    return {w.link.name: KernelShape(w.link.up, w.link.down, shaper, delay) for w in plan.wires}


def words(steps: list[list[str]]) -> list[str]:
    return [" ".join(step) for step in steps]


TWO = wired(hosts=names("a", "b"), links=[between("a", "b", up="2mbit")])
CELL = wired(
    hosts=names("server", "e1", "e2"),
    bridges=[{"name": "cell", "up": "9mbit"}],
    links=[between("e[1-2]", "cell"), between("cell", "server")],
)


@pytest.mark.parametrize(
    ("way", "shaper", "delay", "expected"),
    [
        (
            KernelWay(100 * MBIT, 30 * MS, loss=0.01),
            "tbf",
            "netem",
            [
                "root handle 1: tbf rate 104558012bit burst 13070 limit 1514000",
                "parent 1:1 handle 10: netem limit 6859 delay 0.030000000s loss 1.000000%",
            ],
        ),
        (
            KernelWay(None, 30 * MS),
            "htb",
            "netem",
            ["root handle 10: netem limit 59593 delay 0.030000000s"],
        ),
        (KernelWay(None, 30 * MS), "htb", "relay", []),
        (
            KernelWay(10 * MBIT, 30 * MS),
            "tbf",
            "relay",
            ["root handle 1: tbf rate 10455802bit burst 1600 limit 1514000"],
        ),
    ],
)
def test_the_qdiscs_of_one_direction(
    way: KernelWay, shaper: str, delay: str, expected: list[str]
) -> None:
    steps = commands.shaping(TWO.wires[0], KernelShape(way, UNSHAPED, shaper, delay))
    assert words(steps) == [f"tc -n emulator-lab3-a qdisc add dev eth0 {rest}" for rest in expected]


def test_this_machine_has_an_interface_and_no_namespace() -> None:
    plan = wired(hosts=[{"name": "a"}, {"name": "me", "here": True}], links=[between("a", "me")])
    steps = words(commands.build(plan, shapes(plan)))
    assert [step for step in steps if "netns" in step] == [
        "ip netns add emulator-lab3-a",
        "ip link add name eth0 netns emulator-lab3-a type veth peer name lab3-0b",
    ]
    assert "ip route replace 198.18.3.1/32 dev lab3-0b src 198.18.3.2" in steps
    assert plan.routers == []


def test_a_bridge_with_a_shared_rate_word_for_word() -> None:
    steps = words(commands.build(CELL, shapes(CELL)))
    inside = "ip -n emulator-lab3-cell link"
    assert [
        step for step in steps if " type " in step or ("master" in step and "fdb" not in step)
    ] == [
        f"{inside} add name low type bridge stp_state 0 mcast_snooping 0",
        f"{inside} add name high type bridge stp_state 0 mcast_snooping 0",
        "ip link add name eth0 netns emulator-lab3-e1 type veth peer name port0 netns"
        " emulator-lab3-cell",
        f"{inside} set dev port0 master low",
        "ip link add name eth0 netns emulator-lab3-e2 type veth peer name port1 netns"
        " emulator-lab3-cell",
        f"{inside} set dev port1 master low",
        "ip link add name port2 netns emulator-lab3-cell type veth peer name eth0 netns"
        " emulator-lab3-server",
        f"{inside} set dev port2 master high",
        "ip link add name up netns emulator-lab3-cell type veth peer name down netns"
        " emulator-lab3-cell",
        f"{inside} set dev up master low",
        f"{inside} set dev down master high",
    ]
    queues = [step.removeprefix("tc -n emulator-lab3-cell ") for step in steps if "tc" in step[:2]]
    shared = "htb rate {} ceil 9410221bit burst 1600 cburst 1600 quantum 1514"
    third = shared.format("3136741bit")
    assert queues == [
        "qdisc add dev up root handle 1: htb default 2",
        f"class add dev up parent 1: classid 1:1 {shared.format('9410221bit')}",
        f"class add dev up parent 1:1 classid 1:2 {third}",
        f"class add dev up parent 1:1 classid 1:3 {third}",
        f"class add dev up parent 1:1 classid 1:4 {third}",
        "qdisc add dev up parent 1:2 handle 12: pfifo limit 1000",
        "qdisc add dev up parent 1:3 handle 13: pfifo limit 1000",
        "filter add dev up parent 1: protocol ip prio 1 u32 match ip src 198.18.3.2/32 flowid 1:3",
        "qdisc add dev up parent 1:4 handle 14: pfifo limit 1000",
        "filter add dev up parent 1: protocol ip prio 1 u32 match ip src 198.18.3.3/32 flowid 1:4",
    ]


def test_without_htb_or_filters_a_bridge_has_one_queue() -> None:
    plan = wired(
        fair=False,
        hosts=names("a", "b"),
        bridges=[{"name": "x", "up": "9mbit"}],
        links=[between("a", "x"), between("x", "b")],
    )
    steps = commands.shaping(plan.wire("x"), shapes(plan, "tbf")["x"])
    assert words(steps) == [
        "tc -n emulator-lab3-x qdisc add dev up root handle 1: tbf rate 9410221bit burst 1600"
        " limit 1514000"
    ]


def test_hosts_between_others_forward() -> None:
    plan = wired(hosts=names("a", "b", "c", "d"), links=[between("a", "b"), between("b", "c")])
    steps = words(commands.build(plan, shapes(plan)))
    assert plan.routers == ["b"]
    assert (
        "ip -n emulator-lab3-a route replace 198.18.3.3/32 via 198.18.3.2 dev eth0 src 198.18.3.1"
        " onlink"
    ) in steps
    assert steps[-1].startswith(
        "ip netns exec emulator-lab3-b sh -c echo 1 >/proc/sys/net/ipv4/ip_"
    )
    assert plan.routes["d"] == () and "d" not in {r.target for r in plan.routes["a"]}


@settings(max_examples=40)
@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=15))
@pytest.mark.slow
def test_routes_reach_exactly_what_is_connected(pairs: set[tuple[int, int]]) -> None:
    joined = {(a, b) for a, b in pairs if a < b}
    hosts = [f"h{number}" for number in range(7)]
    plan = wired(hosts=names(*hosts), links=[between(f"h{a}", f"h{b}") for a, b in joined])
    near = {host: {host} for host in hosts}
    for _ in hosts:
        for a, b in joined:
            near[f"h{a}"] |= near[f"h{b}"]
            near[f"h{b}"] |= near[f"h{a}"]
    for source, target in product(hosts, hosts):
        at, steps = source, 0
        while at != target and steps < 8:
            hops = [r.next_hop.node for r in plan.routes[at] if r.target == target]
            if not hops:
                break
            at, steps = hops[0], steps + 1
        assert (at == target) == (target in near[source])


def test_a_link_is_found_by_its_name_its_host_and_its_bridge() -> None:
    assert [CELL.wire(name).link.name for name in ("e1-cell", "e1", "cell", "server")] == [
        "e1-cell",
        "e1-cell",
        "cell",
        "cell-server",
    ]
    three = wired(hosts=names("a", "b", "c"), links=[between("a", "b"), between("a", "c")])
    for name, reason in (
        ("a", "host a has several links, give one of a-b, a-c"),
        ("a-bb", "link 'a-bb' does not exist: did you mean a-b?"),
    ):
        with pytest.raises(BadValue, match=reason):
            three.wire(name)


# Changes


def changes(before: KernelShape, after: KernelShape, plan: Wiring = TWO) -> list[str]:
    steps = commands.change(plan.wires[-1], before, after)
    return [step.replace("tc -n emulator-lab3-", "") for step in words(steps)]


@pytest.mark.parametrize(
    ("old", "new", "shaper", "delay", "expected"),
    [
        (
            KernelWay(2 * MBIT),
            KernelWay(4 * MBIT),
            "htb",
            "none",
            [
                "class change dev eth0 parent 1: classid 1:1 htb rate 4182321bit ceil 4182321bit"
                " burst 1600 cburst 1600 quantum 1514"
            ],
        ),
        (KernelWay(2 * MBIT), KernelWay(), "htb", "none", ["qdisc del dev eth0 root"]),
        (
            KernelWay(),
            KernelWay(2 * MBIT),
            "tbf",
            "relay",
            ["qdisc add dev eth0 root handle 1: tbf rate 2091161bit burst 1600 limit 1514000"],
        ),
        (KernelWay(2 * MBIT, 5), KernelWay(2 * MBIT, 6), "tbf", "relay", None),
        (
            KernelWay(2 * MBIT, MS),
            KernelWay(2 * MBIT, 2 * MS),
            "tbf",
            "netem",
            [
                "qdisc change dev eth0 root handle 1: tbf rate 2091161bit burst 1600 limit 1514000",
                "qdisc change dev eth0 parent 1:1 handle 10: netem limit 1007 delay 0.002000000s",
            ],
        ),
    ],
)
def test_a_change_touches_only_what_differs(
    old: KernelWay, new: KernelWay, shaper: str, delay: str, expected: list[str] | None
) -> None:
    before = KernelShape(old, KernelWay(), shaper, delay)
    after = KernelShape(new, KernelWay(), shaper, delay)
    same = ["qdisc change dev eth0 root handle 1: tbf rate 2091161bit burst 1600 limit 1514000"]
    assert changes(before, after) == [
        f"a {step}" for step in (same if expected is None else expected)
    ]
    assert changes(before, before) == []


def test_cut_and_down_are_undone_by_what_undoes_them() -> None:
    wire = TWO.wires[0]
    assert words(commands.cut(wire)) == [
        "tc -n emulator-lab3-a qdisc replace dev eth0 root blackhole",
        "tc -n emulator-lab3-b qdisc replace dev eth0 root blackhole",
    ]
    shape = shapes(TWO)["a-b"]
    assert words(commands.mend(wire, shape)) == [
        "tc -n emulator-lab3-a qdisc del dev eth0 root",
        "tc -n emulator-lab3-b qdisc del dev eth0 root",
        *words(commands.shaping(wire, shape)),
    ]
    assert words(commands.take_down(wire))[0] == "ip -n emulator-lab3-a link set dev eth0 down"
    built = words(commands.build(TWO, shapes(TWO)))
    again = words(commands.bring_up(TWO, wire))
    assert set(again) <= set(built) and sum("route" in step for step in again) == 2


# Names, batches, and what a system makes


def test_commands_of_one_namespace_go_in_one_call() -> None:
    steps = [
        ["ip", "netns", "add", "x"],
        ["ip", "-n", "x", "link", "show"],
        ["ip", "-n", "x", "route", "show"],
        ["tc", "-n", "x", "qdisc", "show"],
        ["ip", "link", "show"],
        ["ip", "netns", "add", "y"],
    ]
    assert list(batches(steps)) == [
        ([], [["ip", "netns", "add", "x"]]),
        (["ip", "-n", "x"], [["link", "show"], ["route", "show"]]),
        (["tc", "-n", "x"], [["qdisc", "show"]]),
        (["ip"], [["link", "show"]]),
        ([], [["ip", "netns", "add", "y"]]),
    ]


ALL = System(**{name: True for name in System.__dataclass_fields__ if name != "complaint"})


@pytest.mark.parametrize(
    ("missing", "way", "shaper", "expected"),
    [
        ("", KernelWay(MBIT, MS), None, ("htb", "netem")),
        ("", KernelWay(MBIT, MS, 1), None, ("htb", "relay")),  # netem would reorder frames
        ("sch_netem", KernelWay(MBIT, MS), None, ("htb", "relay")),
        ("sch_htb", KernelWay(MBIT), None, ("tbf", "none")),
        ("", KernelWay(MBIT), "tbf", ("tbf", "none")),
        ("sch_htb sch_tbf", KernelWay(None, MS), None, ("htb", "netem")),  # nothing to shape
        (
            "sch_netem tun",
            KernelWay(MBIT, MS),
            None,
            "neither sch_netem nor /dev/net/tun; --no-latency leaves",
        ),
        ("tun", KernelWay(MBIT, MS, 1), None, "cannot delay or lose frames here: jitter needs"),
        ("sch_htb sch_tbf", KernelWay(MBIT), None, "needs sch_htb or sch_tbf"),
        ("sch_tbf", KernelWay(MBIT), "tbf", "has no sch_tbf (it has: htb)"),
        ("veth", KernelWay(MBIT), None, "needs veth"),
        ("namespaces", KernelWay(MBIT), None, "but this system refuses them: "),
    ],
)
def test_what_a_system_allows(
    missing: str, way: KernelWay, shaper: str | None, expected: str | tuple[str, str]
) -> None:
    system = replace(ALL, **dict.fromkeys(missing.split(), False))
    if isinstance(expected, tuple):
        chosen = choose(system, UNSHAPED, way, shaper=shaper)
        assert (chosen.shaper, chosen.delay, chosen.down) == (*expected, way)
    else:
        with pytest.raises(Unavailable) as error:
            choose(system, UNSHAPED, way, shaper=shaper)
        assert expected in str(error.value)


def test_without_latency_a_link_has_none_and_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = wired(hosts=names("a", "b"), links=[between("a", "b", rate="1mbit", latency="9ms")])
    (wire,) = plan.wires
    shape = choose(ALL, wire.link.up, wire.link.down, latency=False, delayed=wire.link.delayed)
    assert shape == KernelShape(KernelWay(MBIT), KernelWay(MBIT))
    state = LabState(3, "x", 1, plan.topology, {"a-b": shape}, {"a-b": "up"})
    monkeypatch.setattr(attached, "changing", lambda number: nullcontext(state))
    with pytest.raises(BadValue, match="link a-b: the lab was made without latency, .*--no-lat"):
        LabConnection("a-b", 3).set(latency="200ms")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("linux", "needs Linux"),
        ("root", "needs root (without root: emulator proxy)"),
        ("ip tc", "needs ip and tc, from the package iproute2"),
    ],
)
def test_tools_that_are_missing(missing: str, reason: str) -> None:
    with pytest.raises(Unavailable) as error:
        require_tools(replace(ALL, **dict.fromkeys(missing.split(), False)))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"rate_bit_s": 7},
        {"rate_bit_s": 10**12},
        {"jitter_ns": -1},
        {"jitter_ns": 10**15},
        {"loss": 1.0},
    ],
)
def test_ways_that_make_no_sense(fields: dict[str, float]) -> None:
    with pytest.raises(BadValue):
        KernelWay(**fields)


# The relay's arithmetic


def never() -> float:
    raise AssertionError("a line without loss asks for no random number")


def test_frames_leave_after_their_delay_in_order() -> None:
    way = DelayLine(Latency(30), 0.0, never)
    assert way.next_ns() == FOREVER and way.take(10**9) is None
    for moment, frame in ((0, b"a"), (5, b"b"), (5, b"c")):
        way.put(frame, moment)
    assert (way.next_ns(), way.take(29), way.take(30), way.next_ns()) == (30, None, b"a", 35)
    way.change(Latency(1), 0.0)
    way.put(b"d", 10)  # a shorter delay overtakes nothing
    assert [way.take(35) for _ in range(4)] == [b"b", b"c", b"d", None]
    assert way.summary()["frames"] == 4 and way.late_ms == 0
    way.put(b"e", 40)
    way.take(41 + 2 * MS)
    assert 1.9 < way.late_ms < 2.1


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 30 * MS), min_size=1, max_size=60),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.3]),
)
def test_jitter_keeps_order_and_no_frame_vanishes(
    gaps_ns: list[int], seed: int, loss: float
) -> None:
    way, now, dues = line(KernelWay(None, 20 * MS, 10 * MS, loss), seed), 0, []
    for number, gap_ns in enumerate(gaps_ns):
        now += gap_ns
        way.put(bytes([number]), now)
    taken = []
    while (due_ns := way.next_ns()) < FOREVER:
        dues.append(due_ns)
        taken.append(way.take(due_ns))
    assert taken == sorted(taken) and dues == sorted(dues)
    assert len(taken) + way.lost == len(gaps_ns) and (loss or not way.lost)


PAGE = ROOT / "docs" / "how-to" / "lab.md"
TOPOLOGY = next(
    block
    for block in re.findall(r"```toml\n(.*?)```", text(PAGE), flags=re.DOTALL)
    if "bridges" in block
)


@pytest.mark.rest
@pytest.mark.processes
@pytest.mark.alone
def test_the_commands_work_on_the_topology(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [words for words in command_lines("emulator") if words[:2] == ["lab", "link"]]
    assert len(lines) >= 5
    try:
        with Lab(parse_topology(tomllib.loads(TOPOLOGY)), name="page") as lab:
            monkeypatch.setenv("EMULATOR_LAB", "page")
            for words in lines:
                assert run(words) == 0, capfd.readouterr()
            said = capfd.readouterr().out
            shared = lab.state.shapes["cell"].up.rate_bit_s
            assert run(["lab", "list"]) == 0
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "edge-6-street: edge-6 to street, up 0.5 Mbit/s 80 ms +- 2 ms loss 0.1 %" in said
    assert shared == 5_000_000
    assert "host edge-7: 198.18." in capfd.readouterr().out
