"""Experiments from Python: ``edgefl.run``, ``edgefl.sweep`` and ``edgefl.check``.

They do what the commands of these names do, without printing to a notebook what is meant for a
terminal, and raise where a command exits.
"""

from __future__ import annotations

import html
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefl import catalog
from edgefl.clocks.choices import RUN, VIRTUAL, WALL, EngineName, Power
from edgefl.clocks.processes import RunProcesses
from edgefl.clocks.setup.resumption import Origin, RunStage
from edgefl.commands.check import CheckedExperiment, checked
from edgefl.commands.run import power_of
from edgefl.commands.running import (
    RunTask,
    Screen,
    compared,
    go_on,
    resumed,
    run_seeds,
    run_virtual_seeds,
)
from edgefl.config import packaged
from edgefl.config.experiment import Experiment
from edgefl.config.file import Changes, Config, own_names, server_code
from edgefl.config.section import Section, as_override
from edgefl.errors import ProcessDied, UserError, nearest
from edgefl.interface.runs import PathLike, Runs, load
from edgefl.plugins.sweep import outcome
from edgefl.plugins.sweep.command import SweepLines, done
from edgefl.plugins.sweep.search import planned
from edgefl.plugins.sweep.settings import quoted
from edgefl.record.files import METRICS
from edgefl.results.progress import LiveView, Pace
from edgefl.results.read import TableTail
from edgefl.results.run_files import read_config, title
from edgefl.results.summary import INTERRUPTED
from edgefl.results.tables import Grid, GridColumn
from edgefl.results.tables import html as table_html

ConfigLike = str | os.PathLike[str] | Mapping[str, Any] | Experiment
STOPPED = "stopped by a callback"  # the end reason of a run
TEXTS = ("strategy", "verdict")  # columns of a sweep's settings
NAMED = ("data", "model", "partition")  # tables for which a name alone will do


# ---------------------------------------------------------------------- callbacks
@dataclass(frozen=True, slots=True)
class ModelScores:
    """The scores of one model of a run.

    ``run``: its name in ``Runs``, such as "fedavg" or "fedavg/seed2"; ``directory``: its folder.
    ``strategy``: its name in tables. ``emulated_s``, ``wall_s``: seconds since the run began.
    ``bytes_up``, ``bytes_down``: sent by all edges together, and to them. ``numbers``: all numbers
    of the row of metrics.csv, by column; a score of a diverged model may be NaN or infinite.
    """

    run: str
    strategy: str
    seed: int
    directory: Path
    version: int
    emulated_s: float
    wall_s: float
    bytes_up: int
    bytes_down: int
    numbers: Mapping[str, float]

    @property
    def accuracy(self) -> float:
        """The test accuracy, as a share of 1."""
        return self.numbers["accuracy"]

    @property
    def test_loss(self) -> float:
        return self.numbers["test_loss"]


Callback = Callable[[ModelScores], bool | None]


class Evaluations:
    """Gives new rows of metrics.csv to callbacks."""

    def __init__(self, callbacks: Callback | Sequence[Callback]) -> None:
        several = callbacks if isinstance(callbacks, Iterable) else [callbacks]
        self.callbacks = [callbacks] if callable(callbacks) else list(several)
        for each in self.callbacks:
            if not callable(each):
                raise UserError(f"on_evaluation: expected a function, found {each!r}")
        self.failure: BaseException | None = None  # that a callback has raised
        self._tails: dict[Path, TableTail] = {}
        self._ended: set[Path] = set()  # runs that a callback has ended
        self._config = cache(read_config)  # each is asked for with every row

    def scored(self) -> Callable[[Path], str | None] | None:
        """Return what gets the directory of a run with new rows; None without callbacks."""
        return self._scored if self.callbacks else None

    def rest(self) -> None:
        """Give the rows that were written when a run on the wall clock had ended."""
        for directory in self._tails:
            self._scored(directory)

    def _scored(self, directory: Path) -> str | None:
        """Return why the run ends now; None: it goes on."""
        if directory not in self._tails:
            self.rest()
            self._tails[directory] = TableTail(directory / METRICS)
        for row in self._tails[directory].read_new():
            found = _evaluation(directory, self._config(directory), row)
            for callback in self.callbacks:
                if self.failure is not None:
                    return INTERRUPTED
                try:
                    if isinstance(ends := callback(found), bool | np.bool_) and ends:
                        self._ended.add(directory)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    self.failure = error  # raised when the runs have stopped cleanly
        if self.failure is not None:
            return INTERRUPTED
        return STOPPED if directory in self._ended else None


def _evaluation(directory: Path, config: Mapping[str, Any], row: Mapping[str, str]) -> ModelScores:
    values = {key: float(text) for key, text in row.items() if text}
    return ModelScores(
        title(directory).replace(" seed ", "/seed"),
        str(config["run"]["strategy"]),
        int(config["seed"]),
        directory,
        int(values["version"]),
        values["emulated_s"],
        values["wall_s"],
        int(values["bytes_up"]),
        int(values["bytes_down"]),
        values,
    )


# ---------------------------------------------------------------------- run
_FIRST = threading.Lock()  # held by the first of the calls that are under way


@contextmanager
def _newest_code() -> Iterator[None]:
    """Around a call: have changed modules of the user loaded anew at its start.

    Not at the start of a call within another one, as of a callback, or beside it in a thread.
    """
    is_first = _FIRST.acquire(blocking=False)
    try:
        if is_first:
            catalog.forget_changed()
        yield
    finally:
        if is_first:
            _FIRST.release()


@_newest_code()
def run(
    config: ConfigLike | None = None,
    *,
    overrides: Changes = (),
    clock: Literal["virtual", "wall"] | None = None,
    workers: int = 1,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: PathLike | None = None,
    force: bool = False,
    progress: bool = True,
    on_evaluation: Callback | Sequence[Callback] = (),
) -> Runs:
    """Run every strategy of an experiment on this machine and return the runs.

    ``config``: the path of an experiment file, the name of one that comes with edgefl, such as
    "quickstart", a dict of its keys, or an ``Experiment``. ``overrides``: changes to it, as
    ``{"training.epochs": 2}`` or ``["training.epochs=2"]``. Where a name stands for a strategy, a
    model, a data set, a partition or a task, the class or the function may stand itself.
    ``clock``: "virtual", the default, or "wall". ``workers``: processes that train, under the
    virtual clock, with the ``engine`` "ray" on the cluster at ``ray_address``; the results are the
    same. ``out``: the folder of the results, "runs" if None; they are in OUT/NAME. ``overwrite``:
    replace finished runs there, instead of moving them to NAME.1. ``resume``: go on with the runs
    in this folder, without ``config``; ``overrides`` may then change stop keys. ``force``: on the
    wall clock, run even if this host cannot keep up. ``progress``: show it; in a notebook as one
    bar. ``on_evaluation``: what is called with each ``ModelScores``; its run ends if it returns
    True.

    UserError, in one line, for what is wrong with the input. ProcessDied if a process of a run
    dies. KeyboardInterrupt after Ctrl-C, and what a callback raises: the runs then have stopped
    cleanly and can be resumed.
    """
    _refuse_here("run")
    task = _task(config, overrides, clock, out, overwrite, resume, force)
    power = _power(task.experiment, task.clock, workers, engine, ray_address)
    task.only_here()
    for warning in task.warnings():
        warnings.warn(warning, stacklevel=3)
    seen = Evaluations(on_evaluation)
    lines, screen = _displays(progress, _runs_left(task))
    if task.resumption is not None:
        lines.say(task.resumption.told())
    with _torch_threads_kept():
        if task.clock == VIRTUAL:
            whole, to_the_end = run_virtual_seeds(task, power, lines, seen.scored())
        else:
            whole, to_the_end = True, _on_the_wall(task, screen, seen, force)
    compared(task.experiment, task.folder)
    _raise_early_end(task, seen, lines.deaths, whole, to_the_end)
    return load(task.folder)


def _task(
    config: ConfigLike | None,
    overrides: Changes,
    clock: str | None,
    out: PathLike | None,
    overwrite: bool,
    resume: PathLike | None,
    force: bool,
) -> RunTask:
    if clock not in (None, VIRTUAL, WALL):
        near = nearest(str(clock), (VIRTUAL, WALL))
        raise UserError(f"clock: expected {VIRTUAL!r} or {WALL!r}, found {clock!r}{near}")
    folder = None if out is None else Path(out)
    if resume is not None:
        if config is not None or overwrite:
            raise UserError("resume: goes on with the runs of a folder: expected no config with it")
        words = (None, changes(overrides))
        return RunTask.resumed(resumed(Path(resume), RUN, words, clock, folder))
    if config is None:
        raise UserError(
            "config: missing: expected a path, a dict, an Experiment or the name of an experiment"
            " that comes with edgefl, such as 'quickstart'"
        )
    read = config_of(config)
    options = ("--force",) if force else ()
    origin = Origin(RUN, clock or VIRTUAL, read.base, options)
    return RunTask.new(read, changes(overrides), folder, origin, overwrite)


def _power(
    experiment: Experiment, clock: str, workers: int, engine: str, ray_address: str | None
) -> Power:
    """Return the workers to use. UserError for what does not go together, and for code that other
    processes cannot import.
    """
    if not (isinstance(workers, Real) and float(workers).is_integer()):
        raise UserError(f"workers: expected a whole number, found {workers!r}")
    if workers < 1:
        raise UserError(f"workers: expected at least 1, found {workers}")
    if engine not in (names := [each.value for each in EngineName]):
        raise UserError(f"engine: expected one of {', '.join(names)}, found {engine!r}")
    power = power_of(clock, int(workers), EngineName(engine), ray_address)
    if clock == WALL or power.engine is EngineName.ray:
        for name in (*own_names(experiment), *server_code(experiment)):
            if name.startswith(f"{catalog.MAIN}:"):
                raise catalog.not_in_a_file(name)
    return power


def _runs_left(task: RunTask) -> int:
    if task.resumption is not None:
        return sum(run.stage is not RunStage.finished for run in task.resumption.runs)
    return len(task.experiment.strategies) * len(task.experiment.by_seed())


def _on_the_wall(task: RunTask, screen: Screen, seen: Evaluations, force: bool) -> bool:
    # the processes find the modules that this one finds
    with RunProcesses([path for path in sys.path if path]) as processes:
        to_the_end = run_seeds(
            task, screen, seen.scored(), processes=processes, fleet=True, force=force
        )
        seen.rest()
    return to_the_end


def _raise_early_end(
    task: RunTask, seen: Evaluations, deaths: Sequence[str], whole: bool, to_the_end: bool
) -> None:
    again = ""
    if go_on(task.folder, task.experiment):
        again = f"to go on with it: edgefl.run(resume={str(task.folder)!r})"
    if seen.failure is not None:
        if again:
            seen.failure.add_note(again)
        raise seen.failure
    if not to_the_end:
        raise KeyboardInterrupt(again)
    if not whole:
        raise ProcessDied("; ".join([*deaths, *filter(None, [again])]), bug=True)


@contextmanager
def _torch_threads_kept() -> Iterator[None]:
    """A run lets torch compute on one thread. Afterwards it computes as before."""
    try:
        yield
    finally:
        if "edgefl.models.torch_device" in sys.modules:
            from edgefl.models.torch_device import threads_as_before

            threads_as_before()


def _refuse_here(function: str) -> None:
    """Raise UserError inside a running event loop, except that of a notebook.

    In a process of a run that imports the script with this call, end the import here.
    """
    catalog.refuse_in_import()
    if "asyncio" not in sys.modules:
        return
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not _in_notebook():
        raise UserError(
            f"edgefl.{function}: would block the event loop that runs here: expected"
            f" await asyncio.to_thread(edgefl.{function}, ...)"
        )


# ---------------------------------------------------------------------- sweep and check
@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep has found.

    ``runs``: those of all settings. ``settings``: a row for each setting of a strategy: its values,
    and the ``score`` by which it was chosen, ``mean`` and ``std`` over the other ``n`` seeds.
    ``best``: strategy -> the values of its best setting; {} without a choice.
    """

    folder: Path
    runs: Runs
    settings: tuple[Mapping[str, Any], ...]
    best: Mapping[str, Mapping[str, Any]]

    def _repr_html_(self) -> str:
        columns = {
            key: GridColumn(key, tuple(_cell(row[key]) for row in self.settings), key in TEXTS)
            for key in (self.settings[0] if self.settings else ())
        }
        return table_html(Grid(columns))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@_newest_code()
def sweep(
    config: ConfigLike,
    grid: Mapping[str, Any] | Sequence[str],
    *,
    overrides: Changes = (),
    workers: int = 1,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    out: PathLike | None = None,
    sampler: Literal["random", "optuna"] | None = None,
    trials: int | None = None,
    metric: str = "convergence_accuracy",
    best_seed: int | None = None,
    best: bool = True,
    only_best: bool = False,
    extend: int = 0,
    fair: bool = False,
    progress: bool = True,
    on_evaluation: Callback | Sequence[Callback] = (),
) -> SweepResult:
    """Run an experiment with many settings, under the virtual clock, and find the best one.

    ``grid``: keys with their values, as ``{"training.learning_rate": [0.05, 0.1], "seed": [1, 2]}``
    or in the words of ``edgefl sweep --grid``; a text such as "0.01..0.1:log" is a range, for a
    ``sampler``. ``best``: choose the best setting of each strategy by ``metric``. The other
    arguments are the options of that command and those of ``run``. Runs that are in ``out`` already
    are not repeated.
    """
    _refuse_here("sweep")
    read = config_of(config).changed(changes(overrides))
    asked = planned(
        read,
        _words(grid),
        None if out is None else Path(out),
        sampler=sampler,
        trials=trials,
        metric=metric,
        best_seed=best_seed,
        best=best,
        only_best=only_best,
        extend=extend,
        fair=fair,
    )
    power = _power(asked.whole, VIRTUAL, workers, engine, ray_address)
    for warning in asked.warnings():
        warnings.warn(warning, stacklevel=3)
    seen = Evaluations(on_evaluation)
    lines = _displays(progress, 0)[0]
    with _torch_threads_kept():
        did = done(asked, power, lines, seen.scored())
    rows = outcome.setting_rows(asked)
    outcome.write(asked, rows)
    if seen.failure is not None:
        raise seen.failure
    if did.interrupted:
        raise KeyboardInterrupt(f"the same call goes on with the runs in {asked.folder.path}")
    if not did.whole:
        raise ProcessDied("; ".join(lines.deaths), bug=True)
    folder, settings = asked.folder.path, tuple(outcome.records(asked, rows))
    chosen = {row.method.name: dict(row.setting.values) for row in rows if row.is_best}
    return SweepResult(folder, load(folder), settings, chosen)


def _words(grid: Mapping[str, Any] | Sequence[str]) -> list[str]:
    if not isinstance(grid, Mapping):
        return list(grid)
    words = []
    for key, given in plain(grid).items():
        several = isinstance(given, Iterable) and not isinstance(given, Mapping)
        values = given if several else [given]
        words.append(f"{key}={given if isinstance(given, str) else ','.join(map(quoted, values))}")
    return words


@_newest_code()
def check(
    config: ConfigLike, *, overrides: Changes = (), progress: bool = True
) -> CheckedExperiment:
    """Check an experiment without running it, and estimate its duration and bytes.

    ``progress``: print each line when it is known. UserError for what is wrong.
    """
    _refuse_here("check")
    say: Callable[[str], None] = print if progress and not _in_notebook() else lambda line: None
    read = config_of(config)
    warned: list[str] = []
    try:
        with _torch_threads_kept():
            return checked(read, changes(overrides), say, warned.append)
    finally:
        for line in warned:
            warnings.warn(line, stacklevel=3)


# ---------------------------------------------------------------------- configs
def config_of(config: ConfigLike) -> Config:
    """Return the tables of an experiment. UserError for what is no experiment.

    Paths of code and traces in a dict or an Experiment are relative to the working directory.
    """
    if isinstance(config, Experiment):
        return Config(tables(config.model_dump(exclude_unset=True)), "the experiment", Path.cwd())
    if isinstance(config, Mapping):
        return Config(tables(config), "the config", Path.cwd())
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        return Config.read(packaged.find(path) or path)
    raise UserError(
        "config: expected a path, a dict, an Experiment or the name of an experiment that comes"
        f" with edgefl, found {type(config).__name__}"
    )


def changes(overrides: Changes) -> Changes:
    """Return changes with names in place of classes and functions. One text is one change.

    UserError for None: no change removes a key. UserError for what are no changes.
    """
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        words = list(overrides) if isinstance(overrides, Iterable) else [overrides]
        if not all(isinstance(each, str) for each in words):
            raise UserError(
                "overrides: expected a dict of keys and values, or texts such as"
                f' "training.epochs=2", found {overrides!r}'
            )
        return words
    for key, value in overrides.items():
        if value is None:
            raise UserError(f"{as_override(key)}: expected a value, found None")
    return tables(overrides)


def tables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables as those of a file.

    A strategy may be its name or its class alone, and so may what NAMED lists.
    """
    found: dict[str, Any] = plain(given)
    for key in NAMED:
        if key in found and not isinstance(found[key], Mapping):
            name = found[key]
            found[key] = {"name": name if isinstance(name, str) else catalog.name_of(name)}
    if isinstance(found.get("strategies"), list):
        found["strategies"] = [
            {"strategy": each} if isinstance(each, str) else each for each in found["strategies"]
        ]
    return found


def plain(value: Any) -> Any:
    """Return a value as TOML has it. A class or a function becomes its name, and None is left out.

    UserError for a class or function that no other process can find.
    """
    if isinstance(value, Section):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return catalog.name_of(value) if callable(value) else value


# ---------------------------------------------------------------------- displays
class _Lines(SweepLines):
    """Progress in a terminal or a file. The deaths of runs are raised in the end, not printed."""

    def __init__(self) -> None:
        super().__init__()
        self.deaths: list[str] = []

    def died(self, text: str) -> None:
        self.deaths.append(text)


class _NoLines(_Lines):
    def ticker(self, stop: Any, say: Any, pool: Any = None) -> Callable[[int, Any], None]:
        return lambda now_ns, run: None

    def show(self, name: str, text: str) -> None: ...

    def say(self, text: str) -> None: ...


class _NoScreen(Screen):
    def watch(self, index: int, directory: Path, port: int) -> None: ...

    def say(self, text: str) -> None: ...


class _Bar:
    """The progress of all runs as one bar in a notebook."""

    def __init__(self, runs: int) -> None:
        self.runs, self.ended = runs, 0
        self._active: dict[str, tuple[float, str]] = {}  # run -> share that is done, text
        self._notes: list[str] = []
        self._began_s, self._drawn_s = time.monotonic(), 0.0
        self._handle: Any = None

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._notes.append(text)
        self._draw()

    def show(self, name: str, share: float, text: str) -> None:
        self._active[name] = share, text
        if time.monotonic() - self._drawn_s > 0.2:
            self._draw()

    def end(self, name: str) -> None:
        self._active.pop(name, None)
        self.ended += 1
        self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        self._drawn_s = time.monotonic()
        if self._handle is None:
            self._handle = display(HTML(self._text()), display_id=True)
        else:
            self._handle.update(HTML(self._text()))

    def _text(self) -> str:
        shares = sum(share for share, _ in self._active.values())
        value = min((self.ended + shares) / max(self.runs, 1), 1.0)
        took = f"{time.monotonic() - self._began_s:.0f} s"
        parts = [f"{self.ended} of {self.runs} runs, {took}"]
        parts += [f"{name}: {text}" for name, (_, text) in self._active.items()]
        parts += self._notes
        said = "<br>".join(map(html.escape, parts))
        return f'<progress value="{value:.3f}" max="1" style="width: 20em"></progress> {said}'


class _BarLines(_Lines):
    """Runs under the virtual clock in a notebook."""

    def __init__(self, bar: _Bar) -> None:
        super().__init__()
        self._bar = bar
        self.every_s = 0.5

    def bar(self, pace: Pace) -> str:
        return f"{pace.share:.3f} "

    def start(self, runs: int, missing: int, at_once: int) -> None:
        super().start(runs, missing, at_once)
        self._bar.runs, self._bar.ended = self._runs, self._before

    def show(self, name: str, text: str) -> None:
        share, _, rest = text.partition(" ")
        self._bar.show(name, float(share), rest)

    def say(self, text: str) -> None:
        self._bar.note(text)

    def end(self, name: str, text: str) -> None:
        self._bar.end(name)  # the table follows


class _BarScreen(Screen):
    """Runs on the wall clock in a notebook."""

    def __init__(self, bar: _Bar) -> None:
        super().__init__()
        self._bar = bar

    def present(self, view: LiveView, now_s: float) -> None:
        text = view.plain(now_s)
        name = "" if self._directory is None else title(self._directory)
        share = 0.0 if view.pace is None else view.pace.share
        self._bar.show(name, share, text)

    def say(self, text: str) -> None:
        if self._directory is None or not text.startswith(f"{title(self._directory)}: "):
            self._bar.note(text)  # the others are of the table that follows

    def close(self) -> None:
        if self._directory is not None:
            self._bar.end(title(self._directory))


def _displays(progress: bool, runs: int) -> tuple[_Lines, Screen]:
    """Return what shows the progress of runs: under the virtual clock, and on the wall clock."""
    if not progress:
        return _NoLines(), _NoScreen()
    if not _in_notebook():
        return _Lines(), Screen()
    bar = _Bar(runs)
    return _BarLines(bar), _BarScreen(bar)


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
