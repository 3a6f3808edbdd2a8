"""Tests of the export to Perfetto: the lanes, the counters, and the rules of its reader."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest
from builders import small_run
from paths import ROOT
from tdma_rounds import play, slotted
from trace_check import check_trace

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.plugins.exports.perfetto import write
from edgefl.results.read import read_csv
from edgefl.results.timeline import of_run, rates_bit_s


def trace_of(runs: dict[str, Path], place: Path) -> dict[str, Any]:
    assert write(runs, str(place)) == [str(place)]
    return orjson.loads(place.read_bytes())


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three strategies of the quickstart, for a short time on the virtual clock."""
    folder = tmp_path_factory.mktemp("quickstart")
    path = ROOT / "configs" / "quickstart.toml"
    given = load(path, ["stop.emulated_s=4"]).by_seed()[0]
    learned, runs = learning(given, path.parent), {}
    for index, entry in enumerate(given.strategies):
        runs[entry.name] = folder / entry.name
        run_virtual(learned, index, runs[entry.name])
    return runs


def test_the_quickstart(quickstart: dict[str, Path], tmp_path: Path) -> None:
    run = quickstart["fedasync"]
    trace = trace_of({"fedasync": run}, tmp_path / "trace.json")
    counts = check_trace(trace)
    events, found = trace["traceEvents"], of_run(run)
    going_on = [each for each in found.open_slices() if each.begin_s < found.emulated_s]
    assert counts["X"] == len(found.slices) + len(going_on) > 50
    names = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert names == ["coordinator", *(f"e{number:03}" for number in range(10))]
    counters = {f"{e['name']} {next(iter(e['args']))}" for e in events if e["ph"] == "C"}
    rates = {"uplinks Mbit/s", "downlinks Mbit/s"}
    assert counters == {"model version", "update staleness", "test accuracy"} | rates
    sent = sum(each["args"].get("bytes", 0) for each in events if each["ph"] == "X")
    assert sent == sum(int(row["bytes"]) for row in read_csv(run / "links.csv"))


def test_the_rate_of_all_uplinks_holds_their_bytes(quickstart: dict[str, Path]) -> None:
    found = of_run(quickstart["fedasync"])
    points = rates_bit_s(found.slices)["uplink"]
    bits = sum(rate * (after - t) for (t, rate), (after, _) in itertools.pairwise(points))
    rows = read_csv(quickstart["fedasync"] / "links.csv")
    assert bits == pytest.approx(8 * sum(int(r["bytes"]) for r in rows if r["direction"] == "up"))
    assert max(rate for _, rate in points) <= 10 * 1e6 and points[-1][1] == 0


def test_a_broadcast_counts_once_in_the_rate_of_all_downlinks(tmp_path: Path) -> None:
    """Six devices on a channel: each model goes to several of them at once."""
    play(tmp_path, slotted(6, 2, slots=30, strategy="tdma-fl", per_round=2))
    run = tmp_path / "tdma-fl"
    trace = trace_of({"tdma-fl": run}, tmp_path / "trace.json")
    counted = [each for each in trace["traceEvents"] if each["name"] == "downlinks"]
    points = [(each["ts"] / 1e6, 1e6 * each["args"]["Mbit/s"]) for each in counted]
    bits = sum(rate * (after - t) for (t, rate), (after, _) in itertools.pairwise(points))
    rows = [row for row in read_csv(run / "links.csv") if row["direction"] == "down"]
    assert {row["edge"] for row in rows} == {"*"}
    assert bits == pytest.approx(8 * sum(int(row["bytes"]) for row in rows), rel=1e-3)


FAULTS = [
    {"kind": "slow", "edges": ["a"], "at_s": 1.0, "for_s": 3.0, "factor": 0.5},
    {"kind": "cut", "edges": ["a"], "at_s": 2.0, "for_s": 4.0},
    {"kind": "kill", "edges": ["b"], "at_s": 2.0, "for_s": 9.0},
    {"kind": "freeze", "edges": ["c"], "at_s": 4.0, "for_s": 3.0},
]


@pytest.mark.slow
def test_faults_have_lanes_of_their_own(tmp_path: Path) -> None:
    _, run = small_run(tmp_path, faults=FAULTS, stop={"emulated_s": 20.0})
    trace = trace_of({"fedavg": run}, tmp_path / "trace.json")
    check_trace(trace)
    faults = {
        each["name"]: (each["ts"], each["ts"] + each["dur"])
        for each in trace["traceEvents"]
        if each.get("cat") == "fault"
    }
    assert faults == {
        "slow": (1_000_000, 4_000_000),
        "cut": (2_000_000, 6_000_000),
        "kill": (2_000_000, 11_000_000),
        "freeze": (4_000_000, 7_000_000),
    }
    lanes = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert lanes[:3] == ["compute", "uplink", "downlink"] and "fault: cut" in lanes


def test_a_run_that_was_killed_goes_as_far_as_its_rows(
    quickstart: dict[str, Path], tmp_path: Path
) -> None:
    """Cut in the middle of a line, and without the files of a run's end."""
    run = tmp_path / "fedasync"
    run.mkdir()
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        data = (quickstart["fedasync"] / name).read_bytes()
        (run / name).write_bytes(data[: len(data) // 2])
    trace = trace_of({"fedasync": run}, tmp_path / "trace.json")
    assert check_trace(trace)["X"] > 30
    ends = [each["ts"] + each["dur"] for each in trace["traceEvents"] if each["ph"] == "X"]
    assert max(ends) <= of_run(run).emulated_s * 1e6 + 1


def test_bad_places_and_empty_runs(quickstart: dict[str, Path], tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "trace.png"):
        with pytest.raises(UserError, match=r"expected a file that ends in \.json or \.json\.gz"):
            write(quickstart, str(out))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "events.jsonl").touch()
    with pytest.raises(UserError, match=r"empty: nothing to export: no edge has joined yet"):
        write({"empty": tmp_path / "empty"}, str(tmp_path / "trace.json"))
