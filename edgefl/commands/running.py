"""What the commands that run experiments share: run, coordinator, launch, and parts for sweep.

In this order: what a command is asked to do, and its resumption; runs under the virtual clock;
runs on the wall clock; the table and the figures at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from edgefl.clocks.choices import VIRTUAL, Power
from edgefl.clocks.network_addresses import is_loopback
from edgefl.clocks.setup.resumption import (
    MOST_DIFFERENCES,
    Origin,
    Resumption,
    RunFolder,
    RunStage,
    check_data,
    differences,
    experiment_folder,
    lengthened,
    origin_of,
    read_resumption,
    runs_in,
    writable,
)
from edgefl.commands import show
from edgefl.config.experiment import Experiment, Stop, group_warnings
from edgefl.config.file import Changes, Config, load, strategy_warnings
from edgefl.errors import ProcessDied, UserError, listed, printable
from edgefl.exit_status import FAILED
from edgefl.record.files import EXPERIMENT
from edgefl.results.progress import LiveView, Pace, Point
from edgefl.results.run_files import seed_name
from edgefl_testbed import install_command
from emulator.units import NS_PER_S

if TYPE_CHECKING:
    from edgefl.clocks.setup.learning import Learning
    from edgefl.clocks.virtual.run_batch import BatchRun
    from edgefl.clocks.wall.launcher import WallRun
    from edgefl.results.compare import Row

RESULTS = Path("runs")  # the default of --out


@dataclass(frozen=True, slots=True)
class RunTask:
    """What a command is asked to do: new runs, or a resumption.

    An experiment, the folder of the user's code, and that of the runs. ``text``: experiment.toml of
    new runs; "": none is written. ``overwrite``: they replace finished runs in ``folder``.
    ``resumption``: the runs that are resumed, if any: finished ones stay, and broken ones go on.
    """

    experiment: Experiment
    base: Path
    folder: Path
    clock: str
    text: str = ""
    overwrite: bool = False
    resumption: Resumption | None = None

    @classmethod
    def new(
        cls,
        config: Config,
        overrides: Changes,
        out: Path | None,
        origin: Origin,
        overwrite: bool = False,
    ) -> RunTask:
        """Check the experiment. UserError for what is wrong with it."""
        experiment = config.experiment(overrides)
        folder = (out or RESULTS) / experiment.name
        text = origin.text(experiment)
        return cls(experiment, config.base, folder, origin.clock, text, overwrite)

    @classmethod
    def resumed(cls, runs: Resumption) -> RunTask:
        origin = runs.origin
        return cls(runs.experiment, origin.base, runs.folder, origin.clock, resumption=runs)

    @property
    def resume(self) -> bool:
        return self.resumption is not None

    def warnings(self) -> list[str]:
        """Return the warnings about a new run's config."""
        return [] if self.resume else config_warnings(self.experiment, self.base)

    def tell(self) -> None:
        """Print what is resumed, or the warnings."""
        if self.resumption is not None:
            show.line(self.resumption.told())
        for warning in self.warnings():
            show.warning(warning)

    def only_here(self) -> None:
        """Raise UserError for edges elsewhere."""
        host = self.experiment.network.host
        if self.clock != VIRTUAL and not is_loopback(host):
            raise UserError(
                "network.host: edgefl run uses only this machine (for edges elsewhere: edgefl"
                f" coordinator): expected 127.0.0.1, found {host!r}"
            )

    def claim(self) -> RunFolder:
        """The folder of the runs, not locked yet. UserError if another command writes to it.

        Runs that are lengthened get their stop keys here: from now on they are broken off.
        """
        claim = RunFolder(self.folder, self.text, self.resume, self.overwrite, self.base)
        claim.refuse_if_in_use()
        if self.resumption is not None and self.resumption.lengthening is not None:
            claim.lock()
            try:
                with writable(self.folder, resumed=True):
                    self.resumption.lengthening.apply()
            finally:
                claim.release()
        return claim


def config_warnings(experiment: Experiment, base: Path) -> list[str]:
    """Return warnings about a config."""
    return [*group_warnings(experiment, base), *strategy_warnings(experiment, base)]


NOT_DURABLE = "off"  # a value of record.durability

Placed = Callable[[Experiment], Experiment]


def resumed(
    given: Path,
    command: str,
    words: tuple[Path | None, Changes] = (None, ()),
    clock: str | None = None,
    out: Path | None = None,
    placed: Placed = lambda experiment: experiment,
) -> Resumption:
    """Return what ``command`` resumes.

    ``words``: CONFIG and the changes to it. Only stop keys may differ from those of the runs, which
    lengthens them. ``clock``, ``out``: as on the command line, None if not given. ``placed`` may
    change the edges of CONFIG. UserError if there is nothing to resume, or for a reason against it.
    """
    resumption = read_resumption(given)
    origin, folder = resumption.origin, resumption.folder
    if origin.place:
        raise UserError(
            f"--resume {given}: the coordinator of this launch is on {origin.place}, and runs on"
            " another machine cannot be resumed from here"
        )
    if origin.command != command:
        raise UserError(
            f"--resume {given}: was begun by edgefl {origin.command}; resume it with:"
            f" {resumption.command}"
        )
    if clock is not None and clock != origin.clock:
        raise UserError(
            f"--clock {clock}: the runs in {folder} use the {origin.clock} clock, and cannot change"
            f" it; resume them with: {resumption.command}"
        )
    if out is not None and (out / resumption.asked.name).resolve() != folder.resolve():
        raise UserError(f"--out {out}: the runs are resumed in {folder}: leave --out out")
    resumption = _with_words(resumption, words, placed)
    left = [run for run in resumption.runs if run.stage is not RunStage.finished]
    if not left:
        raise UserError(
            f"--resume {given}: nothing to resume: its runs are finished (edgefl compare {folder})"
        )
    lost = resumption.of(RunStage.broken_off)
    if lost and not _is_durable(resumption.asked, origin.clock):
        raise UserError(
            f"--resume {given}: {lost[0].name} was broken off and kept no journal"
            f' (record.durability = "off"): remove {lost[0].directory}, and it runs anew'
        )
    return resumption


def go_on(folder: Path, experiment: Experiment) -> str:
    """Return the command that resumes the runs in ``folder``; "" if there is nothing to resume."""
    try:
        origin, runs = origin_of(folder), runs_in(folder, experiment)
    except (UserError, OSError):
        return ""
    stages = {run.stage for run in runs}
    if stages == {RunStage.finished} or stages == {RunStage.not_begun}:
        return ""
    if RunStage.broken_off in stages and not _is_durable(experiment, origin.clock):
        return ""
    return origin.resumed_by(folder)


def go_on_of(given: Path) -> str:
    """Return ``go_on`` of the experiment that ``given`` is, or is a run of.

    "" if there is nothing to resume, if it is no such folder, or if a command writes to it now.
    """
    try:
        folder = experiment_folder(given)
        RunFolder(folder).refuse_if_in_use()
        return go_on(folder, load(folder / EXPERIMENT))
    except UserError:
        return ""


def say_how_to_go_on(folder: Path, experiment: Experiment) -> None:
    """Print the command that resumes the runs on stderr, if there is something to resume."""
    command = go_on(folder, experiment)
    if command:
        print(f"edgefl: to go on with it: {printable(command)}", file=sys.stderr, flush=True)


@contextmanager
def hint_at_early_end(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Around runs: after a Ctrl-C that ends the command at once, say how to go on.

    If a process dies that the run needs, exit with status 1, too.
    """
    try:
        yield
    except ProcessDied as death:
        print(f"edgefl: {death}; the files so far are in {folder}", file=sys.stderr)
        if not death.bug:  # it would happen again
            say_how_to_go_on(folder, experiment)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        say_how_to_go_on(folder, experiment)
        raise


def _is_durable(experiment: Experiment, clock: str) -> bool:
    return clock == VIRTUAL or experiment.record.durability != NOT_DURABLE


def _with_words(
    resumption: Resumption, words: tuple[Path | None, Changes], placed: Placed
) -> Resumption:
    """Return the resumption with the stop keys of ``words``.

    If they change none, it goes on with a lengthening that was broken off before the runs began.
    """
    stop = _wanted_stop(resumption, words, placed)
    stop = resumption.stop() if stop == resumption.asked.stop else stop
    return resumption if stop == resumption.asked.stop else lengthened(resumption, stop)


def _wanted_stop(
    resumption: Resumption, words: tuple[Path | None, Changes], placed: Placed
) -> Stop:
    config, overrides = words
    if config is None and not overrides:
        return resumption.asked.stop
    if config is not None and "=" in str(config) and not config.exists():
        config, overrides = None, [str(config), *overrides]  # no CONFIG, but a change to it
    wanted = load(resumption.file, overrides) if config is None else load(config, overrides, placed)
    now, then = (each.model_dump(exclude_none=True) for each in (wanted, resumption.asked))
    other = differences(now, then, ("run", "stop"))
    if other:
        given = [str(config)] if config is not None else [str(each) for each in overrides]
        blamed = (each for each in given if other[0].startswith(each.partition("=")[0]))
        raise UserError(
            f"{next(blamed, given[0])}: differs from the config of the runs in"
            f" {resumption.folder}, of which only stop keys may change:"
            f" {listed(other, MOST_DIFFERENCES)}"
        )
    return wanted.stop


def _jobs(task: RunTask) -> list[BatchRun]:
    """The runs to do, seed by seed: all, or those that are not finished.

    UserError if a run that goes on had other data.
    """
    from edgefl.clocks.setup.learning import learning, with_experiment
    from edgefl.clocks.trial import try_out
    from edgefl.clocks.virtual.run_batch import BatchRun

    resume = task.resume
    runs = [
        run
        for run in runs_in(task.folder, task.experiment)
        if not (resume and run.stage is RunStage.finished)
    ]
    learned: dict[int, Learning] = {}
    seeds = {one.seed: one for one in task.experiment.by_seed()}
    for run in runs:
        first = next(iter(learned.values()), None)
        if run.seed not in learned:
            one = seeds[run.seed]
            learned[run.seed] = (
                learning(one, task.base) if first is None else with_experiment(first, one)
            )
            if first is None and not resume:
                try_out(learned[run.seed])
    goes_on = [run for run in runs if resume and run.stage is RunStage.broken_off]
    for run in goes_on:
        setup = learned[run.seed]
        check_data(run.directory, setup.data_digest(), setup.frozen_digest())
    setups = {seed: partial(lambda setup: setup, setup) for seed, setup in learned.items()}
    return [
        BatchRun(seeds[run.seed], run.index, run.directory, setups[run.seed], run in goes_on)
        for run in runs
    ]


Scored = Callable[[Path], str | None]  # see clocks.virtual.run.run_virtual


def run_virtual_seeds(
    task: RunTask, power: Power, lines: ProgressLines, scored: Scored | None = None
) -> tuple[bool, bool]:
    """Do all runs under the virtual clock, or those until Ctrl-C, seed by seed.

    So after Ctrl-C, all strategies have been run with each completed seed. Return (no run died,
    the runs came to their end); a death is told.
    """
    from edgefl.clocks.setup.plan import refuse_native
    from edgefl.clocks.virtual.run_batch import RunBatch

    refuse_native(task.experiment)
    claim = task.claim()

    def begin() -> None:
        """Make room for the runs; called when no check can fail any more, maybe twice."""
        if not claim.begun:
            claim.claim()
            for line in claim.begin():
                lines.say(line)

    batch = RunBatch(_jobs(task), power, lines, begin, scored)
    try:
        return batch.run(), not batch.interrupted
    except KeyboardInterrupt:
        if not claim.begun:
            raise
        return True, False  # Ctrl-C between two runs, or the second Ctrl-C
    finally:
        lines.close()
        for line in claim.undo():
            lines.say(line)
        claim.release()


PLAIN_EVERY_S, TERMINAL_EVERY_S = 5.0, 0.5


class ProgressLines:
    """One line for each active run, below the permanent output."""

    def bar(self, pace: Pace) -> str:
        """What stands before the text about a run's pace."""
        return f"{pace.bar()}  " if self.console.is_terminal else ""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.every_s = TERMINAL_EVERY_S if self.console.is_terminal else PLAIN_EVERY_S
        self._lines: dict[str, str] = {}
        self._live: Live | None = None

    def ticker(
        self, stop: Stop, say: Callable[[str], None], pool: Any = None
    ) -> Callable[[int, Any], None]:
        """Make a function that a host calls after every step; most calls only read the clock."""
        every_s, clock = self.every_s, time.monotonic
        pace, due_s = Pace(stop, clock()), clock() + every_s

        began = False

        def tick(now_ns: int, run: Any) -> None:
            nonlocal due_s, began
            wall_s = clock()
            if wall_s < due_s and began:
                return
            counted = run.coordinator.version, run.counters.updates_accepted
            point = Point(wall_s, now_ns / NS_PER_S, *counted)
            if not began:
                began = True
                pace.start(point)
                return
            due_s = wall_s + every_s
            pace.take(point)
            crowd = (
                f", {pool.busy} of {pool.workers} workers busy"
                if pool is not None and pool.workers > 1
                else ""
            )
            say(self.bar(pace) + pace.line() + crowd)

        return tick

    def show(self, name: str, text: str) -> None:
        """Show the new progress of the run ``name``."""
        self._lines[name] = text
        if not self.console.is_terminal:
            self.console.print(Text(f"{name}: {text}"), soft_wrap=True)
            return
        lines = "\n".join(f"{each}: {line}" for each, line in self._lines.items())
        if self._live is None:
            # no refreshing thread and no redirected streams: forks would inherit both
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Text(lines), refresh=True)

    def say(self, text: str) -> None:
        """Print ``text`` permanently, above the lines of the active runs."""
        self.close()
        show.line(text)

    def end(self, name: str, text: str) -> None:
        """End the line of the run ``name`` and print ``text`` permanently."""
        self._lines.pop(name, None)
        self.say(text)

    def died(self, text: str) -> None:
        """Tell on stderr that a run has died."""
        print(f"edgefl: {printable(text)}", file=sys.stderr)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None


Listening = Callable[[int], None]  # called again and again with the coordinator's port


def run_seeds(task: RunTask, screen: Screen, scored: Scored | None = None, **where: Any) -> bool:
    """Run every seed on the wall clock, or those until Ctrl-C; False after a Ctrl-C.

    ``scored`` gets the directory of the run under way, whose metrics.csv may have new rows; the run
    ends for the reason that it returns. ``where``: LaunchOptions, whose processes are for the first
    seed. UserError if this host does not have the meter that its user names. ProcessDied if a
    needed process dies.
    """
    from edgefl.clocks.wall.edge.machine import host_meter
    from edgefl.clocks.wall.launcher import Interrupted, LaunchOptions, WallRun

    def watch(index: int, directory: Path, port: int) -> str | None:
        screen.watch(index, directory, port)
        return None if scored is None else scored(directory)

    host_meter()
    experiment, folder = task.experiment, task.folder
    claim = task.claim()
    seeds = _unfinished(task) if task.resume else experiment.by_seed()
    several = len(experiment.by_seed()) > 1
    port = experiment.network.port
    try:
        for number, one in enumerate(seeds):
            options = LaunchOptions(
                folder,
                task.base,
                within=seed_name(one.seed, several),
                first=number == 0,
                more=number + 1 < len(seeds),
                headline="" if number else _headline(experiment),
                folder=claim,
                resume=task.resume,
                speed_auto=task.resumption is not None and task.resumption.speed_auto,
                **where,
            )
            screen.launcher = WallRun(_on_port(one, port), options, screen.say)
            screen.launcher.run(watch)
            where.pop("processes", None)
            port = screen.launcher.port  # edges elsewhere connect to it again
        return True
    except Interrupted:
        return False
    except UserError as error:
        command = go_on(folder, experiment) if claim.begun else ""
        if not command:
            raise
        raise UserError(f"{error}; to go on with it: {command}", error.status) from error
    except KeyboardInterrupt:
        if number == 0:
            raise
        return False  # Ctrl-C between two seeds
    finally:
        screen.close()
        claim.release()


def _unfinished(task: RunTask) -> list[Experiment]:
    """The experiment for each seed that has a run left to do."""
    left = {
        run.seed
        for run in runs_in(task.folder, task.experiment)
        if run.stage is not RunStage.finished
    }
    return [one for one in task.experiment.by_seed() if one.seed in left]


def _on_port(experiment: Experiment, port: int) -> Experiment:
    network = experiment.network.model_copy(update={"port": port})
    return experiment.model_copy(update={"network": network})


def _headline(experiment: Experiment) -> str:
    seeds = [str(one.seed) for one in experiment.by_seed()]
    names = ", ".join(entry.name for entry in experiment.strategies)
    each = f", each with the seeds {', '.join(seeds)}" if len(seeds) > 1 else ""
    return f"{experiment.name}: {names} with {len(experiment.edges.ids())} edges{each}"


class Screen:
    """The live display of a wall-clock run.

    On a terminal it is a screen; elsewhere it prints a line every few seconds.
    """

    def __init__(
        self, listening: Listening | None = None, hosts: Mapping[str, str] | None = None
    ) -> None:
        """``hosts``: the host of each edge, for a run on several machines."""
        self.listening, self.hosts = listening, hosts
        self.launcher: WallRun  # of the current seed
        self.console = Console()
        self.view: LiveView | None = None
        self.live: Live | None = None
        self._directory: Path | None = None
        self._said_s = time.monotonic()

    def watch(self, index: int, directory: Path, port: int) -> None:
        """Show the news of the run directory."""
        if self.listening is not None:
            self.listening(port)
        if directory != self._directory:
            self.close()
            experiment = self.launcher.experiment
            self._directory, self.view = (
                directory,
                LiveView(
                    directory,
                    experiment.edges.ids(),
                    experiment.chosen_speed,
                    experiment.stop,
                    self.hosts,
                    experiment.evaluation.score,
                    self.launcher.resumed,
                    experiment.network.join_timeout_s,
                    self.launcher.join,
                ),
            )
        assert self.view is not None
        self.present(self.view, time.monotonic())

    def present(self, view: LiveView, now_s: float) -> None:
        """Show the news of a run. ``now_s``: wall seconds."""
        screen = view.update(now_s)
        if not self.console.is_terminal:
            if now_s - self._said_s >= PLAIN_EVERY_S:
                self._said_s = now_s
                show.line(view.plain(now_s))
            return
        if self.live is None:
            self.live = Live(screen, console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        self.live.update(screen, refresh=True)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        (self.live.console if self.live else self.console).print(
            printable(text), highlight=False, markup=False, soft_wrap=True
        )

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.live = None


def compared(experiment: Experiment, folder: Path) -> tuple[list[Path], list[Row]]:
    """Compare the strategies of the experiment that have results, in CSV files in ``folder``.

    Return the folders of these strategies, and their runs.
    """
    from edgefl.results import compare, run_files

    schemes = [
        scheme
        for entry in experiment.strategies
        if run_files.runs_of(scheme := folder / entry.name)
    ]
    rows = compare.load(*schemes)
    if rows:
        compare.write_csv(rows, folder / "comparison.csv")
        if len(experiment.by_seed()) > 1:
            compare.write_seeds_csv(rows, folder / "comparison_seeds.csv")
    return schemes, rows


def conclude(experiment: Experiment, folder: Path) -> list[Row]:
    """Compare the strategies of the experiment that have results, and return their runs."""
    from edgefl.results import tables
    from edgefl.results.families import drawable, families
    from edgefl.results.figures import gallery

    schemes, rows = compared(experiment, folder)
    again = go_on(folder, experiment)
    if not rows:
        if again:  # all runs were killed early
            show.hint(again)
        return []
    console = Console()
    console.print(tables.table(rows, console.width))
    if drawable():
        for path in gallery.leave(schemes, {"accuracy": folder / "figures" / "accuracy"}):
            show.line(f"figure: {path}")
    else:
        show.line(f"no figures: matplotlib is not installed: {install_command('lab')}")
    for family in families().values():
        show.table(console, family.table(schemes))
        for line in family.leave(schemes, folder):
            show.line(line)
    if again:
        show.hint(again)
    else:
        show.hint_about("compare", [folder])
    return rows
