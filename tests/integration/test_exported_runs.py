"""Metrics of a running run, and a run that is killed with kill -9 and exported."""

from __future__ import annotations

import re
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import orjson
import psutil
import pytest
from processes import PATIENCE_S, happened, start, wait_for
from terminals import end, family, gone
from trace_check import check_trace

pytestmark = pytest.mark.processes

LONG = ("stop.versions=1000000", "stop.emulated_s=100000")


def metrics_port(process: subprocess.Popen[str]) -> int:
    """The port of the line that a command prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.fullmatch(r"metrics: http://127\.0\.0\.1:(\d+)/metrics", line.rstrip()):
            return int(found[1])
    raise AssertionError("no metrics")


def scraped(port: int) -> dict[str, float]:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def test_metrics_of_a_run_grow_and_their_server_ends_with_it(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    pytest.importorskip("prometheus_client")
    process = start(started, "run", "small.toml", "--clock", "virtual", *LONG, "--metrics-port=0")
    port, name = metrics_port(process), 'edgefl_version{run="fedasync"}'
    wait_for(lambda: scraped(port).get(name, 0) >= 1)
    before = scraped(port)[name]
    wait_for(lambda: scraped(port)[name] > before)
    everyone = family(process)
    process.kill()  # nobody tells the server, but its pipe ends
    assert gone(everyone)


def test_a_taken_port_is_told_before_the_run_begins(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ("run", "small.toml", "--clock", "virtual", "--metrics-port", str(port))
        status, _, err = end(start(started, *words))
    assert status == 2 and f"--metrics-port {port}: port {port} of 127.0.0.1 is taken" in err
    assert err.count("\n") == 1 and not (folder / "runs").exists()


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_a_killed_run_is_exported_as_far_as_it_got(
    folder: Path, started: list[subprocess.Popen[str]], clock: str
) -> None:
    process = start(started, "run", "small.toml", "--clock", clock, *LONG)
    run = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: happened(run, event="update_arrived"))
    everyone = [psutil.Process(process.pid), *family(process)]
    for each in everyone:
        each.kill()
    process.communicate()
    assert gone(everyone)
    status, out, err = end(start(started, "export", str(run), "--to", "perfetto"))
    assert (status, err) == (0, "") and out.startswith("trace.json\nnext: open trace.json at ")
    counts = check_trace(orjson.loads((folder / "trace.json").read_bytes()))
    assert counts["X"] >= 3 and counts["i"] >= 1 and counts["C"] >= 2
    for to in ("parquet", "tensorboard"):
        status, _, err = end(start(started, "export", str(run), "--to", to))
        assert (status, err) == (0, ""), to
