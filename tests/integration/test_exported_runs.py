"""Metrics of a running run, and a run that is killed with kill -9 and exported."""

from __future__ import annotations

import re
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import pytest
from processes import PATIENCE_S, start, wait_for
from terminals import family, gone

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
