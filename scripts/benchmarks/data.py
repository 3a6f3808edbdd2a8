"""Time to load CIFAR-10, against mapping its arrays with numpy, and a process's private memory.

The files are parsed once into a separate cache and then opened by fresh processes. One of them also
picks every training image, batch by batch, as an edge does. Without --dir the files are synthetic:
the same number of bytes, filled with noise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.data import cifar10
from edgefl.data.paths import CACHE_VARIABLE
from edgefl.errors import UserError

AGAIN_GOAL = "<= 3.9"  # multiple of mapping the arrays: measured 2.6 to 3.2
MEMORY_GOAL = "<= 10"  # MB
AGAIN, QUICK_AGAIN = 5, 1  # processes that open the parsed data
SAMPLES, QUICK_SAMPLES, BATCH = 10_000, 600, 32  # of one file; of one step
LOOKING = "looking"  # first argument of this file when it starts itself
STATUS = Path("/proc/self/status")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="directory with CIFAR-10's files")
    parser.add_argument(
        "--quick", action="store_true", help="little data, one process: a quick check"
    )
    options, host = parser.parse_args(), host_line()
    times = QUICK_AGAIN if options.quick else AGAIN
    samples = QUICK_SAMPLES if options.quick else SAMPLES
    if not STATUS.exists():
        raise UserError(f"no {STATUS}, from which memory is read")
    with tempfile.TemporaryDirectory(prefix="bench-data-") as scratch:
        directory = options.dir or made_up(Path(scratch) / "files", samples)
        os.environ[CACHE_VARIABLE] = str(Path(scratch) / "cache")
        say("parsing")
        first = looked(directory)
        say(f"opening the parsed data {times} times")
        again = [looked(directory) for _ in range(times)]
    rows = [
        Row("CIFAR-10 the first time, parsed into the cache", first["load_s"], "s"),
        Row(
            f"the second time, median of {times} processes",
            1e3 * median(each["load_s"] for each in again),
            "ms",
        ),
        Row("the second time, longest", 1e3 * max(each["load_s"] for each in again), "ms"),
        Row(
            "the second time / mapping the arrays with numpy, median",
            median(each["load_s"] / each["map_s"] for each in again),
            TIMES,
            AGAIN_GOAL,
        ),
        Row(
            "a process's own memory for the data, all of it picked once, largest",
            max(each["own_mb"] for each in again),
            "MB",
            MEMORY_GOAL,
        ),
        Row("the data itself, shared by all processes", again[0]["data_mb"], "MB"),
        Row("load after", float(load())),
    ]
    report("Loading a data set", host, rows, options.json)


def made_up(directory: Path, samples: int) -> Path:
    """Write CIFAR-10's binary files with noise as images."""
    say("writing synthetic CIFAR-10 files")
    rng = np.random.Generator(np.random.PCG64(1))
    directory.mkdir()
    for stem in (*cifar10.KIND.train, cifar10.KIND.test):
        records = rng.integers(0, 256, (samples, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(directory / f"{stem}.bin")
    return directory


def looked(directory: Path) -> dict[str, float]:
    """Return the measurements of a fresh process; UserError if it cannot load the data."""
    done = subprocess.run(
        [sys.executable, __file__, LOOKING, str(directory)], capture_output=True, text=True
    )
    if done.returncode:
        raise UserError(done.stderr.strip())
    return json.loads(done.stdout)


def look(directory: Path) -> None:
    """Load the data and pick all training samples in batches; print load time and memory."""
    import torch

    torch.zeros(BATCH, 3, 32, 32).sub_(1).div_(
        2
    )  # so that torch's own memory is not counted as data
    before_kb, began_s = private_kb(), time.perf_counter()
    found = cifar10.load(directory)
    (inputs, _), _ = found.train(), found.test()
    load_s = time.perf_counter() - began_s
    for rows in torch.arange(len(inputs)).split(BATCH):
        inputs.index_select(0, rows)
    map_s = mapped_s()
    data_mb = (found.train_x.nbytes + found.test_x.nbytes) / 1e6
    print(
        json.dumps(
            {
                "load_s": load_s,
                "map_s": map_s,
                "own_mb": (private_kb() - before_kb) * 1024 / 1e6,
                "data_mb": data_mb,
            }
        )
    )


def mapped_s() -> float:
    """Return the seconds of numpy to map the arrays of the cache and copy the labels."""
    files = sorted(Path(os.environ[CACHE_VARIABLE]).rglob("*.npy"))
    began_s = time.perf_counter()
    for file in files:
        array = np.load(file, mmap_mode="r")
        if array.ndim == 1:
            np.array(array, dtype=np.int64)
    return time.perf_counter() - began_s


def private_kb() -> int:
    """Return this process's private memory in kB, without files and shared pages."""
    return next(
        int(line.split()[1])
        for line in STATUS.read_text().splitlines()
        if line.startswith("RssAnon")
    )


if __name__ == "__main__":
    run((lambda: look(Path(sys.argv[2]))) if sys.argv[1:2] == [LOOKING] else main)
