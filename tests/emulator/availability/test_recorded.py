"""Recorded availability in each format, on small files made by hand; refused files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from emulator.availability.away_times import Presence
from emulator.availability.recorded import recorded_presence
from emulator.errors import BadValue
from emulator.units import NS_PER_S

S = NS_PER_S
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
        ("a.csv", CSV + "e000,9,soon\n", "line 5: expected edge,begin_s,end_s"),
        ("a.csv", CSV + "e000,9,8\n", "line 5: expected an edge and two times in order"),
        ("a.csv", CSV + "e000,1,inf\n", "line 5: expected an edge and two times in order"),
        ("a.json", "{", "expected JSON"),
        ("a.json", "[]", "expected an object of clients"),
        ("a.json", '{"1": {"a": 2}}', "expected clients with ready_time (FLHetBench) or active"),
        ("a.json", changed(FEDSCALE, "1", inactive=[1]), "client 1: expected as many inactive"),
        ("a.json", changed(FEDSCALE, "1", finish_time=None), "client 1: not a client of fedscale"),
        (
            "a.json",
            changed(FEDSCALE, "1", active=[1, 3], inactive=[4, 5]),
            "client 1: interval 3 to 5 s overlaps",
        ),
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
