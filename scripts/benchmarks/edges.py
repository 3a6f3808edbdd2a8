"""A run with many real-socket edges on this machine: time to join, memory, verdict.

    python scripts/benchmarks/edges.py [--config FILE] [--against DIR] [--json FILE] [KEY=VALUE...]

It runs FILE (default: configs/scale/thousand.toml; ten_thousand.toml and paced.toml stand beside
it), with these changes of its keys, on the wall clock. The memory is the largest sum of the
proportional set sizes of all processes, in which a shared page counts once. With --against, another
checkout of edgefl runs it, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import orjson
import psutil
from reference import cpu_s
from table import Row, arguments, host_line, report, run, say

from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.record.files import SUMMARY

ROOT = Path(__file__).resolve().parents[2]
THOUSAND = ROOT / "configs" / "scale" / "thousand.toml"
COORDINATOR = "wall.coordinator.process"  # the end of its module, of older checkouts, too
WATCH_S = 2.0


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--config", type=Path, default=THOUSAND, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="as of edgefl run")
    options, host = parser.parse_args(), host_line()
    config, changes = options.config.resolve(), options.changes
    if options.against is not None and not (options.against / "edgefl").is_dir():
        raise UserError(f"--against {options.against}: expected a checkout of edgefl")
    experiment = load(config, changes)
    if (count := len(experiment.strategies) * len(experiment.by_seed())) != 1:
        raise UserError(f"{options.config}: expected one strategy and one seed, found {count} runs")
    rows = measured(ROOT, config, changes, "")
    if options.against is not None:
        rows += measured(options.against.resolve(), config, changes, ", before")
    report("A run with many edges", host, rows, options.json)


def measured(root: Path, config: Path, changes: list[str], suffix: str) -> list[Row]:
    """Run the experiment to its end and watch its processes."""
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        words = [sys.executable, "-m", "edgefl.cli", "run", str(config), *changes]
        words += ["--out", folder, "--force"]
        environment = os.environ | {"PYTHONPATH": str(root)}
        began_unix_s = time.time()
        # the folder, because python -m looks there before it looks in PYTHONPATH
        process = psutil.Popen(words, cwd=root, env=environment, stdout=subprocess.DEVNULL)
        most_bytes = most_processes = 0
        used: list[tuple[float, float]] = []  # (moment, CPU time of the coordinator)
        while process.poll() is None:
            sizes = []
            with suppress(psutil.Error):
                for each in (process, *process.children(recursive=True)):
                    with suppress(psutil.Error, OSError):
                        sizes.append(pss_bytes(each.pid))
                        if any(word.endswith(COORDINATOR) for word in each.cmdline()):
                            used.append((time.time(), cpu_s(each)))
            most_bytes = max(most_bytes, sum(sizes))
            most_processes = max(most_processes, len(sizes))
            time.sleep(WATCH_S)
        found = list(Path(folder).glob(f"*/*/{SUMMARY}"))
        if process.returncode or len(found) != 1:
            raise UserError(f"edgefl run {config}: exit status {process.returncode}")
        summary = orjson.loads(found[0].read_bytes())
    fidelity = summary["fidelity"]
    say(f"{config.name}{suffix}: {fidelity['verdict']} {fidelity['reasons']}")
    used = [(at_s, cpu) for at_s, cpu in used if at_s >= summary["began_unix_s"]] or [(0.0, 0.0)]
    lasted_s = used[-1][0] - used[0][0]
    return [
        Row(f"verdict{suffix}", fidelity["verdict"]),
        Row(
            f"CPU of the coordinator{suffix}",
            100 * (used[-1][1] - used[0][1]) / lasted_s if lasted_s else None,
            "% of a core",
        ),
        Row(f"transfers that the kernel paced{suffix}", fidelity.get("pacing", {}).get("kernel")),
        Row(
            f"from the command to the first task{suffix}",
            summary["began_unix_s"] - began_unix_s,
            "s",
        ),
        Row(f"memory of all processes{suffix}", most_bytes / 1e6, "MB"),
        Row(f"processes{suffix}", most_processes),
        Row(f"transfers{suffix}", fidelity["transfers"]),
        Row(f"lag of transfers, 99th percentile{suffix}", fidelity["transfer_lag_ms"]["p99"], "ms"),
    ]


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    run(main)
