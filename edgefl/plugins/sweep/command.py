"""``edgefl sweep``: many settings of an experiment, a directory for each run."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from edgefl.clocks.choices import VIRTUAL, EngineName, Power
from edgefl.commands import show
from edgefl.commands.options import Config as ConfigPath
from edgefl.commands.options import Overrides
from edgefl.commands.run import Engine, RayAddress, power_of
from edgefl.commands.running import ProgressLines, Scored
from edgefl.config.file import Config
from edgefl.errors import printable
from edgefl.exit_status import FAILED, INTERRUPTED
from edgefl.plugins.sweep.sweep_runs import Did
from edgefl.results.progress import clock

if TYPE_CHECKING:
    from edgefl.plugins.sweep.search import Sweep
    from edgefl.plugins.sweep.sweep_runs import SweepRun

Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="KEY=V1,V2",
        help="A key of the config and its values; seed=1,2,3 repeats every setting. May be given"
        " several times. With --sampler also KEY=LOW..HIGH or KEY=LOW..HIGH:log.",
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Number of processes. The results are the same.")
]
SamplerName = Annotated[
    str | None,
    typer.Option(
        "--sampler",
        metavar="random|optuna",
        help="Choose --trials settings instead of every combination.",
        show_default="every combination",
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        "--trials",
        min=1,
        help="Settings of each strategy that --sampler chooses.",
        show_default="20",
    ),
]
MetricName = Annotated[
    str, typer.Option("--metric", metavar="NAME", help="What the best setting is best in.")
]
BestSeed = Annotated[
    int | None,
    typer.Option(
        "--best-seed",
        min=0,
        help="The seed on which the best setting is chosen; it is in no mean of the table.",
        show_default="11, or the next free one",
    ),
]
NoBest = Annotated[bool, typer.Option("--no-best", help="Choose no setting: no run for that.")]
OnlyBest = Annotated[
    bool,
    typer.Option("--only-best", help="Run the seeds of the table only with the best settings."),
]
Extend = Annotated[
    int,
    typer.Option(
        "--extend",
        min=0,
        help="While a best value lies at an edge of its grid, try up to so many settings more.",
    ),
]
Fair = Annotated[
    bool,
    typer.Option(
        "--fair",
        help="Refuse different numbers of settings, or different times, of the strategies.",
    ),
]
SweepOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Results are written to DIR; runs that are there already are not repeated.",
        show_default="runs/<name of the experiment>-sweep",
    ),
]


def sweep(
    config: ConfigPath,
    overrides: Overrides = None,
    grid: Grid = None,
    workers: Workers = 1,
    engine: Engine = EngineName.local,
    ray_address: RayAddress = None,
    sampler: SamplerName = None,
    trials: Trials = None,
    metric: MetricName = "convergence_accuracy",
    best_seed: BestSeed = None,
    no_best: NoBest = False,
    only_best: OnlyBest = False,
    extend: Extend = 0,
    fair: Fair = False,
    out: SweepOut = None,
) -> None:
    """Run an experiment with many settings, under the virtual clock, and find the best one.

    The same command again skips the runs that are done, also after Ctrl-C or a crash.
    """
    from edgefl.plugins.sweep.search import planned

    power = power_of(VIRTUAL, workers, engine, ray_address)
    asked = planned(
        Config.read(config).changed(overrides or ()),
        grid or (),
        out,
        sampler=sampler,
        trials=trials,
        metric=metric,
        best_seed=best_seed,
        best=not no_best,
        only_best=only_best,
        extend=extend,
        fair=fair,
    )
    for warning in asked.warnings():
        show.warning(warning)
    again = shlex.join(["edgefl", *sys.argv[1:]])
    did = Did(interrupted=True)
    try:
        did = done(asked, power, SweepLines())
    except BegunInterrupt:  # a second Ctrl-C ends it at once
        print(f"edgefl: to go on with it: {printable(again)}", file=sys.stderr, flush=True)
    _conclude(asked, "" if did.to_the_end else again)
    if not did.to_the_end:
        raise typer.Exit(INTERRUPTED if did.interrupted else FAILED)


class BegunInterrupt(KeyboardInterrupt):
    """A Ctrl-C that has ended a sweep at once, after it had begun."""


def done(asked: Sweep, power: Power, lines: SweepLines, scored: Scored | None = None) -> Did:
    """Do the sweep. ``scored``: see ``RunBatch``. BegunInterrupt after a second Ctrl-C."""
    from edgefl.plugins.sweep.sweep_runs import do

    def do_runs(runs: Sequence[SweepRun]) -> Did:
        missing = [run for run in runs if not run.is_done]
        at_once = power.workers if power.engine is EngineName.local else 1
        lines.start(len(runs), len(missing), at_once)
        return do(missing, power, lines, scored=scored)

    counts = [f"{each.name} {len(first)}" for each, first in asked.first]
    own = "" if asked.best_seed is None else f", and seed {asked.best_seed} to choose the best"
    seeds = ", ".join(map(str, asked.seeds))
    lines.say(f"{asked.folder.path}: settings: {', '.join(counts)}; seeds {seeds}{own}")
    begun = False
    try:
        with asked.claimed():
            begun = True
            return asked.do(do_runs)
    except KeyboardInterrupt as error:
        if begun:
            raise BegunInterrupt(*error.args) from error
        raise
    finally:
        lines.close()


def _conclude(asked: Sweep, again: str) -> None:
    """Print the table and write the files of what is done."""
    from edgefl.plugins.sweep import outcome

    rows = outcome.setting_rows(asked)
    if rows:
        console = Console()
        console.print(outcome.table(asked, rows))
        for line in outcome.best_lines(asked, rows):
            show.line(line)
        for path in outcome.write(asked, rows):
            show.line(str(path))
    show.hint(again or f"edgefl compare {shlex.quote(str(asked.folder.path))}")


class SweepLines(ProgressLines):
    """The progress of the runs, and of the sweep: how many are done, and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._left: TimeLeft | None = None
        self._before = 0
        self._runs = 0

    def start(self, runs: int, missing: int, at_once: int) -> None:
        """Begin a batch of ``runs``, of which ``missing`` are not done."""
        self._runs += runs
        self._before = self._runs - missing
        self._left = TimeLeft(missing, max(min(at_once, missing), 1), time.monotonic())
        if missing < runs:
            self.say(f"done before: {runs - missing} of {runs} runs")

    def _overall(self) -> str:
        if self._left is None:
            return ""
        left_s = self._left.left_s(time.monotonic())
        left = "" if left_s is None or not left_s else f", about {clock(left_s)} left"
        return f"{self._before + self._left.done} of {self._runs} runs{left}"

    def show(self, name: str, text: str) -> None:
        if self.console.is_terminal:
            self._lines.pop("sweep", None)
            self._lines["sweep"] = self._overall()  # the last line
        super().show(name, text)

    def end(self, name: str, text: str) -> None:
        """End a run's line: "fedavg,mu=1 seed 2: ... [3 of 24 runs, about 0:10:00 left]"."""
        if self._left is not None:
            self._left.ended(time.monotonic())
        overall = self._overall()
        super().end(name, f"{text} [{overall}]" if overall else text)


@dataclass(slots=True)
class TimeLeft:
    """Estimates the wall time left from the runs that have ended.

    ``runs``: how many there are to do; ``at_once``: how many are done at a time.
    """

    runs: int
    at_once: int
    began_s: float
    _took_s: list[float] = field(default_factory=list)
    _ends_s: list[float] = field(default_factory=list)  # when each place became free

    def ended(self, now_s: float) -> None:
        """A run has ended. It began when the first of the free places became free."""
        is_first = len(self._took_s) < self.at_once
        since_s = self.began_s if is_first else self._ends_s.pop(0)
        self._took_s.append(now_s - since_s)
        self._ends_s.append(now_s)

    @property
    def done(self) -> int:
        return len(self._took_s)

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds left, 0.0 at the end; None before the first run has ended.

        Each run is expected to take the mean time of those that have ended.
        """
        if not self._took_s:
            return None
        mean_s = fmean(self._took_s)
        left = self.runs - self.done
        running = min(left, self.at_once)
        begun_s = [*self._ends_s, *[self.began_s] * self.at_once][:running]
        of_running = sum(max(mean_s - (now_s - since_s), 0.0) for since_s in begun_s)
        return (of_running + (left - running) * mean_s) / max(min(self.at_once, left), 1)
