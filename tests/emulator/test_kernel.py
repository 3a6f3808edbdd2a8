"""Kernel mode: the exact plan of commands, the arithmetic of the relay, and refused input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from emulator.commands.kernel import _shape
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.kernel import run as kernel
from emulator.kernel.commands import (
    NAMESPACES,
    KernelShape,
    KernelWay,
    Place,
    burst_bytes,
    framed_rate,
    make,
    qdiscs,
)
from emulator.kernel.probe import System, choose, require_tools
from emulator.kernel.relay import HELD_BYTES, DelayLine, line, strain
from emulator.units import FOREVER

MS = 1_000_000
MBIT = 1_000_000
ALL = System(**{name: True for name in System.__dataclass_fields__ if name != "complaint"})
PLACE = Place(7)

# The plan


def words(plan: list[list[str]]) -> list[str]:
    return [" ".join(argv) for argv in plan]


def test_the_plan_word_for_word() -> None:
    shape = KernelShape(up=KernelWay(2 * MBIT), down=KernelWay(20 * MBIT))
    assert words(make(PLACE, shape)) == [
        "ip netns add emulator-7",
        "ip link add emulator7 type veth peer name emulator7own netns emulator-7",
        "ip -n emulator-7 link set dev lo up",
        (
            "ip link set dev emulator7 address 02:65:6d:75:07:01 mtu 1500 txqueuelen 1000"
            " gso_max_size 1514 gso_max_segs 1 addrgenmode none"
        ),
        "tc qdisc add dev emulator7 root handle 1: htb default 1",
        (
            "tc class add dev emulator7 parent 1: classid 1:1 htb rate 20911603bit ceil 20911603bit"
            " burst 2614 cburst 2614 quantum 1514"
        ),
        "tc qdisc add dev emulator7 parent 1:1 handle 10: pfifo limit 1000",
        "ip address add 198.19.7.1/30 dev emulator7",
        "ip link set dev emulator7 up",
        "ip neighbour replace 198.19.7.2 lladdr 02:65:6d:75:07:02 nud permanent dev emulator7",
        (
            "ip -n emulator-7 link set dev emulator7own address 02:65:6d:75:07:02 mtu 1500"
            " txqueuelen 1000 gso_max_size 1514 gso_max_segs 1 addrgenmode none"
        ),
        "tc -n emulator-7 qdisc add dev emulator7own root handle 1: htb default 1",
        (
            "tc -n emulator-7 class add dev emulator7own parent 1: classid 1:1 htb rate 2091161bit"
            " ceil 2091161bit burst 1600 cburst 1600 quantum 1514"
        ),
        "tc -n emulator-7 qdisc add dev emulator7own parent 1:1 handle 10: pfifo limit 1000",
        "ip -n emulator-7 address add 198.19.7.2/30 dev emulator7own",
        "ip -n emulator-7 link set dev emulator7own up",
        (
            "ip -n emulator-7 neighbour replace 198.19.7.1 lladdr 02:65:6d:75:07:01 nud permanent"
            " dev emulator7own"
        ),
        "ip -n emulator-7 route add default via 198.19.7.1",
    ]


@pytest.mark.parametrize(
    ("way", "shaper", "delay", "expected"),
    [
        (
            KernelWay(10 * MBIT),
            "tbf",
            "none",
            ["root handle 1: tbf rate 10455802bit burst 1600 limit 1514000"],
        ),
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
        (KernelWay(None), "htb", "none", []),
        (
            KernelWay(10 * MBIT, 30 * MS),
            "tbf",
            "relay",
            ["root handle 1: tbf rate 10455802bit burst 1600 limit 1514000"],
        ),
        (
            KernelWay(10 * MBIT),
            "tbf",
            "netem",
            ["root handle 1: tbf rate 10455802bit burst 1600 limit 1514000"],
        ),
    ],
)
def test_the_qdiscs_of_one_direction(
    way: KernelWay, shaper: str, delay: str, expected: list[str]
) -> None:
    assert words(qdiscs(PLACE.host, way, KernelShape(way, way, shaper, delay))) == [
        f"tc qdisc add dev emulator7 {rest}" for rest in expected
    ]


def test_netem_goes_into_htb() -> None:
    way = KernelWay(10 * MBIT, 30 * MS)
    assert (
        words(qdiscs(PLACE.host, way, KernelShape(way, way, "htb", "netem")))[2]
        == "tc qdisc add dev emulator7 parent 1:1 handle 10: netem limit 1585 delay 0.030000000s"
    )


def test_a_relay_stands_between_two_taps_instead_of_a_veth_pair() -> None:
    shape = KernelShape(KernelWay(MBIT, MS), KernelWay(MBIT, MS), delay="relay")
    veth, taps = make(PLACE, replace(shape, delay="none")), make(PLACE, shape)
    assert words(taps)[1] == "ip link set dev emulator7own netns emulator-7"
    assert taps[:1] + taps[2:] == veth[:1] + veth[2:]


def test_what_is_not_shaped_keeps_its_offloads_and_a_kernel_without_ipv6_is_not_asked_for_it() -> (
    None
):
    plan = words(make(PLACE, KernelShape(KernelWay(MBIT), KernelWay(None)), ipv6=False))
    assert [line.split("txqueuelen 1000")[1] for line in plan if "txqueuelen" in line] == [
        "",
        " gso_max_size 1514 gso_max_segs 1",
    ]


@given(st.integers(1, 10**11))
def test_full_frames_carry_the_payload_rate(rate_bit_s: int) -> None:
    framed_bit_s = framed_rate(rate_bit_s)
    assert framed_bit_s * 1448 >= rate_bit_s * 1514 > (framed_bit_s - 1) * 1448
    assert burst_bytes(framed_bit_s) * 8000 >= framed_bit_s and burst_bytes(framed_bit_s) > 1514


def test_places_differ_in_every_name_and_fit_the_kernel() -> None:
    places = [Place(number) for number in range(NAMESPACES)]
    ends = [end for place in places for end in (place.host, place.own)]
    assert all(
        len(set(names)) == len(ends)
        for names in zip(*((end.name, end.address, end.mac) for end in ends))
    )
    assert len({place.namespace for place in places}) == NAMESPACES
    assert max(len(end.name) for end in ends) <= 15  # IFNAMSIZ - 1


# What is chosen and what is refused


@pytest.mark.parametrize(
    ("missing", "way", "shaper", "expected"),
    [
        ("", KernelWay(MBIT, MS), None, ("htb", "netem")),
        ("", KernelWay(MBIT, MS, 1), None, ("htb", "relay")),  # netem would reorder frames
        ("sch_netem", KernelWay(MBIT, MS), None, ("htb", "relay")),
        ("sch_netem tun", KernelWay(MBIT), None, ("htb", "none")),
        ("sch_htb", KernelWay(MBIT), None, ("tbf", "none")),
        ("", KernelWay(MBIT), "tbf", ("tbf", "none")),
        ("sch_htb sch_tbf", KernelWay(None, MS), None, ("htb", "netem")),  # nothing to shape
        ("veth sch_netem", KernelWay(MBIT, MS), None, ("htb", "relay")),
        (
            "sch_netem tun",
            KernelWay(MBIT, MS),
            None,
            (
                "cannot delay or lose frames here: this kernel has neither sch_netem nor"
                " /dev/net/tun; --no-latency leaves"
            ),
        ),
        (
            "tun",
            KernelWay(MBIT, MS, 1),
            None,
            "cannot delay or lose frames here: jitter needs /dev/net/tun",
        ),
        ("sch_netem tun", KernelWay(None, loss=0.1), None, "cannot delay or lose"),
        (
            "sch_htb sch_tbf",
            KernelWay(MBIT),
            None,
            "needs sch_htb or sch_tbf, and this kernel has neither",
        ),
        ("sch_tbf", KernelWay(MBIT), "tbf", "has no sch_tbf (it has: htb)"),
        ("veth", KernelWay(MBIT), None, "needs veth"),
        (
            "namespaces",
            KernelWay(MBIT),
            None,
            "needs network namespaces, but this system refuses them: ",
        ),
    ],
)
def test_what_a_system_allows(
    missing: str, way: KernelWay, shaper: str | None, expected: str | tuple[str, str]
) -> None:
    system = replace(ALL, **dict.fromkeys(missing.split(), False))
    if isinstance(expected, tuple):
        chosen = choose(system, KernelShape(KernelWay(), way), shaper)
        assert (chosen.shaper, chosen.delay, chosen.down) == (*expected, way)
    else:
        with pytest.raises(BadValue) as error:
            choose(system, KernelShape(KernelWay(), way), shaper)
        assert expected in str(error.value)


def test_no_latency_is_a_choice_and_is_said() -> None:
    chosen = choose(
        replace(ALL, sch_netem=False, tun=False),
        KernelShape(KernelWay(MBIT, MS), KernelWay()),
        None,
        latency=False,
    )
    assert chosen.delay == "none"
    control = {"own": "cubic", "host": "bbr"}
    said = kernel.announcement(chosen, PLACE, control)
    assert said == [
        "link: COMMAND 198.19.7.2 (TCP cubic), this host 198.19.7.1 (TCP bbr)",
        "latency, jitter and loss are left out (--no-latency)",
    ]
    assert (
        "relay in user space, because the kernel has no netem"
        in kernel.announcement(replace(chosen, delay="relay"), PLACE, control)[1]
    )


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("linux", "needs Linux"),
        ("root", "needs root (without root: emulator proxy)"),
        ("ip tc", "needs ip and tc, from the package iproute2"),
        ("tc", "needs tc, "),
    ],
)
def test_tools_that_are_missing(missing: str, reason: str) -> None:
    with pytest.raises(BadValue) as error:
        require_tools(replace(ALL, **dict.fromkeys(missing.split(), False)))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"rate_bit_s": 0},
        {"rate_bit_s": 7},
        {"rate_bit_s": -1},
        {"rate_bit_s": 10**12},
        {"latency_ns": -1},
        {"jitter_ns": -1},
        {"loss": 1.0},
        {"loss": -0.1},
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
    assert (way.next_ns(), way.take(29), way.take(30), way.next_ns(), way.take(34)) == (
        30,
        None,
        b"a",
        35,
        None,
    )
    assert (way.take(40), way.take(40), way.take(40)) == (b"b", b"c", None)
    assert way.summary() == {
        "frames": 3,
        "lost": 0,
        "overflowed": 0,
        "unwritten": 0,
        "late_ms": {"p50": 0.0, "p99": 0.0, "max": 0.0},
    }


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


def test_losses_follow_the_seed() -> None:
    def lost(seed: int) -> list[bool]:
        way = line(KernelWay(loss=0.25), seed)
        return [(way.put(b"x", 0), way.take(0))[1] is None for _ in range(2000)]

    assert lost(1) == lost(1) != lost(2)
    assert 400 < sum(lost(1)) < 600


def test_what_is_under_way_is_bounded() -> None:
    way, frame = DelayLine(Latency(1), 0.0, never), bytes(2**20)
    for _ in range(HELD_BYTES // 2**20 + 3):
        way.put(frame, 0)
    assert way.overflowed == 3
    assert way.take(1) is frame
    way.put(frame, 1)
    assert way.overflowed == 3


def test_a_relay_that_is_too_late_is_said_so() -> None:
    lines = {"down": DelayLine(Latency(0), 0.0, never), "up": DelayLine(Latency(0), 0.0, never)}
    assert strain(lines) == ""
    for late_ns, way in ((2 * MS, lines["down"]), (MS // 2, lines["up"])):
        way.put(b"x", 0)
        way.take(late_ns)
    assert strain(lines) == "down 2.0 ms"


# The command line


def test_a_profile_and_what_overrides_it() -> None:
    none = {"up": None, "down": None, "latency": None, "jitter": None, "loss": None}
    alone = _shape("lte", none)
    assert (
        alone.up.rate_bit_s
        and alone.down.rate_bit_s
        and alone.up.latency_ns == alone.down.latency_ns > 0
    )
    changed = _shape("lte", none | {"up": "3mbit", "loss": "2%"})
    assert changed == KernelShape(
        replace(alone.up, rate_bit_s=3 * MBIT, loss=0.02), replace(alone.down, loss=0.02)
    )
    assert _shape(None, none | {"down": "3mbit", "latency": "5ms"}) == KernelShape(
        KernelWay(None, 5 * MS), KernelWay(3 * MBIT, 5 * MS)
    )


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [["check"], ["run", "--up", "2mbit", "--", "true"]])
def test_without_root_nothing_is_tried(arguments: list[str]) -> None:
    # The first attempt only imports everything, because another user may not be able to read the
    # files of this one.
    script = (
        "import os, sys; from emulator.cli import run; words = sys.argv[1:]; run(['kernel', 'run',"
        " '--', 'true']); os.geteuid() or os.setuid(65534)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; sys.exit(run(words))", "kernel", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.splitlines()[1:]) == (
        2,
        ["emulator: kernel mode needs root (without root: emulator proxy)"],
    )
