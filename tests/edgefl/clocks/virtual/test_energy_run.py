"""Energy of whole runs under the virtual clock: by hand, as a stop, and without a trace if off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from builders import small_run

from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.record.files import ENERGY, METRICS
from edgefl.results import energy
from edgefl.results.compare import load_run
from edgefl.results.read import read_csv

UP_BYTE_S, DOWN_BYTE_S, LATENCY_S = 8 / 10_000, 8 / 40_000, 0.01
RADIO = {"idle_w": 0.5, "send_w": 2.5, "receive_w": 1.5}
# edge a: a Pi 4 with a radio; b: other numbers, and only its device; c: costs nothing
GROUPS: list[dict[str, Any]] = [
    {
        "name": "first",
        "count": 1,
        "links": {"radio": RADIO},
        "devices": {"energy": {"profile": "pi4"}, "samples_per_s": 1.0},
    },
    {
        "name": "second",
        "count": 1,
        "devices": {"energy": {"idle_w": 1.0, "compute_w": 11.0}, "samples_per_s": 2.0},
    },
    {"name": "third", "count": 1, "devices": {"samples_per_s": 4.0}},
]
ALL: dict[str, Any] = {
    "links": {"up_mbit_s": 0.01, "down_mbit_s": 0.04, "latency_ms": 10.0, "radio": RADIO},
    "devices": {"samples_per_s": 1.0, "energy": {"idle_w": 1.0, "compute_w": 11.0}},
}


def test_three_edges_by_hand_to_the_joule(tmp_path: Path) -> None:
    """Two rounds of FedAvg: each lasts as long as its slowest edge, a."""
    summary, run = small_run(tmp_path, groups=GROUPS, stop={"versions": 2})
    rows = read_csv(run / "links.csv")
    up, down = (
        next(int(row["bytes"]) for row in rows if row["direction"] == way) for way in ("up", "down")
    )
    samples = {"a": 0, "b": 0}
    for row in read_csv(run / ENERGY):
        if row["state"] == "compute":
            rate = {"a": 1.0, "b": 2.0}[row["edge"]]
            samples[row["edge"]] = round((float(row["ended_s"]) - float(row["began_s"])) * rate)
    assert all(samples.values())
    sent_s, received_s = up * UP_BYTE_S, down * DOWN_BYTE_S
    round_s = LATENCY_S + received_s + samples["a"] / 1.0 + sent_s + LATENCY_S
    assert summary["emulated_s"] == pytest.approx(2 * round_s, abs=1e-6)
    a = {
        "idle_j": (2.7 + 0.5) * 2 * round_s,
        "compute_j": (6.4 - 2.7) * 2 * samples["a"],
        "send_j": (2.5 - 0.5) * 2 * sent_s,
        "receive_j": (1.5 - 0.5) * 2 * received_s,
        "tail_j": 0.0,
    }
    b = {"idle_j": 1.0 * 2 * round_s, "compute_j": (11.0 - 1.0) * 2 * samples["b"] / 2.0}
    b |= {"send_j": 0.0, "receive_j": 0.0, "tail_j": 0.0}
    by_edge = summary["energy"]["by_edge"]
    for edge, expected in (("a", a), ("b", b)):
        found = {key: by_edge[edge][key] for key in expected}
        assert found == pytest.approx(expected, abs=1e-4), edge
        assert by_edge[edge]["joules"] == pytest.approx(sum(expected.values()), abs=1e-4)
    assert set(by_edge) == {"a", "b"}, "c has no model of its energy"
    whole = sum(a.values()) + sum(b.values())
    assert summary["energy"]["kind"] == "modelled"
    assert summary["energy"]["joules"] == pytest.approx(whole, abs=1e-4) and whole > 100


def test_on_a_tdma_channel_slots_and_broadcasts_cost(tmp_path: Path) -> None:
    medium = {"kind": "tdma", "rate_mbit_s": 0.05, "slot_ms": 100.0}
    given: dict[str, Any] = {"strategies": [{"strategy": "tdma-fl", "per_round": 1}]}
    links = {"latency_ms": 10.0, "radio": RADIO}
    summary, run = small_run(
        tmp_path, **ALL | {"links": links}, **given, medium=medium, stop={"versions": 6}
    )
    slots = read_csv(run / "slots.csv")
    for way, state, watts in (("up", "send", 2.0), ("down", "receive", 1.0)):
        seconds = sum(
            float(row["ends_s"]) - float(row["begins_s"])
            for row in slots
            if row["direction"] == way
        )
        by_edge = summary["energy"]["by_edge"].values()
        assert seconds > 0
        # a broadcast has one receiver here: the edge that has just sent
        assert sum(each[f"{state}_s"] for each in by_edge) == pytest.approx(seconds)
        assert sum(each[f"{state}_j"] for each in by_edge) == pytest.approx(watts * seconds)


def test_joules_to_target_are_those_at_its_moment(tmp_path: Path) -> None:
    given = {"target_accuracy": 0.01}
    summary, run = small_run(tmp_path, **ALL, stop={"versions": 2}, evaluation=given)
    reached_s = summary["time_to_target_s"]
    assert reached_s is not None
    rows = [row for row in read_csv(run / METRICS) if float(row["emulated_s"]) == reached_s]
    assert [summary["energy"]["joules_to_target"]] == [float(row["joules"]) for row in rows]
    compared = load_run(run, "run")
    assert compared.joules == summary["energy"]["joules"]
    (run / "summary.json").unlink()  # as after kill -9
    broken = load_run(run, "run")
    assert broken.joules == pytest.approx(compared.joules)
    assert broken.joules_to_target == compared.joules_to_target is not None


def test_a_run_ends_at_its_target_of_joules(tmp_path: Path) -> None:
    target = 333.25
    summary, run = small_run(tmp_path, **ALL, stop={"target_joules": target})
    assert summary["finished"] == "target_joules"
    # transfers that still are under way at the end are not counted
    assert summary["energy"]["joules"] == pytest.approx(target, abs=1e-6)
    assert energy.joules_at(run, [1e9]) == pytest.approx([target], abs=1e-6)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"stop": {"target_joules": 5.0}}, "target_joules"),
        ({"devices": {"energy": {}}}, "idle_w: missing"),
        ({"devices": {"energy": {"profile": "pi44"}}}, "did you mean pi4?"),
        ({"devices": {"energy": {"idle_w": 3.0, "compute_w": 2.0}}}, "at least the idle power"),
        ({"links": {"radio": {"idle_w": 1.0, "send_w": 2.0}}}, "receive_w: missing"),
    ],
    ids=["no model", "no numbers", "near name", "less than idle", "half a radio"],
)
def test_bad_sections_are_one_line(sections: dict[str, Any], said: str, tmp_path: Path) -> None:
    base: dict[str, Any] = {"stop": {"versions": 1}, "strategies": [{"strategy": "fedavg"}]}
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(base | sections))
    with pytest.raises(UserError) as raised:
        load(path)
    assert said in str(raised.value) and "\n" not in str(raised.value)
