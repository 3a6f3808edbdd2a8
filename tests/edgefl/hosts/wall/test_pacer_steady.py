"""The closed forms of frequent links are those of the general plan, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pacer_rig import MS, Rig
from transport_rig import Rig as TransportRig

from edgefl.protocol.messages import Update
from edgefl.protocol.transfers import Outgoing
from emulator.capacity.rates import Constant
from emulator.delay import Latency
from emulator.links.bottleneck import Bottleneck, SharedLink
from emulator.links.link import Link
from emulator.links.network import Network
from emulator.units import NS_PER_S


class General(Link):
    """A link that offers no closed form."""

    def steady(self, booking: Any) -> None:
        return None


STORIES = st.fixed_dictionaries(
    {
        "rate_bit_s": st.integers(8_000, 100_000_000),
        "latency_ns": st.sampled_from([0, 1, 7 * MS, 300 * MS]),
        "window_ns": st.sampled_from([1, 10 * MS, 50 * MS, 2 * NS_PER_S]),
        "grain_ns": st.sampled_from([1, 3, 5 * MS]),
        "elements": st.lists(st.integers(0, 60_000), min_size=1, max_size=3),
        "late_ns": st.lists(st.sampled_from([0, 1, 4 * MS, 400 * MS]), min_size=1, max_size=8),
        # the session breaks after so many steps; part of what was sent has arrived
        "breaks_after": st.none() | st.integers(1, 12),
        "share": st.floats(0, 1),
    }
)


def played(story: dict[str, Any], link: type[Link]) -> list[Any]:
    """All pieces of a story, and the moment at which each of them is due."""
    rig = Rig(None, 0, story["window_ns"], grain_ns=story["grain_ns"])
    rig.network._links["a", "down"] = made = link(
        Constant(story["rate_bit_s"]), Latency(story["latency_ns"])
    )
    made.on_change = rig.network._announce
    flows = [rig.start(elements) for elements in story["elements"]]
    for step in range(5_000):
        if not rig.step(story["late_ns"][step % len(story["late_ns"])]):
            break
        if step + 1 == story["breaks_after"]:
            rig.pacer.suspend("a", rig.now)
            rig.now += 3 * MS
            for flow in flows:
                if flow.transfer.number in rig.pacer.flows:
                    rig.pacer.resume(flow, int(story["share"] * flow.released), rig.now)
    return [rig.sent, [flow.due_at for flow in flows], [flow.completion for flow in flows]]


# two transfers are under way when the session breaks; the rest of the first has a later start
BROKEN = {
    "rate_bit_s": 1_000_000,
    "latency_ns": 20 * MS,
    "window_ns": 50 * MS,
    "grain_ns": 1,
    "elements": [60_000, 20_000],
    "late_ns": [0],
    "breaks_after": 30,
    "share": 0.9,
}


@given(STORIES)
@example(BROKEN)
@example({**BROKEN, "breaks_after": 60})
def test_the_plan_at_a_constant_rate_is_the_general_one(story: dict[str, Any]) -> None:
    assert played(story, Link) == played(story, General)


def test_only_a_constant_rate_behind_a_constant_delay_has_a_closed_form() -> None:
    rig = Rig(2_000_000, 5 * MS)
    flow = rig.start(10_000)
    link, booking = rig.network.booked(flow.transfer)
    assert booking is not None
    found = link.steady(booking)
    assert found is not None and (found[0].rate_bit_s, found[1]) == (2_000_000, 5 * MS)
    link.suspend(booking, 0, 1 * MS)
    assert link.steady(booking) is None
    shared = SharedLink(Bottleneck(Constant(1_000_000)), 0, None, None, None)
    assert shared.steady(booking) is None


# ------------------------------------------------------------------ native links
def test_only_an_idle_link_that_emulates_nothing_carries_at_once() -> None:
    network = Network()
    for edge, link in {
        "native": Link(None),
        "slow": Link(Constant(1_000)),
        "far": Link(None, Latency(1)),
    }.items():
        network.add_link(edge, "down", link)
    assert [network.at_once(edge, "down", 5) for edge in ("native", "slow", "far")] == [
        True,
        False,
        False,
    ]


def native_story(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> list[Any]:
    if not at_once:
        monkeypatch.setattr(Network, "at_once", lambda *_: False)
    rig = TransportRig(rate=None, stamped=False)
    first = rig.carry(number=1)
    rig.until(2 * MS)
    rig.arrived("a", first)
    second = rig.carry(number=2)
    rig.until(3 * MS)
    rig.breaks("a")
    rig.until(4 * MS)
    rig.joins("a", [], [[second.number, 0]])
    rig.until(6 * MS)
    rig.arrived("a", second)
    rig.breaks("a")
    third = rig.carry(number=3)  # the edge is away
    rig.until(7 * MS)
    rig.joins("a", [], [[third.number, 0]])
    rig.until(8 * MS)
    rig.says("a", Outgoing(7, Update(2, 0, {})).offer(0))
    rig.until(9 * MS)
    return [rig.told, rig.sent]


def test_a_download_on_a_native_link_is_as_the_network_would_carry_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = native_story(monkeypatch, at_once=True)
    assert quick == native_story(monkeypatch, at_once=False) and len(quick[0]) > 4
