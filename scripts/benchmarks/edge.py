"""Size of one edge: time of its imports, its memory in a run, and the packages that it installs.

A real `edgefl edge` on this machine trains on its shard of the digits until the coordinator ends
the run. Its memory is that of a machine with one edge: shared pages of other processes count.
Sizes of environments are those of the files that pip has recorded here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median

import psutil
from table import TIMES, Row, arguments, host_line, report, run, say

from edgefl.errors import UserError

# multiples of torch alone; measured: 1.2 to 1.5, and 1.2
SECONDS_GOAL, MEMORY_GOAL = "<= 2", "<= 1.3"
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
MB = 1e6
LOOK_S, PATIENCE_S = 0.02, 120.0
IMPORTS = {
    "the command line": "edgefl.cli",
    "torch alone": "torch",
    "an edge": "edgefl.cli, edgefl.hosts.wall.edge.membership",
}
EXTRAS = ("discover", "launch", "lab")
CONFIG = """
name = "edge"
model = {name = "mlp", hidden = [16]}
edges = {names = ["a"]}
devices = {samples_per_s = 2000.0}
strategies = [{strategy = "fedavg"}]
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--versions", type=int, default=20, help="global models of the run")
    parser.add_argument("--turns", type=int, default=5, help="fresh processes for each import")
    words = parser.parse_args()
    if min(words.versions, words.turns) < 1:
        raise UserError("--versions and --turns: expected 1 or more")
    host = host_line()
    rows = [*imports(words.turns), *environments()]
    say(f"an edge trains {words.versions} times")
    alone = next(row for row in rows if row.name == "memory after import: torch alone")
    report("One edge", host, [*rows, *in_a_run(words.versions, alone)], words.json)


# ------------------------------------------------------------------ imports
def imports(turns: int) -> Iterator[Row]:
    """Each import in fresh processes, in turns, so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    memory: dict[str, int] = {}
    for _ in range(turns):
        for name, modules in IMPORTS.items():
            seconds, memory[name] = imported(modules)
            times[name].append(seconds)
    middle = {name: median(found) for name, found in times.items()}
    for name, found_s in middle.items():
        yield Row(f"import: {name}", found_s, "s")
    ratio = middle["an edge"] / middle["torch alone"]
    yield Row("import: an edge / torch alone", ratio, TIMES, SECONDS_GOAL)
    for name, found_bytes in memory.items():
        yield Row(f"memory after import: {name}", found_bytes / MB, "MB")


def imported(modules: str) -> tuple[float, int]:
    """Import the modules in a new process: seconds, and resident bytes afterwards."""
    code = (
        f"import json, time; began = time.perf_counter(); import {modules};"
        " took = time.perf_counter() - began; import psutil;"
        " print(json.dumps([took, psutil.Process().memory_info().rss]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    seconds, resident = json.loads(done.stdout)
    return seconds, resident


# ------------------------------------------------------------------ environments
def environments() -> Iterator[Row]:
    """Bytes of the packages that a base install brings, and of those that each extra adds."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    base = closure(project["dependencies"])
    yield Row("base environment", size(base) / MB, "MB")
    yield Row("base environment: torch", size({"torch"}) / MB, "MB")
    for extra in EXTRAS:
        added = closure(project["optional-dependencies"][extra]) - base
        yield Row(f"extra {extra}: adds", size(added) / MB, "MB")


def closure(requirements: Iterable[str]) -> set[str]:
    """Names of all packages that these bring, as far as they are installed here."""
    waiting, found = list(named(requirements)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            with suppress(PackageNotFoundError):
                waiting += named(distribution(name).requires or [])
                found.add(name)
    return found


def named(requirements: Iterable[str]) -> Iterator[str]:
    for requirement in requirements:
        if "extra ==" not in requirement:
            yield re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


def size(packages: Iterable[str]) -> int:
    total = 0
    for name in packages:
        for file in distribution(name).files or []:
            with suppress(OSError):
                total += Path(str(file.locate())).lstat().st_size
    return total


# ------------------------------------------------------------------ a run
def in_a_run(versions: int, alone: Row) -> Iterator[Row]:
    """Memory of an edge at the end of a run, and the largest value."""
    with tempfile.TemporaryDirectory(prefix="edgefl-edge-") as place:
        folder = Path(place)
        (folder / "edge.toml").write_text(CONFIG + f"stop = {{versions = {versions}}}\n")
        shard = ("data", "shard", "edge.toml", "--out", "shards")
        subprocess.run(command(*shard), cwd=folder, check=True, capture_output=True)
        with ExitStack() as ends:
            coordinator = ends.enter_context(
                process(
                    folder,
                    *("coordinator", "edge.toml", "data.source=shard", "data.dir=shards"),
                )
            )
            port = listening(folder, coordinator)
            address = f"tcp://127.0.0.1:{port}"
            join = ("edge", "--connect", address, "--id", "a", "--data", "shards")
            edge = ends.enter_context(process(folder, *join))
            resident, own = watched(edge)
            if edge.returncode != 0 or coordinator.wait(PATIENCE_S) != 0:
                raise UserError(f"the run failed: {(folder / 'edge.log').read_text()}")
    yield Row("memory in a run: largest RSS", max(resident) / MB, "MB")
    yield Row("memory in a run: largest USS", max(own) / MB, "MB")
    assert isinstance(alone.value, float)
    ratio = max(resident) / MB / alone.value
    yield Row("memory in a run: RSS / torch alone", ratio, TIMES, MEMORY_GOAL)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "edgefl.cli", *words]


@contextmanager
def process(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of edgefl that ends with the block; what it prints is in ``WORD.log``."""
    with (folder / f"{words[0]}.log").open("wb") as log:
        started = subprocess.Popen(command(*words), cwd=folder, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


def listening(folder: Path, coordinator: subprocess.Popen[bytes]) -> int:
    """Wait until the coordinator listens, and return its port."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and coordinator.poll() is None:
        said = (folder / "coordinator.log").read_text()
        found = re.search(r"waiting for 1 edges? on \S+, port (\d+)", said)
        if found is not None:
            return int(found[1])
        time.sleep(LOOK_S)
    raise UserError(f"the coordinator does not listen: {said}")


def watched(edge: subprocess.Popen[bytes]) -> tuple[list[int], list[int]]:
    """RSS and USS of the process from time to time, until it ends."""
    resident, own = [0], [0]
    until_s = time.monotonic() + PATIENCE_S
    with suppress(psutil.Error):
        seen = psutil.Process(edge.pid)
        while edge.poll() is None and time.monotonic() < until_s:
            memory = seen.memory_full_info()
            resident.append(memory.rss)
            own.append(memory.uss)
            time.sleep(LOOK_S)
    edge.wait()
    return resident, own


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run(main)
