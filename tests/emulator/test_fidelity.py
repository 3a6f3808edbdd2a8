"""The rules of the verdict, one test each, and the quantiles."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import BadValue
from emulator.fidelity import MOST_STALLS, Fidelity, Quantiles, Thresholds

MS = 1_000_000
S = 1000 * MS


def transfers(count: int, late: int, lag_ns: int, length_ns: int = S) -> Fidelity:
    """Make ``count`` transfers: ``late`` of them ``lag_ns`` late, the others in time."""
    fidelity = Fidelity()
    for number in range(count):
        fidelity.transfer(lag_ns if number < late else 0, length_ns)
    return fidelity


def test_nothing_measured_is_faithful_and_says_null() -> None:
    summary = Fidelity(host={"cores": 2}).summary()
    assert (summary["verdict"], summary["reasons"], summary["host"]) == (
        "faithful",
        [],
        {"cores": 2},
    )
    assert summary["wake_lag_ms"] == {"p50": None, "p99": None, "max": None}


def test_one_percent_of_transfers_may_be_late() -> None:
    assert transfers(200, late=2, lag_ns=S).verdict == "faithful"
    strained = transfers(200, late=3, lag_ns=S)
    assert strained.verdict == "strained"
    assert strained.reasons() == [
        "3 of 200 transfers late by more than max(5 ms, 2 % of the transfer), worst 1000.0 ms"
    ]


@pytest.mark.parametrize(
    ("lag_ns", "length_ns", "verdict"),
    [
        (5 * MS + 1, 20 * MS, "strained"),
        (20 * MS, S, "faithful"),  # 2 % of 1 s
        (20 * MS + 1, S, "strained"),
    ],
)
def test_each_transfer_has_its_own_allowance(lag_ns: int, length_ns: int, verdict: str) -> None:
    assert transfers(10, late=10, lag_ns=lag_ns, length_ns=length_ns).verdict == verdict


def test_one_percent_of_tasks_may_overrun() -> None:
    fidelity = Fidelity()
    for number in range(100):
        fidelity.task(late_ns=50 * MS if number == 0 else -S, length_ns=2 * S)
    assert (fidelity.verdict, fidelity.overruns) == ("faithful", 1)
    fidelity.task(late_ns=40 * MS, length_ns=2 * S)  # within 2 % of its length
    assert fidelity.overruns == 1
    fidelity.task(late_ns=41 * MS, length_ns=2 * S)
    assert fidelity.reasons() == ["2 of 102 tasks and jobs overran their emulated time"]


def test_a_real_path_slower_than_its_link_is_named() -> None:
    fidelity = Fidelity()
    fidelity.slow_path("edge-1", measured_bit_s=9, emulated_bit_s=9)
    assert fidelity.verdict == "faithful"
    for measured in (5, 3, 4):
        fidelity.slow_path("edge-2", measured_bit_s=measured, emulated_bit_s=9)
    assert fidelity.reasons() == [
        "the real path of edge edge-2 carries 3 bit/s, its emulated link 9 bit/s"
    ]


def test_thresholds_come_from_outside() -> None:
    fidelity = Fidelity(Thresholds(transfer_lag_ms=100.0, overrun_share=0.5))
    fidelity.transfer(90 * MS, S)
    fidelity.task(S, S)
    assert fidelity.reasons() == ["1 of 1 tasks and jobs overran their emulated time"]
    with pytest.raises(BadValue, match="overrun_share"):
        Thresholds(overrun_share=-0.1)


def test_the_summary_is_plain_json_in_milliseconds() -> None:
    fidelity = transfers(99, late=1, lag_ns=4 * MS)
    fidelity.transfer(8 * MS, S)
    fidelity.wake(70_000)
    fidelity.handle(2 * MS)
    fidelity.lead(-3)
    fidelity.task(0, S)
    summary = fidelity.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["transfer_lag_ms"] == {
        "p50": 0.0,
        "p99": pytest.approx(4, rel=1 / 128),
        "max": 8.0,
    }
    assert summary["wake_lag_ms"]["max"] == 0.07
    assert summary["handle_ms"]["p50"] == 2.0
    assert summary["last_byte_lead_ms"]["max"] == 0.0
    counts = {"transfers": 100, "tasks": 1, "compute_overruns": 0, "ahead_of_curve": 0}
    assert {key: summary[key] for key in counts} == counts


@settings(deadline=None)
@given(st.lists(st.integers(-5, 2**64 - 1), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_right_within_its_stated_error(values: list[int], percent: int) -> None:
    quantiles = Quantiles()
    for value in values:
        quantiles.add(value)
    ranked = sorted(max(0, value) for value in values)
    exact = ranked[-(-len(ranked) * percent // 100) - 1]
    assert 128 * abs(quantiles.percentile(percent) - exact) <= exact
    assert quantiles.max == ranked[-1]
    assert quantiles.count == len(values)


def test_one_stall_makes_a_run_strained_and_says_when() -> None:
    fidelity = Fidelity()
    fidelity.stall(12_400 * MS, 8_312 * MS)
    assert fidelity.verdict == "strained"
    assert fidelity.reasons() == ["the coordinator stalled for 8.312 s, from emulated 12.4 s on"]
    summary = fidelity.summary()
    assert (summary["stalls"], summary["stalled_s"]) == (1, 8.312)


def test_many_stalls_are_summed_up() -> None:
    fidelity = Fidelity()
    for number in range(1000):
        fidelity.stall(number * S, S)
    assert len(fidelity.reasons()) == MOST_STALLS + 1
    assert fidelity.reasons()[-1] == "the coordinator stalled 1000 times, 1000.0 s in total"
