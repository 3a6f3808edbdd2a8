"""Compare the two clocks: one experiment on the wall clock and under the virtual clock.

The comparison is by version. Time stamps make emulated times exact unless real bytes or real work
are late. A second comparison is therefore between each version's emulated time and the real time at
which the coordinator had it (wall seconds from emulated 0).
"""

from __future__ import annotations

import csv
import tempfile
from argparse import ArgumentParser
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file
from table import Row, arguments, host_line, load, report, run, say

from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.experiment import Experiment
from edgefl.loading.file import load as load_config
from edgefl.results.read import read_events

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "agreement.toml"
MEDIAN_GOAL, WORST_GOAL = "<= 1", "<= 3"  # percent
GAP_GOAL = ">= 20"  # ms
QUICK = ["stop.emulated_s=3"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The data of one run directory.

    ``published_s`` (by version) and ``arrived_s`` are emulated times, ``real_s`` (by version) real.
    ``updates``: of each update, its edge, the version when it arrives, and the one it started from.
    """

    published_s: dict[int, float]
    arrived_s: list[float]
    selections: list[list[str]]
    real_s: dict[int, float]
    weights: np.ndarray
    verdict: str
    updates: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Moments:
    """The times of a version: emulated under each clock, and ``real_s`` on the wall clock."""

    version: int
    virtual_s: float
    wall_s: float
    real_s: float | None

    @property
    def between_percent(self) -> float:
        return 100 * abs(self.wall_s - self.virtual_s) / self.virtual_s

    @property
    def real_percent(self) -> float | None:
        return None if self.real_s is None else 100 * abs(self.real_s - self.wall_s) / self.wall_s


def add_config(parser: ArgumentParser) -> None:
    """Add the option for the experiment."""
    parser.add_argument(
        "--config",
        type=Path,
        default=CONFIG,
        metavar="FILE",
        help="experiment (default: configs/agreement.toml)",
    )


def main() -> None:
    parser = arguments(__doc__)
    add_config(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="also print all times of every version"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK[0].partition('=')[2]} emulated seconds of the last strategy: a quick check",
    )
    options, host = parser.parse_args(), host_line()
    experiment = load_config(options.config, QUICK if options.quick else [])
    if options.quick:
        experiment = experiment.model_copy(update={"strategies": experiment.strategies[-1:]})
    with tempfile.TemporaryDirectory(prefix="bench-agreement-") as scratch:
        wall, virtual = Path(scratch) / "wall", Path(scratch) / "virtual"
        speed = run_wall(experiment, wall, options.config.parent)
        run_virtual(experiment, virtual, options.config.parent)
        names = [entry.name for entry in experiment.strategies]
        pairs = {name: (trace(wall / name), trace(virtual / name)) for name in names}
    found = {name: moments(*pair, speed) for name, pair in pairs.items()}
    if options.verbose:
        for name in names:
            Console().print(version_table(name, found[name]))
    rows = [row for name in names for row in rows_of(name, *pairs[name], found[name])]
    report(
        "Wall clock against virtual clock",
        host,
        [*rows, Row("load after", float(load()))],
        options.json,
    )


# ------------------------------------------------------------------ the two runs
def run_wall(experiment: Experiment, out: Path, base: Path) -> float:
    """Run on the wall clock; return the speed."""
    say(
        f"{experiment.name} on the wall clock: {len(experiment.strategies)} strategies in real time"
    )
    launcher = WallRun(experiment, LaunchOptions(out, base), say)
    launcher.run(lambda index, directory, port: None)
    return launcher.experiment.chosen_speed


def run_virtual(experiment: Experiment, out: Path, base: Path) -> None:
    from edgefl.clocks.setup.learning import learning
    from edgefl.clocks.virtual import run as virtual_run

    say(f"{experiment.name} under the virtual clock")
    learned = learning(experiment, base)
    for index, entry in enumerate(experiment.strategies):
        virtual_run.run_virtual(learned, index, out / entry.name)


# ------------------------------------------------------------------ their files
def trace(directory: Path) -> Trace:
    events = read_events(directory / "events.jsonl")
    decided = [
        (event["t"], decision) for event in events for decision in event.get("decisions", [])
    ]
    with (directory / "metrics.csv").open(encoding="utf-8", newline="") as file:
        real_s = {int(row["version"]): float(row["wall_s"]) for row in csv.DictReader(file)}
    arrived = [event for event in events if event.get("event") == "update_arrived"]
    verdict = orjson.loads((directory / "summary.json").read_bytes())["fidelity"]
    return Trace(
        {decision["version"]: at_s for at_s, decision in decided if decision["do"] == "publish"},
        [event["t"] for event in arrived],
        [decision["edges"] for _, decision in decided if decision["do"] == "assign"],
        real_s,
        load_file(directory / "model.safetensors")["weights"],
        ": ".join(
            [verdict["verdict"], *([", ".join(verdict["reasons"])] if verdict["reasons"] else [])]
        ),
        [(event["edge"], event["version"], event["base_version"]) for event in arrived],
    )


# ------------------------------------------------------------------ the comparison
def moments(wall: Trace, virtual: Trace, speed: float) -> list[Moments]:
    """Return the times of the versions that both runs have.

    ``speed``, emulated seconds per real second, converts real times to emulated seconds.
    """
    both = sorted(wall.published_s.keys() & virtual.published_s.keys())
    real_s = {version: speed * at_s for version, at_s in wall.real_s.items()}
    return [
        Moments(
            version, virtual.published_s[version], wall.published_s[version], real_s.get(version)
        )
        for version in both
    ]


def rows_of(name: str, wall: Trace, virtual: Trace, found: list[Moments]) -> list[Row]:
    gap_s = min((after - before for before, after in pairwise(virtual.arrived_s)), default=None)
    return [
        Row(
            f"{name}: smallest gap between arrivals, virtual clock",
            None if gap_s is None else 1000 * gap_s,
            "ms",
            GAP_GOAL,
        ),
        Row(f"{name}: versions compared", len(found)),
        *difference_rows(
            f"{name}: emulated moment of a version, wall against virtual",
            [moment.between_percent for moment in found],
        ),
        *difference_rows(
            f"{name}: real against emulated moment of a version",
            [moment.real_percent for moment in found if moment.real_percent is not None],
        ),
        *decision_rows(name, wall, virtual),
        Row(f"{name}: verdict of the run on the wall clock", wall.verdict),
    ]


def decision_rows(name: str, one: Trace, other: Trace) -> list[Row]:
    """Compare what two runs have decided. The last decisions of one may be missing in the other."""
    versions_apart = abs(len(one.published_s) - len(other.published_s))
    equal = np.array_equal(one.weights, other.weights)
    rows = [Row(f"{name}: difference in the number of versions", versions_apart, "", "<= 1")]
    for what, ours, theirs in (
        ("selections", one.selections, other.selections),
        ("updates (edge, version, staleness)", one.updates, other.updates),
    ):
        unequal = sum(our != their for our, their in zip(ours, theirs))
        rows += [
            Row(f"{name}: {what} compared", min(len(ours), len(theirs))),
            Row(f"{name}: {what} that differ", unequal, "", "<= 0"),
        ]
    return [*rows, Row(f"{name}: final weights", "bit-equal" if equal else "differ")]


def difference_rows(name: str, percent: list[float]) -> list[Row]:
    return [
        Row(f"{name}, median", median(percent) if percent else None, "%", MEDIAN_GOAL),
        Row(f"{name}, worst", max(percent, default=None), "%", WORST_GOAL),
    ]


def version_table(name: str, found: list[Moments]) -> Table:
    table = Table(title=name, title_justify="left")
    for heading in (
        "version",
        "virtual, s",
        "wall, emulated s",
        "difference, %",
        "wall, real s",
        "difference, %",
    ):
        table.add_column(heading, justify="right")
    for moment in found:
        real = (
            ("-", "-")
            if moment.real_s is None
            else (f"{moment.real_s:.3f}", f"{moment.real_percent:.3f}")
        )
        table.add_row(
            str(moment.version),
            f"{moment.virtual_s:.6f}",
            f"{moment.wall_s:.6f}",
            f"{moment.between_percent:.3f}",
            *real,
        )
    return table


if __name__ == "__main__":
    run(main)
