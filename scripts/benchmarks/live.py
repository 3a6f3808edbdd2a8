"""What the live page costs a run, and how much memory it takes.

    python scripts/benchmarks/live.py [--json FILE] [--edges N] [--turns N] [--browser] ...

First the same run on the wall clock, in turns without and with --live and a reader of the page:
the CPU time of the coordinator's process, and the verdict. Then an hour of events under the virtual
clock, which a server, a reader and maybe the page in a browser follow: their memory.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from threading import Event, Thread
from urllib.parse import urlsplit

import orjson
import psutil
import tomli_w
from live_browser import Browser
from table import Row, arguments, host_line, load, report, run, say

from edgefl.errors import UserError
from edgefl.results.statistics import interval

COORDINATOR, SERVER = "coordinator", "server"
CPU_GOAL, GROWTH_GOAL, MESSAGE_GOAL = "<= 2", "<= 40", "<= 4"  # percent, MB, MB
LOOK_S, PATIENCE_S = 0.1, 60.0
MB = 1e6
ADDRESS = re.compile(r"http://\S+/")


def config(edges: int, seconds: float, speed: float = 1.0) -> dict[str, object]:
    """Return an experiment that sends and writes much, and trains nothing."""
    return {
        "name": "live",
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"trainer": "none"},
        "partition": {"name": "iid"},
        "edges": {"count": edges},
        "links": {"up_mbit_s": 1.0, "down_mbit_s": 2.0, "latency_ms": 5.0},
        "devices": {"samples_per_s": 1000.0 / edges, "slowest_ratio": 2.0},
        "evaluation": {"every_versions": 20},
        "speed": speed,
        "stop": {"emulated_s": seconds},
        "strategies": [{"strategy": "fedbuff", "concurrency": edges, "buffer_size": 10}],
    }


@dataclass(slots=True)
class Reader:
    """A page that is open: reads the stream of events, and keeps nothing but its size."""

    address: str
    messages: int = 0
    bytes: int = 0
    largest: int = 0
    bye: bool = False
    over: Event = field(default_factory=Event)

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    def read(self) -> None:
        where = urlsplit(self.address)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with suppress(OSError):
            connection.request("GET", f"{where.path}api/stream")
            answer = connection.getresponse()
            while not self.over.is_set() and (line := answer.readline()):
                self.messages += line.startswith(b"event: update")
                self.bye = self.bye or line.startswith(b"event: bye")
                self.bytes += len(line)
                self.largest = max(self.largest, len(line))
        connection.close()


@contextmanager
def reading(address: str) -> Iterator[Reader]:
    reader = Reader(address)
    thread = Thread(target=reader.read, daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        reader.over.set()
        thread.join(PATIENCE_S)


def edgefl(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edgefl.cli", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the page's address that a command prints."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return found[0]
        said += line
    raise UserError(f"no page: {said}")


# ------------------------------------------------------------------ the coordinator's CPU
@dataclass(slots=True)
class Turn:
    """One run: CPU seconds of its coordinator and of the page's server, and its verdict."""

    cpu_s: dict[str, float]
    verdict: str
    lag_ms: float  # 99th percentile of the transfers
    updates: int
    reader: Reader | None = None


def turn(folder: Path, seconds: float, live: bool) -> Turn:
    """Run the experiment in ``folder``, with a page and a reader if ``live``."""
    process = edgefl(folder, "run", "live.toml", *(["--live", "0"] if live else []))
    cpu_s: dict[str, float] = {}
    reader = None
    try:
        if live:
            with reading(address_of(process)) as reader:
                _watch(process, reader.port, cpu_s)
        else:
            _watch(process, None, cpu_s)
    finally:
        process.kill()
        process.wait()
    summary = orjson.loads((folder / "runs" / "live" / "fedbuff" / "summary.json").read_bytes())
    found = summary["fidelity"]
    lag_ms = found["transfer_lag_ms"]["p99"]
    return Turn(cpu_s, found["verdict"], lag_ms, summary["updates_received"], reader)


def _watch(process: subprocess.Popen[str], port: int | None, cpu_s: dict[str, float]) -> None:
    """Note the CPU times of the run's processes until it ends; ``port``: of the page, if any."""
    assert process.stdout is not None
    Thread(target=process.stdout.read, daemon=True).start()
    found: dict[str, psutil.Process] = {}
    while process.poll() is None:
        if len(found) < (1 if port is None else 2):  # a look at all processes disturbs the run
            with suppress(psutil.NoSuchProcess):
                found = {
                    SERVER if each == port else COORDINATOR: child
                    for each, child in listening(process).items()
                }
        for name, child in found.items():
            with suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                cpu_s[name] = times.user + times.system
        time.sleep(LOOK_S)


def listening(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The children of a run that listen, by port: its coordinator, and the page's server."""
    found = {}
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            for each in child.net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN:
                    found[each.laddr.port] = child
    return found


def cpu_rows(edges: int, turns: int, seconds: float, speed: float) -> list[Row]:
    found: dict[bool, list[Turn]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="bench-live-") as place:
        folder = Path(place)
        (folder / "live.toml").write_text(tomli_w.dumps(config(edges, seconds, speed)))
        for number in range(turns):
            for live in (False, True) if number % 2 == 0 else (True, False):
                made = turn(folder, seconds, live)
                found[live].append(made)
                say(
                    f"turn {number + 1} of {turns}, {'with' if live else 'without'} the page:"
                    f" {made.cpu_s.get(COORDINATOR, 0.0):.2f} s of CPU, {made.verdict}"
                )
    return _cpu_table(found[False], found[True])


def _cpu_table(before: list[Turn], after: list[Turn]) -> list[Row]:
    """Return the rows about turns without (``before``) and with the page."""
    without, with_page = (
        [each.cpu_s.get(COORDINATOR, 0.0) for each in turns] for turns in (before, after)
    )
    # turn by turn, because the machine's speed changes over the minutes
    more = [(late / early - 1) * 100 for early, late in zip(without, with_page) if early]
    within = interval(more)
    readers = [each.reader for each in after if each.reader is not None]
    same = {each.verdict for each in before} == {each.verdict for each in after}
    return [
        Row("updates of a run", median(each.updates for each in after)),
        Row("CPU of the coordinator without the page, median", median(without), "s"),
        Row("its spread", max(without) - min(without), "s"),
        Row("CPU of the coordinator with the page, median", median(with_page), "s"),
        Row(
            "more CPU in the coordinator with the page, median of the turns",
            median(more) if more else None,
            "%",
            CPU_GOAL,
        ),
        Row("95 % interval of the mean, from", None if within is None else within.low, "%"),
        Row("95 % interval of the mean, to", None if within is None else within.high, "%"),
        Row("CPU of the page's server", median(_server_s(after)), "s"),
        *(
            Row(
                f"lag of transfers, 99th percentile, {name} the page",
                median(each.lag_ms for each in turns),
                "ms",
            )
            for name, turns in (("without", before), ("with", after))
        ),
        Row("verdicts without the page", ", ".join(each.verdict for each in before)),
        Row("verdicts with the page", ", ".join(each.verdict for each in after)),
        Row("same verdicts", int(same), "", ">= 1"),
        Row("messages to the page", median(each.messages for each in readers)),
        Row(
            "streams that ended in order",
            sum(each.bye for each in readers) / len(after),
            "",
            ">= 1",
        ),
    ]


def _server_s(turns: list[Turn]) -> list[float]:
    return [each.cpu_s.get(SERVER, 0.0) for each in turns]


# ------------------------------------------------------------------ memory after an hour
@dataclass(slots=True)
class Sizes:
    """Over the bytes of events.jsonl: resident MB of the server, and heap MB of the page."""

    server: list[tuple[int, float]] = field(default_factory=list)
    page: list[tuple[int, float]] = field(default_factory=list)


def memory_rows(edges: int, seconds: float, with_browser: bool) -> list[Row]:
    """Follow a run under the virtual clock, from its beginning to its end."""
    sizes, errors = Sizes(), list[str]()
    with tempfile.TemporaryDirectory(prefix="bench-live-") as place, ExitStack() as stack:
        folder = Path(place)
        (folder / "live.toml").write_text(tomli_w.dumps(config(edges, seconds)))
        browser = stack.enter_context(Browser()) if with_browser else None
        say(f"{seconds:g} emulated s with {edges} edges under the virtual clock")
        words = ("run", "live.toml", "--clock", "virtual", "--live", "0")
        process = edgefl(folder, *words)
        events = folder / "runs" / "live" / "fedbuff" / "events.jsonl"
        try:
            with reading(address_of(process)) as reader:
                if browser is not None:
                    browser.open(reader.address)
                _follow(process, listening(process)[reader.port], events, sizes, browser)
        finally:
            process.kill()
            process.wait()
        if browser is not None:
            errors = browser.errors()
        rows = events.read_bytes().count(b"\n")
    return [
        Row("rows of events.jsonl", rows),
        Row("events.jsonl", sizes.server[-1][0] / MB, "MB"),
        *_growth("server", sizes.server),
        *(_growth("page", sizes.page) if sizes.page else []),
        *([Row("errors in the browser", len(errors), "", "<= 0")] if with_browser else []),
        Row("messages to the reader", reader.messages),
        Row("largest message", reader.largest / MB, "MB", MESSAGE_GOAL),
        Row("all messages", reader.bytes / MB, "MB"),
    ]


def _growth(what: str, sizes: list[tuple[int, float]]) -> list[Row]:
    """Rows about memory (MB) over bytes of events."""
    quarter = next(memory for size, memory in sizes if size >= sizes[-1][0] / 4)
    most = max(memory for _, memory in sizes)
    return [
        Row(f"memory of the {what} after a quarter of the rows", quarter, "MB"),
        Row(f"memory of the {what} at most", most, "MB"),
        Row(f"growth of the {what} after the first quarter", most - quarter, "MB", GROWTH_GOAL),
    ]


def _follow(
    run_process: subprocess.Popen[str],
    server: psutil.Process,
    events: Path,
    sizes: Sizes,
    browser: Browser | None,
) -> None:
    assert run_process.stdout is not None
    Thread(target=run_process.stdout.read, daemon=True).start()
    while run_process.poll() is None:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            size = events.stat().st_size
            sizes.server.append((size, server.memory_info().rss / MB))
            if browser is not None:
                sizes.page.append((size, browser.heap_bytes() / MB))
        time.sleep(LOOK_S)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--edges", type=int, default=100, metavar="N", help="default: 100")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--seconds", type=float, default=15.0, metavar="S", help="of a turn")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="of a turn")
    parser.add_argument("--hour", type=float, default=3600.0, metavar="S", help="emulated seconds")
    parser.add_argument("--browser", action="store_true", help="with the page in chromium, too")
    chosen, host = parser.parse_args(), host_line()
    if min(chosen.edges, chosen.turns) < 1:
        raise UserError("--edges and --turns: expected 1 or more")
    rows = [
        *cpu_rows(chosen.edges, chosen.turns, chosen.seconds, chosen.speed),
        *memory_rows(chosen.edges, chosen.hour, chosen.browser),
        Row("load after", float(load())),
    ]
    report(f"The live page of a run with {chosen.edges} edges", host, rows, chosen.json)


if __name__ == "__main__":
    run(main)
