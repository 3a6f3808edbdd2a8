"""Times away: patterns, random ones, and recorded ones in each format; refused input."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.availability import (
    ExponentialAbsences,
    Presence,
    periodic_absences,
    presence,
    recorded_presence,
)
from emulator.errors import BadValue
from emulator.faults import Fault, poisson_faults
from emulator.units import FOREVER, NS_PER_S

S = NS_PER_S


def away_share(absences: Iterable[Fault], until_ns: int) -> float:
    known = itertools.takewhile(lambda fault: fault.at_ns < until_ns, absences)
    return sum(min(fault.until_ns, until_ns) - fault.at_ns for fault in known) / until_ns


def first(absences: Iterable[Fault], count: int) -> list[tuple[float, float]]:
    return [(each.at_ns / S, each.until_ns / S) for each in itertools.islice(absences, count)]


def test_a_pattern_by_hand() -> None:
    pattern = presence([(6, 8), (1, 3)], 10, "p")
    assert pattern == Presence(((S, 3 * S), (6 * S, 8 * S)), 10 * S)
    assert first(periodic_absences("e", pattern), 4) == [(0, 1), (3, 6), (8, 11), (13, 16)]
    over_the_end = presence([(0, 2), (9, 10)], 10, "p")
    assert first(periodic_absences("e", over_the_end), 2) == [(2, 9), (12, 19)]
    assert pattern.share == 0.4 == 1 - away_share(periodic_absences("e", pattern), 10 * S)


def test_scaled_and_moved() -> None:
    pattern = presence([(1, 3), (6, 8)], 10, "p")
    assert first(periodic_absences("e", pattern.scaled(0.1)), 2) == [(0, 0.1), (0.3, 0.6)]
    assert pattern.later(3 * S) == Presence(((0, S), (4 * S, 6 * S), (9 * S, 10 * S)), 10 * S)
    assert pattern.later(10 * S) == pattern


def test_random_times_follow_the_seed_and_their_means() -> None:
    def drawn(seed: int) -> ExponentialAbsences:
        return ExponentialAbsences("e", np.random.default_rng(seed), 30 * S, 10 * S)

    assert first(drawn(1), 5) == first(drawn(1), 5) != first(drawn(2), 5)
    assert away_share(drawn(3), 100_000 * S) == pytest.approx(0.25, abs=0.02)
    starts = [next(drawn(seed)).at_ns == 0 for seed in range(400)]
    assert np.mean(starts) == pytest.approx(0.25, abs=0.07), "away at the start as often as later"


def test_a_scale_that_no_run_reaches_is_refused() -> None:
    with pytest.raises(BadValue, match=r"scale 1e\+300: makes a period of more than"):
        Presence(((0, 5),), 10).scaled(1e300)


@pytest.mark.parametrize(
    "faults",
    [
        ExponentialAbsences("e", np.random.default_rng(1), NS_PER_S, 2**70),
        poisson_faults(np.random.default_rng(1), "e", "cut", NS_PER_S, FOREVER),
    ],
)
def test_an_interruption_without_an_end_is_the_last_one(faults: Iterable[Fault]) -> None:
    (last,) = faults
    assert 0 <= last.at_ns < 60 * NS_PER_S and last.until_ns == FOREVER


@pytest.mark.parametrize(
    ("intervals", "period", "words"),
    [
        ([(1, 3), (2, 4)], 10, "p: interval 2 to 4 s overlaps the one before, which ends at 3 s"),
        ([(3, 1)], 10, "expected times in order, from 0 to 10 s"),
        ([(1, 2)], 0, "expected a period above 0 s"),
    ],
)
def test_refused_intervals(intervals: list[tuple[float, float]], period: float, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        presence(intervals, period, "p")
    assert words in str(caught.value)


CSV = "edge,begin_s,end_s\ne000,0,3\ne001,2,5\ne000,4,8\n"
FLHETBENCH: dict[str, Any] = {
    "681": {
        "isSuccess": True,
        "trace_start": 100.0,
        "trace_end": 110.0,
        "ready_time": [[101.0, 103.0], [105.0, 105.0], [106.0, 110.0]],
    },
    "682": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
}
# the times of FedScale's own test, with one more that is empty
FEDSCALE: dict[str, Any] = {
    "1": {"duration": 9, "active": [1, 3, 6, 9], "inactive": [1, 4, 7, 10], "finish_time": 10}
}


def read(
    folder: Path, text: str, name: str, format_name: str | None = None, period: float | None = None
) -> dict[str, Presence]:
    (folder / name).write_text(text)
    return recorded_presence(folder / name, format_name, period)


def test_csv_has_one_period_for_all(tmp_path: Path) -> None:
    assert read(tmp_path, CSV, "a.csv") == {
        "e000": Presence(((0, 3 * S), (4 * S, 8 * S)), 8 * S),
        "e001": Presence(((2 * S, 5 * S),), 8 * S),
    }
    assert read(tmp_path, CSV, "a.csv", period=20)["e001"].period_ns == 20 * S


def test_flhetbench_begins_where_the_recording_begins(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(FLHETBENCH), "a.json") == {
        "681": Presence(((S, 3 * S), (6 * S, 10 * S)), 10 * S)
    }


def test_fedscale_is_there_from_active_to_inactive(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(FEDSCALE), "a.json") == {
        "1": Presence(((3 * S, 4 * S), (6 * S, 7 * S), (9 * S, 10 * S)), 10 * S)
    }


def changed(clients: dict[str, Any], client: str, **values: Any) -> str:
    return json.dumps(clients | {client: clients[client] | values})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", CSV + "e000,7,9\n", "edge e000: interval 7 to 9 s overlaps the one before"),
        ("a.csv", CSV + "e000,9\n", "line 5: expected edge,begin_s,end_s such as e000,0,3600"),
        ("a.csv", CSV + "e000,9,8\n", "line 5: expected an edge and two times in order"),
        ("a.csv", CSV + "9" * 200_000, "is no CSV (field larger than field limit"),
        ("a.json", "{", "expected JSON"),
        ("a.json", "[" * 100_000, "expected JSON"),
        ("a.json", "[]", "expected an object of clients"),
        ("a.json", '{"1": {"a": 2}}', "expected clients with ready_time (FLHetBench) or active"),
        ("a.json", changed(FEDSCALE, "1", inactive=[1]), "client 1: expected as many inactive"),
        ("a.json", changed(FEDSCALE, "1", finish_time=None), "client 1: not a client of fedscale"),
        ("a.json", changed(FEDSCALE, "1", finish_time=10**400), "client 1: not a client of"),
        ("a.json", json.dumps({"682": FLHETBENCH["682"]}), "no client has a usable recording"),
    ],
)
def test_bad_files_are_one_line(name: str, text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadValue) as caught:
        read(tmp_path, text, name)
    message = str(caught.value)
    assert str(tmp_path / name) in message and words in message and "\n" not in message


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "client_behave_trace").write_bytes(pickle.dumps(FEDSCALE))
    with pytest.raises(BadValue, match="it is a pickle, which can run code and is never read"):
        recorded_presence(tmp_path / "client_behave_trace")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be read"):
        recorded_presence(tmp_path / "nothing.csv")
    with pytest.raises(BadValue, match="format 'fedscal' does not exist: did you mean fedscale"):
        read(tmp_path, json.dumps(FEDSCALE), "a.json", "fedscal")
    with pytest.raises(BadValue, match="a period is only for CSV"):
        read(tmp_path, json.dumps(FEDSCALE), "a.json", period=3)
