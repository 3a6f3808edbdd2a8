"""The numbers of one edge, from what was measured; by hand."""

from __future__ import annotations

import pytest

from edgefl.profile.edge_profile import (
    LinkProfile,
    LinkRate,
    MeasuredRun,
    Rest,
    device_profile,
    lacks,
    link_profile,
    one_way,
    overhead_s,
)
from edgefl.results.measured import Busy, MeasuredEdge, Span

SAME = [0.020] * 7


def run(edge: MeasuredEdge, links: list[dict[str, str]] | None = None) -> MeasuredRun:
    return MeasuredRun({"a": edge}, links or [], {}, 60.0)


def busy(others: float, rate_byte_s: float, at_s: float = 0.0) -> Busy:
    return Busy((Span(at_s, at_s + 1.0, rate_byte_s),), others)


# ------------------------------------------------------------------ latency and jitter
@pytest.mark.parametrize(
    ("idle_s", "all_s", "latency_s", "jitter_s"),
    [
        ([0.020, 0.022, 0.090], [], 0.011, 0.0),  # too few for a jitter
        (SAME, SAME, 0.010, 0.0),
        ([], [0.5, 0.03, 0.2], 0.015, 0.0),  # none was idle: the shortest
        # 16 % and 84 % of nine values lie at 10 + 1.28 and 10 + 6.72 steps of 10 ms
        ([0.01 * n for n in range(10, 19)], [], 0.07, 0.0544 / 2 / 2**0.5),
    ],
)
def test_half_of_the_round_trip_is_the_latency(
    idle_s: list[float], all_s: list[float], latency_s: float, jitter_s: float
) -> None:
    assert one_way(idle_s, all_s) == pytest.approx((latency_s, jitter_s))


# ------------------------------------------------------------------ links
def test_goodput_alone_and_with_others_is_compared() -> None:
    alone = [busy(0.0, 1000.0), busy(0.05, 1000.0), busy(0.0, 1100.0)]
    shared = [busy(1.0, 500.0), busy(2.0, 500.0), busy(1.5, 300.0)]
    edge = MeasuredEdge(
        {"up": [*alone, *shared, busy(0.5, 1.0)], "down": shared}, rtts_s=SAME, idle_rtts_s=SAME
    )
    assert link_profile("a", [run(edge)]).slower == {"up": 0.5}


def test_the_rates_times_the_wires_share_give_a_transfer_its_whole_time() -> None:
    """1000 bytes in 1 s on the wire, and 0.25 s of other things."""
    rates = {way: LinkRate(8000.0, 8000.0, 8000.0) for way in ("up", "down")}
    sizes = {"up": 1000.0, "down": 1000.0}
    link = LinkProfile(rates, 0.1, 0.0, {}, {}, Rest(-0.1, 0.25, 0.1), sizes)
    assert link.whole_share("up") == 0.8 and 1000 * 8 / (0.8 * 8000) == 1.25
    assert link.whole_share("down") == 1.0  # never faster than the wire


# ------------------------------------------------------------------ devices
def test_the_trainings_together_take_as_long_as_they_did() -> None:
    training = [Span(0, 2, 200), Span(3, 4, 110), Span(5, 6, 60)]
    device = device_profile("a", [run(MeasuredEdge(training=training))])
    assert (device.samples_per_s, device.trainings) == (370 / 4, 3)
    assert device.median == 100.0
    assert (device.p5, device.p95) == pytest.approx((64.0, 109.0))
    assert device.samples == pytest.approx(370 / 3)


@pytest.mark.parametrize(
    ("parts", "overhead"),
    [
        ([(100, 1.5), (200, 2.5), (400, 4.5)], 0.5),
        ([(100, 0.5), (200, 1.5)], 0.0),  # the line is below 0 at no samples
        ([(100, 1.0), (120, 1.2)], None),  # too alike
        ([(100, 1.0)], None),
    ],
)
def test_an_overhead_is_seen_only_in_trainings_of_different_sizes(
    parts: list[tuple[float, float]], overhead: float | None
) -> None:
    found = overhead_s(parts)
    assert found == (None if overhead is None else pytest.approx(overhead))


# ------------------------------------------------------------------ too little
def test_what_is_missing_is_counted_over_all_runs() -> None:
    edge = MeasuredEdge(
        {"up": [busy(0, 1)], "down": [busy(0, 1)] * 2}, rtts_s=[0.1], training=[Span(0, 1, 1)] * 3
    )
    assert lacks("a", [run(edge)], links=True, device=True) == [
        "2 of 3 downloads",
        "1 of 3 uploads",
        "1 of 3 heartbeats",
    ]
    assert lacks("a", [run(edge), run(edge)], links=True, device=True) == [
        "2 of 3 uploads",
        "2 of 3 heartbeats",
    ]
    assert lacks("b", [run(edge)], links=False, device=True) == ["0 of 3 trainings"]
    assert lacks("a", [run(edge)], links=False, device=True) == []
