"""The live page's server as the user starts it: beside a run, and of runs that are there."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
import small_run
from processes import PATIENCE_S, happened, start, wait_for
from terminals import end, family, gone

from edgefl.results.read import read_csv

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.processes

LONG = ("stop.versions=1000000", "stop.emulated_s=100000")


def address(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The port and the path of the page that a command prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)(/[\w-]{20,}/)$", line.rstrip()):
            return int(found[1]), found[2]
    raise AssertionError("no page")


@contextmanager
def asked(port: int, path: str) -> Iterator[HTTPResponse]:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path)
    yield connection.getresponse()
    connection.close()


def events(stream: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ""
    while line := stream.readline().decode():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            yield kind, orjson.loads(line.removeprefix("data: "))


def test_a_growing_run_is_shown_as_it_grows(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    run = small_run.write(folder / "runs" / "small" / "fedasync")
    process = start(started, "view", "runs", "--port", "0")
    port, path = address(process)
    with asked(port, "/") as refused:
        assert refused.status == 403 and b"needs its token" in refused.read()
    with asked(port, f"{path}api/stream") as stream:
        updates = (data for kind, data in events(stream) if kind == "update")
        assert next(updates)["head"]["version"] == 0
        small_run.go_on(run)
        found = next(data for data in updates if data["head"]["version"] == 1)
        assert not found["full"]
        small_run.end(run)
        assert next(data for data in updates if data["state"] == "finished")["head"]["version"] == 2
        taken = end(start(started, "view", "runs", "--port", str(port)))
        line = f"edgefl: --port {port}: port {port} of 127.0.0.1 is taken by another program"
        assert taken == (2, "", f"{line}: expected a free one, or 0 for any\n")
        process.send_signal(signal.SIGINT)
        assert ("bye", {}) in list(events(stream))
    status, out, err = end(process)
    assert (status, err) == (0, "") and out.endswith("next: edgefl report runs\n")


def test_a_page_beside_a_run_ends_with_it(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = start(started, "run", "small.toml", "--live", "0", "stop.versions=6")
    port, path = address(process)
    server = server_of(process, port)
    with asked(port, f"{path}api/stream") as stream:
        found = list(events(stream))
    assert found[-1] == ("bye", {}), "the stream has ended in order"
    last = [data for kind, data in found if kind == "update"]
    assert last[-1]["state"] == "finished" and last[-1]["head"]["version"] == 6
    assert last[-1]["fidelity"]["verdict"] is not None
    versions = [data["head"]["version"] for data in last]
    assert versions == sorted(versions)
    assert end(process)[0] == 0
    assert gone([server])


def test_a_server_whose_run_is_killed_ends_and_the_run_can_be_viewed(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    first = start(started, "run", "small.toml", "--clock", "virtual", "--live=0", *LONG)
    first_port, _ = address(first)
    run = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: happened(run, event="update_arrived") and read_csv(run / "metrics.csv"))
    server = server_of(first, first_port)
    others = [process for process in family(first) if process != server]
    for process in others:
        process.kill()
    assert gone([*others, server])
    first.communicate()
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 99999.0, "fa')
    port, path = address(process := start(started, "view", str(run), "--port", "0"))
    with asked(port, f"{path}api/stream") as stream:
        (update,) = [next(data for kind, data in events(stream) if kind == "update")]
    assert update["head"]["received"] >= 1 and update["slices"] and update["metrics"]
    assert update["fidelity"]["verdict"] is None and "finished" not in update
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 0


def server_of(process: subprocess.Popen[str], port: int) -> psutil.Process:
    """The child process that listens on ``port``."""
    for child in psutil.Process(process.pid).children(recursive=True):
        listening = [each for each in child.net_connections() if each.status == "LISTEN"]
        if port in {each.laddr.port for each in listening}:
            return child
    raise AssertionError(f"no process listens on {port}")
