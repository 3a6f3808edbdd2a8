"""``edgefl run`` and ``edgefl coordinator``: an experiment from its file to its table and figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.live import Live

from edgefl.commands import show
from edgefl.config import Experiment
from edgefl.config_file import base_of, load
from edgefl.config_groups import warnings
from edgefl.errors import UserError
from edgefl.results.live import LiveView
from edgefl.results.summary import one_line
from emulator.units import seconds_text

PLAIN_EVERY_S = 5.0

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment file (TOML).")]
Overrides = Annotated[Optional[list[str]], typer.Argument(metavar="[KEY=VALUE]...", help="Changes for this run: stop.emulated_s=10")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Results go to DIR/<name of the experiment>/.")]


class Clock(str, Enum):
    wall = "wall"
    virtual = "virtual"


def run(
    config: Config,
    overrides: Overrides = None,
    clock: Annotated[Clock, typer.Option("--clock", help="Real sockets in real time, or the same schemes at full speed.")] = Clock.wall,
    out: Out = Path("runs"),
    force: Annotated[bool, typer.Option("--force", help="Go on although this host cannot keep up; the run will be strained.")] = False,
) -> None:
    """Run every strategy of an experiment on this machine and compare them."""
    from edgefl.hosts.keys import is_loopback

    experiment = load(config, overrides or ())
    if clock is Clock.wall and not is_loopback(experiment.network.host):
        expected = "edgefl run stays on this machine (for edges elsewhere: edgefl coordinator): expected 127.0.0.1"
        raise UserError(f"network.host: {expected}, found {experiment.network.host!r}")
    _warn(experiment, config)
    folder = out / experiment.name
    directories = [folder / entry.name for entry in experiment.strategies]
    if clock is Clock.virtual:
        done = _virtual(experiment, base_of(config), directories)
    else:
        done = _wall(experiment, config, folder, fleet=True, force=force)
    _conclude(folder, directories[:done])


def coordinator(
    config: Config,
    overrides: Overrides = None,
    out: Out = Path("runs"),
    keys: Annotated[Optional[Path], typer.Option("--keys", metavar="DIR", help="CURVE keys from `edgefl keys new`.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow a network without keys.")] = False,
) -> None:
    """Be the coordinator for edges in other terminals or on other machines (`edgefl edge`)."""
    from edgefl.hosts.keys import load_server, must_have_keys

    experiment = load(config, overrides or ())
    must_have_keys(experiment.network.host, load_server(keys) if keys else None, insecure)
    _warn(experiment, config)
    folder = out / experiment.name
    done = _wall(experiment, config, folder, fleet=False, keys=keys)
    _conclude(folder, [folder / entry.name for entry in experiment.strategies][:done])


def _warn(experiment: Experiment, config: Path) -> None:
    """Say what a person may want to change about the traces before the run begins."""
    for warning in warnings(experiment, base_of(config)):
        print(f"edgefl: warning: {warning}", file=sys.stderr)


def _wall(experiment: Experiment, config: Path, folder: Path, **where: Any) -> int:
    """Run on the wall clock; the number of strategies that have results."""
    from edgefl.hosts.wall_run import Died, Interrupted, WallRun, Where

    screen = Screen(experiment)
    launcher = WallRun(experiment, Where(folder, base_of(config), **where), screen.say)
    names = ", ".join(entry.name for entry in experiment.strategies)
    show.line(f"{experiment.name}: {names} with {len(experiment.edges.ids())} edges, results in {folder}")
    try:
        return len(launcher.run(screen.watch))
    except Interrupted as stopped:
        return len(stopped.summaries)
    except Died as death:
        print(f"edgefl: {death}; what was written so far lies in {folder}", file=sys.stderr)
        raise typer.Exit(1) from None
    finally:
        screen.close()


def _virtual(experiment: Experiment, base: Path, directories: list[Path]) -> int:
    """Run under the virtual clock, here; the number of strategies that have results."""
    from edgefl.hosts.learning import learning
    from edgefl.hosts.plan import refuse_native
    from edgefl.hosts.rundir import clear
    from edgefl.hosts.virtual_run import run_virtual

    refuse_native(experiment)
    learned = learning(experiment, base)
    kept = clear(directories[0].parent, [entry.name for entry in experiment.strategies])
    if kept:
        show.line(f"from earlier runs, left as they are: {', '.join(kept)}")
    for index, directory in enumerate(directories):
        summary = run_virtual(learned, index, directory, _ticker(experiment.strategies[index].name))
        show.line(one_line(summary))
        if summary["finished"] == "interrupted":
            return index + 1
    return len(directories)


def _ticker(name: str) -> Callable[[int, Any], None]:
    """A line now and then, on a terminal in place."""
    console, shown = Console(stderr=True), [time.monotonic()]
    every_s = 0.5 if console.is_terminal else PLAIN_EVERY_S

    def tick(now_ns: int, run: Any) -> None:
        if time.monotonic() - shown[0] < every_s:
            return
        shown[0] = time.monotonic()
        text = f"{name}: emulated {seconds_text(now_ns)[:-8]} s, version {run.coordinator.version}, {run.record.updates_applied} updates"
        console.print(text, end="\r" if console.is_terminal else "\n", highlight=False)

    return tick


class Screen:
    """The live display of a wall-clock run: a screen on a terminal, a line every few seconds elsewhere."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.console = Console()
        self.view: LiveView | None = None
        self.live: Live | None = None
        self._index = -1
        self._said_s = time.monotonic()

    def watch(self, index: int, directory: Path, port: int) -> None:
        """Show what is new in the run directory."""
        if index != self._index:
            self.close()
            self._index, self.view = index, LiveView(directory, self.experiment.edges.ids())
        assert self.view is not None
        if not self.console.is_terminal:
            if time.monotonic() - self._said_s >= PLAIN_EVERY_S:
                self._said_s = time.monotonic()
                show.line(self.view.plain())
            return
        screen = self.view.update()
        if self.live is None:
            self.live = Live(screen, console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        self.live.update(screen, refresh=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        (self.live.console if self.live else self.console).print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.live = None


def _conclude(folder: Path, directories: list[Path]) -> None:
    """The table, comparison.csv and the figure of the strategies that have results."""
    from edgefl.results import compare, plots

    rows = compare.load(*directories)
    if not rows:
        return
    Console().print(compare.table(rows))
    compare.write_csv(rows, folder / "comparison.csv")
    figures = plots.accuracy(directories, folder / "figures" / "accuracy.png")
    show.line(f"figure: {figures[0]}")
    show.hint(f"edgefl compare {folder}, or look into {directories[0] / 'summary.json'}")
