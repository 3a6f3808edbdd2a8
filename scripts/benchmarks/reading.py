"""What it takes to read a long run again: report, Parquet, timeline, and the page's first picture.

    python scripts/benchmarks/reading.py [--json FILE] [--events N] [--turns N] [--run DIR]

The run is made under the virtual clock; with --run it is one that is there. Each number is the CPU
time of a whole command (user and system), the least of the turns. The page's is that of its server
from the request until a message has the whole run. Goals are multiples of plain reading, which is
measured in the same turns: parsing each line of events.jsonl, and nothing else. For 200,000 events
they stand for 3, 1.5, 2 and 1 s where plain reading takes 0.104 s.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil
import tomli_w
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.errors import UserError
from edgefl.record.files import EVENTS, SUMMARY

EDGES, EVENTS_PER_S = 100, 143  # of the run, and of an emulated second of it
MB = 1e6
PATIENCE_S = 60.0
ADDRESS = re.compile(r"http://\S+/")
GOALS = {"report": 29.0, "parquet": 14.5, "timeline": 19.0, "page": 9.6}


def config(seconds: float) -> dict[str, object]:
    """Return an experiment that sends and writes much, and trains nothing."""
    return {
        "name": "live",
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"trainer": "none"},
        "partition": {"name": "iid"},
        "edges": {"count": EDGES},
        "links": {"up_mbit_s": 1.0, "down_mbit_s": 2.0, "latency_ms": 5.0},
        "devices": {"samples_per_s": 1000.0 / EDGES, "slowest_ratio": 2.0},
        "evaluation": {"every_versions": 20},
        "stop": {"emulated_s": seconds},
        "strategies": [{"strategy": "fedbuff", "concurrency": EDGES, "buffer_size": 10}],
    }


def edgefl(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edgefl.cli", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the page's address that a command prints."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return found[0]
        printed += line
    raise UserError(f"no page: {printed}")


def make(folder: Path, events: int) -> Path:
    """Return the directory of a run of about so many events."""
    seconds = max(events / EVENTS_PER_S, 5.0)
    (folder / "live.toml").write_text(tomli_w.dumps(config(seconds)))
    say(f"{seconds:.0f} emulated s with {EDGES} edges under the virtual clock")
    process = edgefl(folder, "run", "live.toml", "--clock", "virtual")
    printed = process.communicate()[0]
    found = folder / "runs" / "live" / "fedbuff"
    if not (found / SUMMARY).is_file():
        raise UserError(f"the run did not end: {printed[-300:]}")
    return found


def plain(directory: Path) -> tuple[float, float]:
    """CPU seconds of parsing each line of events.jsonl; no memory is measured."""
    lines = (directory / EVENTS).read_bytes().split(b"\n")[:-1]
    began_s = time.process_time()
    for line in lines:
        orjson.loads(line)
    return time.process_time() - began_s, 0.0


def command(*words: str) -> tuple[float, float]:
    """CPU seconds and most MB of an edgefl command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edgefl.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise UserError(f"edgefl {' '.join(words)}: {said.decode(errors='replace')[-300:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MB


def page(directory: Path) -> tuple[float, float]:
    """CPU seconds of the page's server until a message has the whole run, and its MB then."""
    updates = orjson.loads((directory / SUMMARY).read_bytes())["updates_received"]
    process = edgefl(directory, "view", str(directory), "--port", "0")
    try:
        where, server = urlsplit(address_of(process)), psutil.Process(process.pid)
        before_s = _cpu_s(server)
        connection = HTTPConnection("127.0.0.1", where.port or 0, timeout=PATIENCE_S)
        connection.request("GET", f"{where.path}api/stream")
        answer = connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"data: ") and _received(line[6:]) >= updates:
                connection.close()
                return _cpu_s(server) - before_s, server.memory_info().rss / MB
        raise UserError(f"{directory}: the page ended before the run was read")
    finally:
        process.kill()
        process.wait()


def _received(data: bytes) -> int:
    found: int = orjson.loads(data).get("head", {}).get("received", -1)
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def measured(directory: Path, out: Path, turns: int) -> list[Row]:
    """Measure all in turns, so that what else the machine does meets all of them alike."""
    works: dict[str, Callable[[], tuple[float, float]]] = {
        "plain": lambda: plain(directory),
        "report": lambda: command(
            *("report", str(directory), "--out", str(out / "report.html"), "--overwrite")
        ),
        "parquet": lambda: command(
            *("export", str(directory), "--to", "parquet", "--out", str(out / "tables")),
            "--overwrite",
        ),
        "timeline": lambda: command(
            *("plot", str(directory), "--kind", "timeline", "--out", str(out / "timeline.svg")),
            "--overwrite",
        ),
        "page": lambda: page(directory),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    memory: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns):
        for name, work in works.items():
            took_s, most = work()
            seconds[name].append(took_s)
            memory[name].append(most)
            say(f"turn {turn + 1} of {turns}, {name}: {took_s:.2f} s of CPU")
    least = {name: min(times) for name, times in seconds.items()}
    return [
        Row("plain reading", least["plain"], "s"),
        *(Row(f"{name}", least[name], "s") for name in GOALS),
        *(
            Row(f"{name}, of plain reading", least[name] / least["plain"], TIMES, f"<= {goal:g}")
            for name, goal in GOALS.items()
        ),
        *(Row(f"memory: {name}", max(memory[name]), "MB") for name in GOALS),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=200_000, metavar="N", help="default: 200000")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run directory that is there")
    chosen, host = parser.parse_args(), host_line()
    if min(chosen.events, chosen.turns) < 1:
        raise UserError("--events and --turns: expected 1 or more")
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-reading-"))
        folder = Path(place)
        directory = make(folder, chosen.events) if chosen.run is None else chosen.run.absolute()
        events = (directory / EVENTS).read_bytes()
        rows = [
            Row("rows of events.jsonl", events.count(b"\n")),
            Row("events.jsonl", len(events) / MB, "MB"),
            *measured(directory, folder, chosen.turns),
            Row("load after", float(load())),
        ]
    report("Reading a long run again", host, rows, chosen.json)


if __name__ == "__main__":
    run(main)
