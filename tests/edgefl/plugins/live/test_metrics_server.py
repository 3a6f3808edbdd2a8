"""The state of running runs as Prometheus metrics, and their server."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import small_run

from edgefl.errors import UserError
from edgefl.plugins.live.metrics_server import RunMetrics, metrics_app
from edgefl.plugins.live.serve import metrics_page
from edgefl.results.compare import load_run

Values = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, directory = small_run(tmp_path_factory.mktemp("runs"), stop={"versions": 5})
    return directory


def scraped(metrics: RunMetrics) -> Values:
    """Each value of the text by its name, run and other label."""
    client = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.parser")
    registry = client.CollectorRegistry()
    registry.register(metrics)
    text = client.generate_latest(registry).decode()
    return {
        (sample.name, sample.labels.pop("run"), *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_numbers_are_those_of_the_table(run: Path) -> None:
    found, row = scraped(RunMetrics(run.parent)), load_run(run, "fedavg")
    name = "fedavg"
    assert found["edgefl_version", name] == row.versions == 5
    assert found["edgefl_accuracy", name] == pytest.approx(row.final_accuracy)
    assert found["edgefl_updates_total", name, "received"] == row.updates_received
    assert found["edgefl_updates_total", name, "applied"] == row.updates_applied
    assert found["edgefl_bytes_total", name, "up"] == row.bytes_up
    assert found["edgefl_bytes_total", name, "down"] == row.bytes_down
    assert found["edgefl_finished", name] == 1
    assert found["edgefl_emulated_seconds", name] == pytest.approx(row.emulated_s)
    assert found["edgefl_staleness_versions_count", name] == row.updates_received
    assert found["edgefl_staleness_versions_bucket", name, "0.0"] == row.updates_received
    states = [value for key, value in found.items() if key[0] == "edgefl_edges"]
    assert sum(states) == 3


def test_a_run_that_grows_and_is_begun_anew(run: Path, tmp_path: Path) -> None:
    """Rows are counted once, however often they are asked for; a new run counts from zero."""
    folder = tmp_path / "experiment"
    metrics = RunMetrics(folder)
    assert not [key for key in scraped(metrics) if "fedavg" in key]  # no run has begun
    copy = folder / "fedavg"
    copy.mkdir(parents=True)
    whole = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    received = []
    for end in (len(whole) // 3, 2 * len(whole) // 3, len(whole), len(whole)):
        (copy / "events.jsonl").write_bytes(b"".join(whole[:end]))
        received.append(scraped(metrics)["edgefl_updates_total", "fedavg", "received"])
    assert received == sorted(received) and received[-1] == received[-2] == 15
    assert 0 < received[0] < received[1] < received[2]
    (copy / "events.jsonl").write_bytes(b"".join(whole[1:12]))
    assert scraped(metrics)["edgefl_version", "fedavg"] == 0
    shutil.rmtree(copy)
    assert not [key for key in scraped(metrics) if "fedavg" in key]


def test_hosts(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "fedavg"
    shutil.copytree(run, copy)
    (copy / "hosts.csv").write_text(
        "emulated_s,edge,host,machine,cpu_percent,temperature_c,throttled\r\n"
        "1.0,a,pi,m1,12.5,61.0,under-voltage\r\n"
        "2.0,b,pc,m2,3.5,,no\r\n"
        "2.0,c,twin,0123456789,4.5,,no\r\n"
        "2.0,d,twin,9876543210,5.5,,no\r\n"
    )
    found = scraped(RunMetrics(tmp_path))
    assert found["edgefl_host_cpu_percent", "fedavg", "pi"] == 12.5
    assert found["edgefl_host_temperature_celsius", "fedavg", "pi"] == 61.0
    assert found["edgefl_host_throttled", "fedavg", "pi"] == 1
    assert found["edgefl_host_throttled", "fedavg", "pc"] == 0
    assert ("edgefl_host_temperature_celsius", "fedavg", "pc") not in found
    assert found["edgefl_host_cpu_percent", "fedavg", "twin (012345)"] == 4.5
    assert found["edgefl_host_cpu_percent", "fedavg", "twin (987654)"] == 5.5


def test_a_damaged_part_is_told(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "fedavg"
    shutil.copytree(run, copy)
    metrics = RunMetrics(tmp_path)
    assert scraped(metrics)["edgefl_damaged", "fedavg"] == 0
    (copy / "links-000001.csv.gz").write_bytes(b"no gzip")
    assert scraped(metrics)["edgefl_damaged", "fedavg"] == 1
    (copy / "links-000001.csv.gz").unlink()
    assert scraped(metrics)["edgefl_damaged", "fedavg"] == 0


pytest.importorskip("prometheus_client")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", "200 OK"),
        ("[::1]:9100", "200 OK"),
        ("127.0.0.1.evil.example", "403 Forbidden"),
        ("", "403 Forbidden"),
    ],
)
def test_only_names_of_this_machine_are_answered(host: str, status: str, tmp_path: Path) -> None:
    said: list[Any] = []
    environ = {"HTTP_HOST": host, "PATH_INFO": "/metrics", "QUERY_STRING": ""}
    environ |= {"REQUEST_METHOD": "GET"}
    answer = metrics_app(tmp_path)(environ, lambda *words: said.append(words))
    body = b"".join(answer)
    assert said[0][0] == status
    assert (b"# TYPE edgefl_version gauge" in body) == (status == "200 OK")


def test_without_its_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    line = "--metrics-port needs the package 'prometheus_client', which is not installed: .*pip"
    with pytest.raises(UserError, match=line), metrics_page(tmp_path, 0):
        pass
