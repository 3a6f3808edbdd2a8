"""The numbers of one edge: its links' rates, the rest of a task, its device."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.plugins.profile.repeat import (
    STEP_S,
    LinkProfile,
    LinkRate,
    MeasuredRun,
    Rest,
    beyond,
    lacks,
    one_way,
    overhead_s,
    steps,
    tasks,
    trace,
    varied,
)
from edgefl.results.families.native import Busy, MeasuredEdge, Span
from emulator.capacity.trace import read_trace


def transfers(*rates_byte_s: float, seconds: float = 0.5, every_s: float = 2.0) -> list[Busy]:
    return [
        Busy((Span(every_s * at, every_s * at + seconds, rate * seconds),))
        for at, rate in enumerate(rates_byte_s)
    ]


# ------------------------------------------------------------------ the rule
@pytest.mark.parametrize(
    ("rates_byte_s", "is_varied"),
    [
        # a tenth of the time at each end does not count
        ([10.0, *[100.0] * 18, 500.0], False),
        # at 10 % of the time 80, at 90 % 105: exactly a quarter of the middle
        ([80.0] * 2 + [100.0] * 6 + [105.0] * 2, False),
        ([79.0] * 2 + [100.0] * 6 + [105.0] * 2, True),
        ([50.0] * 3 + [100.0] * 4, False),  # too few to tell
    ],
)
def test_a_rate_varied_if_it_differs_by_more_than_a_quarter(
    rates_byte_s: list[float], is_varied: bool
) -> None:
    spans = [busy.steps[0] for busy in transfers(*rates_byte_s)]
    assert varied(spans) is is_varied


# ------------------------------------------------------------------ steps of a long transfer
@pytest.mark.parametrize(
    ("parts_s", "steps_s"),
    [
        ([0.5, 0.5, 0.5], [1.5]),  # the rest is too short for a step
        ([0.5, 0.75, 0.5, 0.5], [1.25, 1.0]),
    ],
)
def test_a_long_transfer_is_cut_into_steps(parts_s: list[float], steps_s: list[float]) -> None:
    at_s, parts = 0.0, []
    for part_s in parts_s:
        parts.append(Span(at_s, at_s + part_s, 100.0))
        at_s += part_s
    found = steps(Busy(tuple(parts)))
    assert [step.ended_s - step.began_s for step in found] == steps_s
    assert sum(step.amount for step in found) == 100.0 * len(parts_s)
    assert len(found) == 1 or all(length >= STEP_S for length in steps_s)


# ------------------------------------------------------------------ a trace
def test_the_emulator_reads_the_trace_with_the_bytes_that_were_measured(tmp_path: Path) -> None:
    spans = [Span(1.0, 3.0, 2000.0), Span(5.0, 6.0, 4000.0)]
    lines = [f"{at_s},{'' if bit_s is None else bit_s}" for at_s, bit_s in trace(spans, 8.0)]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    measured = read_trace(tmp_path / "trace.csv")
    assert measured.segment(0) == (8000, 4 * 10**9)
    assert measured.segment(4 * 10**9) == (32_000, 8 * 10**9)


def model_s(row: dict[str, str]) -> float:
    """1000 bytes take 1 s down and 2 s up, and 0.1 s of latency."""
    return int(row["bytes"]) / {"down": 1000, "up": 500}[row["direction"]] + 0.1


def row(kind: str, offered_s: float, finished_s: float, size: int = 1000) -> dict[str, str]:
    direction = "up" if kind == "update" else "down"
    return {
        "direction": direction,
        "kind": kind,
        "bytes": str(size),
        "offered_s": str(offered_s),
        "finished_s": str(finished_s),
    }


def test_a_task_is_a_download_and_the_upload_after_it() -> None:
    rows = [
        row("update", 4.0, 6.0),
        row("task", 0.0, 1.0),
        row("fresh", 2.0, 3.0),
        row("task", 7.0, 8.0),  # cancelled: another task follows without an upload
        row("task", 9.0, 10.0),
        row("update", 11.0, 13.0),
    ]
    found = tasks(rows)
    assert [(task.down, task.fresh, task.up) for task in found] == [
        (rows[1], [rows[2]], rows[0]),
        (rows[4], [], rows[5]),
    ]


def test_a_native_device_pays_for_the_round_trips_of_the_protocol() -> None:
    """Confirmed after 0.2 s, trained for 3 s, offered after 0.1 s, granted after 0.2 s."""
    (task,) = tasks([row("task", 0.0, 1.1), row("update", 4.4, 6.6)])
    down_s, up_s, whole_s = beyond(task, [Span(1.3, 4.3, 64)], [], model_s, 0.1)
    assert (down_s, whole_s) == pytest.approx((0.0, 6.6))
    # between the download and the grant 3.3 s for 3 s of training; 2.2 s for 2.1 s on the link
    assert up_s == pytest.approx(0.3 + 0.1)


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
def test_the_rates_times_the_wires_share_give_a_transfer_its_whole_time() -> None:
    """1000 bytes in 1 s on the wire, and 0.25 s of other things."""
    rates = {way: LinkRate(8000.0, 8000.0, 8000.0) for way in ("up", "down")}
    sizes = {"up": 1000.0, "down": 1000.0}
    link = LinkProfile(rates, 0.1, 0.0, {}, {}, Rest(-0.1, 0.25, 0.1), sizes)
    assert link.whole_share("up") == 0.8 and 1000 * 8 / (0.8 * 8000) == 1.25
    assert link.whole_share("down") == 1.0  # never faster than the wire


# ------------------------------------------------------------------ devices
@pytest.mark.parametrize(
    ("parts", "overhead"),
    [
        ([(100, 1.5), (200, 2.5), (400, 4.5)], 0.5),
        ([(100, 0.5), (200, 1.5)], 0.0),  # the line is below 0 at no samples
        ([(100, 1.0), (120, 1.2)], None),  # too alike
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
    assert lacks("a", [run(edge)], links=False, device=True) == []
