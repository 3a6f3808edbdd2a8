"""Traces: exact replay of mahimahi's format and CSV over any number of periods; refused input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.service import bytes_served, served_at
from emulator.capacity.trace import Trace, mahimahi_steps, read_trace
from emulator.errors import BadValue
from emulator.units import NS_PER_S

MS = NS_PER_S // 1000


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40)
    .map(sorted)
    .filter(lambda moments: moments[-1] > 0)
)
def test_mahimahi_carries_the_bytes_of_the_file_at_every_ms(moments: list[int]) -> None:
    trace = Trace(mahimahi_steps(str(ms) for ms in moments))
    period = moments[-1]
    for ms in range(3 * period + 1):
        chances = sum(
            1 for lap in range(5) for moment in moments if 0 < lap * period + moment <= ms
        )
        assert bytes_served(trace, 0, ms * MS) == 1500 * chances
    in_order = sorted(
        lap * period + moment for lap in range(3) for moment in moments if lap * period + moment
    )
    for index, ms in enumerate(
        in_order, 1
    ):  # the last of several in a ms is at its end, the others are inside
        assert (ms - 1) * MS < served_at(trace, 0, 1500 * index) <= ms * MS


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        # the last one is as long as the one before
        ("0,8000\n0.5, 0\n0.75,16000", [(8000, 500 * MS), (0, 250 * MS), (16000, 250 * MS)]),
        ("0,8000\n0.5,0\n0.75,16000\n2,", [(8000, 500 * MS), (0, 250 * MS), (16000, 1250 * MS)]),
        ("0,1\n13,2\n15,3", [(1, 13 * NS_PER_S), (2, 2 * NS_PER_S), (3, 2 * NS_PER_S)]),
    ],
)
def test_csv_by_hand(tmp_path: Path, rows: str, steps: list[tuple[int, int]]) -> None:
    (tmp_path / "a.csv").write_text(f"seconds,bit_s\n{rows}\n")
    trace, at_ns = read_trace(tmp_path / "a.csv"), 0
    for rate_bit_s, length_ns in steps:
        assert trace.segment(at_ns) == (rate_bit_s, at_ns + length_ns)
        at_ns += length_ns
    assert trace.period_ns == at_ns


def test_silence_is_warned_of() -> None:
    assert Trace([(1, 1), (0, NS_PER_S)]).warnings == ()
    quiet = Trace([(0, NS_PER_S), (1, 5), (0, 600 * MS)], "lift.csv")
    assert (quiet.dead_ns, len(quiet.warnings)) == (1600 * MS, 1)  # across the end of the period
    assert (
        quiet.warnings[0]
        == "lift.csv: nothing for 1.600000000 s from 1.000000005 s on (more than 1.000000000 s)"
    )
    assert Trace([(0, NS_PER_S), (1, 5), (0, 600 * MS)], dead_limit_ns=2 * NS_PER_S).warnings == ()
    assert Trace([(8, 1)]).dead_ns == 0


def test_a_trace_says_how_often_it_repeats(tmp_path: Path) -> None:
    said = {
        "open.csv": "0,1\n13,2\n15,3\n",
        "ended.csv": "0,1\n13,2\n15,\n",
        "a.trace": "1\n2500\n",
    }
    for name, text in said.items():
        (tmp_path / name).write_text(text)
    assert [read_trace(tmp_path / name).repeats for name in said] == [
        "repeats every 17 s: its last row lasts 2 s, like the row before (a row with a time and no"
        " rate would end it)",
        "repeats every 15 s",
        "repeats every 2.5 s",
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t", "", "empty"),
        ("t", "1\n3\n2\n", "line 3: 2 ms comes after 3 ms"),
        ("t", "0\n0\n", "ends at 0 ms"),
        ("t", "1\n-3\n", "line 2: '-3': expected whole milliseconds"),
        ("t.csv", "0,1\n2,1\n2,1\n", "line 3: 2.000000000 s does not come after 2.000000000 s"),
        ("t.csv", "0,1\n2\n", "line 2: '2': expected seconds,bit_s"),
        ("t.csv", "0,1\n2,-5\n", "line 2"),
        ("t.csv", "0,1\n1,\n2,5\n", "line 2: no rate"),
        ("t.csv", "1,1\n2,1\n", "begins at 1.000000000 s"),
        ("t.csv", "0,1\n", "one row has no period"),
        ("t.csv", "0,0\n1,0\n", "all rates are 0"),
    ],
)
def test_bad_traces_are_one_line_with_the_file(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadValue) as caught:
        read_trace(path)
    message = str(caught.value)
    assert str(path) in message and words in message and "\n" not in message


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="No such file"):
        read_trace(tmp_path / "nothing")
    with pytest.raises(BadValue, match="longer than 0"):
        Trace([(1, 0)])
