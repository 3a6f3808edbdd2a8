"""Real edge hosts report about this machine to a real coordinator, and a fake Pi throttles."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson
import psutil
import pytest
from host_reports import FACTS, REPORT
from plugs import plug
from processes import Coordinator, Peer, happened, wait_for

from edgefl.protocol.messages import Refuse
from edgefl.results.compare import load_run
from edgefl.results.read import read_csv

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]
EDGES = {"names": ["a", "b"]}
FEDASYNC = [{"strategy": "fedasync"}]


def started(folder: Path, report_s: float = 2.0) -> Coordinator:
    network = {"report_s": report_s}
    return Coordinator(folder, 3, edges=EDGES, strategies=FEDASYNC, network=network)


@pytest.mark.skipif(sys.platform != "linux", reason="one process speaks for a host only on Linux")
def test_a_pi_that_throttles_is_named_in_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "vcgencmd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho throttled=0x50005\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("EDGEFL_HOST", "pi-3")
    coordinator = started(tmp_path)
    for edge in "ab":
        coordinator.echo(edge)
    table = coordinator.directory / "hosts.csv"
    rows = wait_for(lambda: (found := read_csv(table)) and found[2:] and found)
    assert {row["edge"] for row in rows} == {"a", "b"} and {row["host"] for row in rows} == {"pi-3"}
    throttled = [row["edge"] for row in rows if row["throttled"] == "under-voltage+throttled"]
    assert len(set(throttled)) == 1, "one of both edges speaks for their host"
    assert all((row["cpu_percent"] != "") == (row["throttled"] != "") for row in rows)
    assert all(int(row["rss_bytes"]) > 1 << 20 for row in rows)
    facts = {row["edge"]: row for row in happened(coordinator.directory, fact="edge_host")}
    assert facts["a"] | {"edge": "b", "t": 0} == facts["b"] | {"t": 0}
    assert facts["a"]["memory_bytes"] == psutil.virtual_memory().total
    summary = coordinator.end()
    (host,) = summary["hosts"]
    assert (host["edges"], host["interface"]) == (["a", "b"], "lo")
    assert set(host["throttled"]) == {"under-voltage", "throttled"}
    assert summary["fidelity"]["verdict"] == "strained"
    (reason,) = [each for each in summary["fidelity"]["reasons"] if "throttled" in each]
    assert reason.startswith("host pi-3 (edges a, b) throttled: under-voltage in ")
    assert reason in load_run(coordinator.directory, "run").reasons


def test_edges_report_nothing_if_the_config_says_so(tmp_path: Path) -> None:
    coordinator = started(tmp_path, report_s=0.0)
    coordinator.echo("a")
    coordinator.echo("b")
    wait_for(lambda: len(happened(coordinator.directory, event="update_arrived")) >= 100)
    summary = coordinator.end()
    assert "hosts" not in summary and not (coordinator.directory / "hosts.csv").exists()


def test_the_meter_of_a_host_counts_once_for_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plug(b'{"apower": 8.0}') as address:
        monkeypatch.setenv("EDGEFL_METER", address)
        coordinator = started(tmp_path)
        for edge in "ab":
            coordinator.echo(edge)
        table = coordinator.directory / "energy.csv"
        rows = wait_for(lambda: (found := read_csv(table)) and found[1:] and found)
        summary = coordinator.end()
    assert len({row["edge"] for row in rows}) == 1, "one of both edges speaks for their host"
    for row in rows:
        assert row["state"] == "measured"
        seconds = float(row["ended_s"]) - float(row["began_s"])
        assert float(row["joules"]) == pytest.approx(8.0 * seconds, abs=4.0)
    energy = summary["energy"]
    assert energy["kind"] == "measured" and energy["joules"] == energy["measured_joules"] > 0
    assert summary["hosts"][0]["joules"] == energy["joules"]


@pytest.mark.parametrize("message", [FACTS, REPORT], ids=["facts", "reports"])
def test_a_flood_of_reports_costs_an_edge_its_place(tmp_path: Path, message: object) -> None:
    coordinator = started(tmp_path)
    coordinator.echo("a")
    peer = Peer(coordinator.port)
    peer.join("b", coordinator.digests).task()  # the run has begun
    for _ in range(100):
        peer.say(message)
    assert "about the host" in peer.hear(Refuse).reason
    wait_for(lambda: happened(coordinator.directory, event="update_arrived"))
    summary = coordinator.end()
    assert list(summary["fidelity"]["quarantined"]) == ["b"] and summary["updates_applied"] > 0
    assert orjson.loads((coordinator.directory / "summary.json").read_bytes()) == summary
