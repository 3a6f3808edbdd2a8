"""One experiment by `edgefl launch` on several machines, compared with a run on this one.

    python scripts/benchmarks/machines.py [INVENTORY] [--config FILE] [--quick] [--json FILE]

Both runs emulate the same links and devices, so they must decide the same: which edge gets which
version when, and how stale its update is. Without INVENTORY, the machines are four network
namespaces, each with an ssh server and a cable of ten times the rate of an emulated link; this
needs root and Debian's openssh-server.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import orjson
import psutil
from agreement import Trace, add_config, decision_rows, run_wall, trace
from table import Row, arguments, host_line, load, report, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.launch.inventory import NATIVE, load_inventory
from edgefl.launch.placement import load_placed
from edgefl.loading.file import load as load_config

ROOT = Path(__file__).resolve().parents[2]
RIG = ROOT / "tests" / "support"  # namespaces with ssh servers, as the tests have them
QUICK = ["stop.emulated_s=5"]
HOSTS, FASTER = 4, 10
FAITHFUL = "faithful"
YES, MEDIAN_GOAL, WORST_GOAL = ">= 1", "<= 5", "<= 20"  # ms; 20 ms are between any two arrivals
LOOK_S = 0.02
MB, MS = 1e6, 1e3


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch took: seconds until the first run began, all seconds, and its memory."""

    start_s: float
    total_s: float
    rss_bytes: int


def main() -> None:
    options, host = _parsed(), host_line()
    settings = QUICK if options.quick else []
    with tempfile.TemporaryDirectory(prefix="bench-machines-") as scratch:
        folder = Path(scratch)
        if options.inventory is not None:
            rows = compared(options.inventory, options.config, settings, folder)
        elif reason := refusal():
            rows = [Row("namespaces with ssh servers", f"not measured: {reason}")]
        else:
            with namespaces(folder, load_config(options.config, settings)) as inventory:
                rows = compared(inventory, options.config, settings, folder)
    rows.append(Row("load after", float(load())))
    report("Several machines against one", host, rows, options.json)


def _parsed() -> Namespace:
    parser = arguments(__doc__)
    parser.add_argument(
        "inventory",
        type=Path,
        nargs="?",
        metavar="INVENTORY",
        help="hosts with edgefl (default: four network namespaces with ssh servers)",
    )
    add_config(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK[0].partition('=')[2]} emulated seconds of each strategy",
    )
    return parser.parse_args()


# ------------------------------------------------------------------ the machines
def refusal() -> str:
    """The reason why namespaces with ssh servers cannot be made here; '' if they can."""
    sys.path.append(str(RIG))
    import ssh_hosts

    return ssh_hosts.refusal()


@contextmanager
def namespaces(folder: Path, experiment: Experiment) -> Iterator[Path]:
    """Make the hosts, which run this Python and checkout; yield their inventory."""
    import ssh_hosts

    names = experiment.edges.ids()
    # In this order, because an edge's position decides its data and its device.
    bounds = [len(names) * index // HOSTS for index in range(HOSTS + 1)]
    shares = [names[first:end] for first, end in pairwise(bounds)]
    rate_mbit_s = FASTER * max(experiment.links.up_mbit_s, experiment.links.down_mbit_s)
    with ssh_hosts.ssh_hosts(HOSTS, rate_mbit_s=rate_mbit_s) as rig:
        text = rig.inventory(
            by_host={index: {"names": share} for index, share in enumerate(shares)},
            python=sys.executable,
            env={"PYTHONPATH": str(ROOT)},
        )
        (folder / "hosts.toml").write_text(text, encoding="utf-8")
        yield folder / "hosts.toml"


# ------------------------------------------------------------------ the two runs
def compared(inventory: Path, config: Path, settings: Sequence[str], folder: Path) -> list[Row]:
    """Launch the experiment, run it here, and compare. ``folder``: for both results."""
    hosts = load_inventory(inventory)
    experiment = load_placed(hosts, config, settings)
    if any(NATIVE in (host.links, host.devices) for host in hosts.hosts):
        raise UserError(f"{inventory}: expected emulated links and devices, found {NATIVE!r}")
    took = launch(inventory, config, settings, experiment, folder)
    here, there = folder / "here", folder / "runs" / experiment.name
    run_wall(experiment, here, config.parent)
    names = [entry.name for entry in experiment.strategies]
    summaries = [orjson.loads((there / name / "summary.json").read_bytes()) for name in names]
    rows = [row for name in names for row in rows_of(name, trace(there / name), trace(here / name))]
    edges_rss = [host["rss_bytes_max"] for each in summaries for host in each["hosts"]]
    ran_s = sum(each["wall_s"] for each in summaries)
    return [
        *rows,
        Row("hosts", len(hosts.hosts)),
        Row("from the command to the start of the first run", took.start_s, "s"),
        Row("other time that is no run", took.total_s - took.start_s - ran_s, "s"),
        Row("memory of the launching process, most", took.rss_bytes / MB, "MB"),
        Row("memory of an edge, most", max(filter(None, edges_rss), default=0) / MB, "MB"),
    ]


def launch(
    inventory: Path,
    config: Path,
    settings: Sequence[str],
    experiment: Experiment,
    folder: Path,
) -> Launched:
    """Run `edgefl launch` as a user does. UserError if it fails."""
    say(f"{experiment.name} by edgefl launch {inventory}")
    words = ["launch", str(inventory), str(config.resolve()), *settings]
    words += ["--out", str(folder / "runs"), "--keys", str(folder / "keys"), "--overwrite"]
    first = folder / "runs" / experiment.name / experiment.strategies[0].name / "events.jsonl"
    began_s, start_s, most_bytes = time.monotonic(), None, 0
    process = subprocess.Popen([sys.executable, "-m", "edgefl.cli", *words], stdout=sys.stderr)
    watched = psutil.Process(process.pid)
    try:
        while process.poll() is None:
            if start_s is None and first.is_file() and b'"run_started"' in first.read_bytes():
                start_s = time.monotonic() - began_s
            most_bytes = max(most_bytes, _rss_bytes(watched))
            time.sleep(LOOK_S)
    finally:
        process.terminate()
        process.wait()
    total_s = time.monotonic() - began_s
    if process.returncode or start_s is None:
        raise UserError(f"edgefl launch {inventory}: exit status {process.returncode}")
    return Launched(start_s, total_s, most_bytes)


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


# ------------------------------------------------------------------ the comparison
def rows_of(name: str, launched: Trace, here: Trace) -> list[Row]:
    """Compare one strategy of the launch with the same on this machine."""
    faithful = [each.verdict == FAITHFUL for each in (launched, here)]
    arrived_ms = [
        MS * abs(ours - theirs) for ours, theirs in zip(launched.arrived_s, here.arrived_s)
    ]
    both = launched.real_s.keys() & here.real_s.keys()
    real_ms = [MS * abs(launched.real_s[each] - here.real_s[each]) for each in both]
    return [
        Row(f"{name}: the launch is faithful ({launched.verdict})", int(faithful[0]), "", YES),
        Row(f"{name}: the run here is faithful ({here.verdict})", int(faithful[1]), "", YES),
        *decision_rows(name, launched, here),
        *difference_rows(f"{name}: emulated moment of an update", arrived_ms),
        *difference_rows(f"{name}: real moment of a version", real_ms),
    ]


def difference_rows(name: str, found_ms: Sequence[float]) -> list[Row]:
    """The median and the largest difference; no goals if nothing was compared."""
    if not found_ms:
        return [Row(f"{name}: difference", "nothing to compare")]
    return [
        Row(f"{name}: difference, median", median(found_ms), "ms", MEDIAN_GOAL),
        Row(f"{name}: difference, worst", max(found_ms), "ms", WORST_GOAL),
    ]


if __name__ == "__main__":
    run(main)
