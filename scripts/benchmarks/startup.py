"""How long commands take to start: `edgefl --help`, and `edgefl run` until its first task.

    python scripts/benchmarks/startup.py [--turns N] [--config FILE] [--against DIR] [--json FILE]

Next to them stand `import typer` and `import torch`, which they cannot do without, each in a new
Python. Single processes are measured in seconds of the processor, which other work on the machine
changes little; the first task needs several processes at once, so it is timed on the wall clock: to
emulated second 0 of the run, as its summary has it, and on to the first task of its record.
With --against, another checkout of edgefl does the same in the same turns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import orjson
from table import TIMES, Row, arguments, host_line, report, run, say

from edgefl.config.packaged import FOLDER
from edgefl.errors import UserError
from edgefl.record.files import EVENTS, SUMMARY

HELP_GOAL = "<= 3"  # times `import typer`
HALF_GOAL = "<= 0.5"  # times the other checkout
PATIENCE_S = 120.0
LOOK_S = 0.002
SHORT_TIMES = 4  # in a turn: the load of the machine changes what a short command takes by half
ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = FOLDER / "quickstart.toml"
TYPER, TORCH, HELP, FIRST = "import typer", "import torch", "edgefl --help", "the first task"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="turns (default: 5)")
    parser.add_argument(
        "--config",
        type=Path,
        default=QUICKSTART,
        metavar="FILE",
        help="the experiment (default: the quickstart)",
    )
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout, such as one before a change"
    )
    options, host = parser.parse_args(), host_line()
    if options.turns < 1:
        raise UserError(f"--turns {options.turns}: expected 1 or more")
    if options.against is not None and not (options.against / "edgefl" / "cli.py").is_file():
        raise UserError(f"--against {options.against}: expected a checkout of edgefl")
    times: dict[str, list[float]] = {}
    for turn in range(options.turns):
        say(f"turn {turn + 1} of {options.turns}")
        for name, taken_s in once(options.config.resolve(), options.against):
            times.setdefault(name, []).append(taken_s)
    report(
        "Start of commands",
        host,
        rows({name: median(each) for name, each in times.items()}),
        options.json,
    )


def once(config: Path, against: Path | None) -> list[tuple[str, float]]:
    """Time everything once, short commands SHORT_TIMES; return names and seconds."""
    found = [(TORCH, imported_s("torch"))]
    roots = [(suffix, root) for suffix, root in (("", ROOT), (before(""), against)) if root]
    for _ in range(SHORT_TIMES):
        found.append((TYPER, imported_s("typer")))
        found += [(f"{HELP}{suffix}", help_s(root)) for suffix, root in roots]
    found += [(f"{FIRST}{suffix}", first_task_s(root, config)) for suffix, root in roots]
    return found


def before(name: str) -> str:
    return f"{name}, before"


def rows(seconds: dict[str, float]) -> list[Row]:
    """Medians and their ratios."""
    found = [Row(name, taken_s, "s") for name, taken_s in seconds.items()]
    found.append(Row(f"{HELP} / {TYPER}", seconds[HELP] / seconds[TYPER], TIMES, HELP_GOAL))
    found.append(Row(f"{FIRST} / {TORCH}", seconds[FIRST] / seconds[TORCH], TIMES))
    for name in (HELP, FIRST):
        if before(name) in seconds:
            ratio = seconds[name] / seconds[before(name)]
            found.append(Row(f"{name} / {before(name)}", ratio, TIMES, HALF_GOAL))
    return found


def imported_s(module: str) -> float:
    """Seconds of the processor in which a new Python imports the module."""
    return _processor_s(["-c", f"import {module}"], ROOT)


def help_s(root: Path) -> float:
    return _processor_s(["-m", "edgefl.cli", "--help"], root)


def _processor_s(words: list[str], root: Path) -> float:
    process = subprocess.Popen(
        [sys.executable, *words], cwd=root, env=_environment(root), stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"python {' '.join(words)}: exit status {process.returncode}")
    return used.ru_utime + used.ru_stime


def first_task_s(root: Path, config: Path) -> float:
    """Seconds from the start of `edgefl run` until the first task.

    The record is written to its file a while later, so the run's own clock tells the moment.
    """
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        command = [sys.executable, "-m", "edgefl.cli", "run", str(config), "--out", folder]
        began_s, began_unix_s = time.perf_counter(), time.time()
        process = subprocess.Popen(
            [*command, "--force"],
            cwd=root,
            env=_environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            while not any('"assign"' in path.read_text() for path in _events(Path(folder))):
                if process.poll() is not None or time.perf_counter() - began_s > PATIENCE_S:
                    assert process.stderr is not None
                    process.kill()
                    raise UserError(f"no task: {process.stderr.read().decode()[-500:]}")
                time.sleep(LOOK_S)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()
        return _first_task_unix_s(Path(folder)) - began_unix_s


def _first_task_unix_s(folder: Path) -> float:
    (events,) = _events(folder)
    summary = orjson.loads((events.parent / SUMMARY).read_bytes())
    rows = map(orjson.loads, events.read_bytes().splitlines())
    first_s = next(row["t"] for row in rows if b'"assign"' in orjson.dumps(row))
    moment_s: float = summary["began_unix_s"] + first_s / summary["speed"]
    return moment_s


def _events(folder: Path) -> list[Path]:
    return list(folder.glob(f"*/*/{EVENTS}"))


def _environment(root: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(root)}


if __name__ == "__main__":
    run(main)
