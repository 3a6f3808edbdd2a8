"""Runs as objects: ``edgefl.load(paths)`` returns ``Runs``, a mapping of names to ``LoadedRun``.

Everything is read from the files of the runs when it is asked for. So runs may still be under way,
or have been killed: they are read as far as their files go.
"""

from __future__ import annotations

import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import orjson
from rich.console import Console

from edgefl import __version__
from edgefl.clocks.setup.resumption import RunFolder
from edgefl.config.file import FACTS
from edgefl.config.toml import parsed
from edgefl.errors import UserError, listed, nearest, needs, undamaged
from edgefl.record.files import (
    CONFIG,
    EVENTS,
    EXPERIMENT,
    LAYOUT,
    LINKS,
    METRICS,
    MODEL,
    SUMMARY,
    SWEEP,
)
from edgefl.results import compare, run_files, tables, typed_tables
from edgefl.results.compare import ComparedStrategy, Comparison, Question, Row
from edgefl.results.families import families
from edgefl.results.figures import gallery
from edgefl.results.figures.base import Limits, PlotStyle
from edgefl.results.read import TableTail, number
from edgefl.results.run_files import RunFiles
from edgefl.results.statistics import Method
from edgefl.results.summary import BROKEN_OFF, INTERRUPTED
from edgefl.results.typed_tables import TypedTable
from edgefl.vectors import Layout

if TYPE_CHECKING:
    import pandas
    import torch
    from matplotlib.axes import Axes

PathLike = str | os.PathLike[str]
Accuracy = Literal["final", "best", "convergence"]
SUMMARIES = "summary"  # the table of one row per run
FINISHED, RUNNING, KILLED = "finished", "running", "killed"
POLL_S = 0.5
QUIET_S = 2.0  # without a row: ``follow`` looks whether the run still has a process
FOLLOWED = (CONFIG, EVENTS, LINKS, METRICS, SUMMARY)
# of the table of runs: columns of ``tables.grid``
SHOWN = (
    *("seeds", "accuracy", "to_target", "versions", "bytes_up", "bytes_down"),
    *("staleness_mean", "emulated_s", "verdict"),
)


def load(paths: PathLike | Iterable[PathLike]) -> Runs:
    """Return the runs in ``paths`` or below: of an experiment, of a strategy, or single ones.

    They may be finished, under way or killed. UserError if a path holds no run.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    return Runs([Path(path).expanduser() for path in paths])


class NoSuchRun(UserError, KeyError):
    """There is no run of this name; the line has the nearest one."""

    __str__ = Exception.__str__  # KeyError's would put the line between quotes


def _framed(columns: Callable[[], TypedTable]) -> pandas.DataFrame:
    with needs("lab", "a frame (columns() gives numpy arrays without it)"):
        import pandas
    return pandas.DataFrame(
        {
            name: pandas.arrays.IntegerArray(values.data, np.ma.getmaskarray(values))
            if isinstance(values, np.ma.MaskedArray)
            else values
            for name, values in columns().items()
        }
    )


class RunTables(ABC):
    """Tables of runs, as pandas frames or as plain numpy columns.

    The tables: ``summary`` (a row per run: the columns of comparison.csv), and those of
    ``edgefl export --to parquet``: ``metrics``, ``links``, ``events``, ``decisions``, ``slices``,
    ``instants``, ``edge_models``, ``merged_updates``, ``slots``, ``hosts``, ``labels``, ``edges``,
    ``clients``, ``measured`` and ``energy``. Times are in seconds, sizes in bytes.
    """

    @abstractmethod
    def columns(self, table: str) -> TypedTable:
        """Return a table as a dict of numpy arrays of one length; {} if the runs have none.

        A missing value is NaN in float64 and None in object (texts, lists, mixed values); whole
        numbers with gaps are a masked array of int64. UserError for an unknown table, or a damaged
        file.
        """

    def frame(self, table: str) -> pandas.DataFrame:
        """Return a table as a pandas.DataFrame, which is the caller's own.

        Whole numbers with gaps have the type Int64. UserError as of ``columns``, and without
        pandas.
        """
        return _framed(lambda: self.columns(table))

    @property
    def metrics(self) -> pandas.DataFrame:
        """A frame of the evaluations: a row per evaluated version, in the order of their ends."""
        return self.frame("metrics")

    @property
    def events(self) -> pandas.DataFrame:
        """A frame of what the strategy was told, and of facts that it was not told."""
        return self.frame("events")

    @property
    def links(self) -> pandas.DataFrame:
        """A frame of the transfers: asked for, due, delivered."""
        return self.frame("links")

    @property
    def summary(self) -> pandas.DataFrame:
        """A frame with a row per run: the columns of comparison.csv, of unfinished runs so far."""
        return self.frame(SUMMARIES)


class LoadedRun(RunTables):
    """One run. ``key``: its name in ``Runs``; ``name``: that of its strategy, as seeds share it.

    ``path``: its folder.
    """

    def __init__(self, path: Path, key: str, name: str) -> None:
        self.path, self.key, self.name = path, key, name
        self._read: tuple[object, RunFiles] | None = None

    def __repr__(self) -> str:
        return f"LoadedRun({self.key!r}, {self.state}, {str(self.path)!r})"

    @property
    def _files(self) -> RunFiles:
        """The run's files as they are now; each is read once until it changes."""
        mark = tuple(map(run_files.mark_of, (self.path / name for name in FOLLOWED)))
        if self._read is None or self._read[0] != mark:
            self._read = mark, RunFiles(self.path, only=None)
        return self._read[1]

    @property
    def config(self) -> dict[str, Any]:
        """The run's config.toml: every key as it was, and facts in "run"."""
        with undamaged(self.path):
            return self._files.config

    @property
    def facts(self) -> dict[str, Any]:
        """The run's summary.json; {} until the run has ended."""
        with undamaged(self.path):
            return self._files.summary

    @property
    def seed(self) -> int | None:
        found = self.config.get("seed")
        return found if isinstance(found, int) else None

    @property
    def _row(self) -> Row:
        """The numbers of the run in a comparison, of an unfinished one so far."""
        with _of_version(self.path):
            return compare.loaded(self.path, self.name)

    @property
    def state(self) -> str:
        """ "finished", "interrupted" (it can be resumed), "running", or "killed"."""
        if finished := self.facts.get("finished"):
            return INTERRUPTED if finished in BROKEN_OFF else FINISHED
        return RUNNING if _in_use(self.path) else KILLED

    def columns(self, table: str) -> TypedTable:
        if table == SUMMARIES:
            row = self._row
            return typed_tables.of_records([compare.run_record(row, [row])])
        with _of_version(self.path):
            return typed_tables.table(self._files, table)

    # ------------------------------------------------------------------ under way
    def follow(self, poll_s: float = POLL_S) -> Iterator[dict[str, Any]]:
        """Yield the rows of metrics.csv as dicts of numbers: those so far, then each new one.

        It ends with the run, also if the run was killed. If the run is resumed at an earlier
        moment meanwhile, its rows come once more. None: no value.
        """
        for _, row in _followed(lambda: {self.key: self.path}, poll_s):
            yield row

    # ------------------------------------------------------------------ weights
    def model(self, version: int | None = None) -> dict[str, torch.Tensor]:
        """Return the last global model, or that of a version, for ``load_state_dict``.

        A run keeps its last model. With ``record.payloads = true`` it keeps what is needed to
        compute every version again, which this does. What is neither trained nor sent, such as the
        frozen weights below LoRA, is not in it: then use ``strict=False``. UserError if the
        version is not kept, and for a run that has not ended.
        """
        import torch

        weights, layout = self._weights(version), self._layout()
        if layout.size != weights.size:
            raise UserError(
                f"{self.path / MODEL}: has {weights.size} elements, expected {layout.size}, as of"
                " the model in its config.toml"
            )
        return {
            entry.name: torch.from_numpy(layout.view(weights, entry.name).copy())
            for entry in layout.entries
        }

    def _weights(self, version: int | None) -> np.ndarray:
        from safetensors.numpy import load

        last = self.facts.get("versions")
        if version is None or version == last:
            path = self.path / MODEL
            if not path.is_file():
                raise UserError(f"{path}: no such file; a run writes its model when it ends")
            with undamaged(path):
                weights: np.ndarray = load(path.read_bytes())["weights"]
            return weights
        if not (self.path / "journal" / "initial.safetensors").is_file():
            kept = "" if last is None else f", only the last one ({last})"
            raise UserError(
                f"{self.path}: version {version} is not kept{kept}; with record.payloads=true a run"
                " keeps all"
            )
        from edgefl.clocks.setup.rundir import replay_run

        replayed = replay_run(self.path, until=version)
        if replayed.version != version:
            raise UserError(
                f"{self.path}: there is no version {version}: expected 0 to {replayed.version}"
            )
        return replayed.weights

    def _layout(self) -> Layout:
        """The names and shapes of the model's tensors; of a run of an older version, from its
        config, which needs the data.
        """
        for path in (self.path / LAYOUT, self.path / "journal" / LAYOUT):
            if path.is_file():
                with undamaged(path):
                    return Layout.from_json(orjson.loads(path.read_bytes()))
        from edgefl.clocks.setup.learning import learning
        from edgefl.config.file import load as load_config

        base = self.config.get(FACTS, {}).get("base")
        return learning(load_config(self.path / CONFIG), base and Path(base)).layout


class Runs(RunTables, Mapping[str, LoadedRun]):
    """Runs by name, as ``edgefl compare`` calls them: "fedavg", or "fedavg/seed1" of several seeds.

    A name has the folder of the experiment in front where others have the same. ``runs[name]`` also
    takes a longer one, such as "quickstart/fedavg". Frames have the columns ``run``, ``name`` (of
    the strategy) and ``seed``.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """``paths``: as of ``load``. UserError if one of them holds no run."""
        if not paths:
            raise UserError("load: expected the directory of an experiment or of a run, found none")
        self.paths = list(paths)
        self._runs = {
            key: LoadedRun(path, key, name) for key, (name, path) in _named(self.paths).items()
        }

    def __getitem__(self, name: str) -> LoadedRun:
        if name in self._runs:
            return self._runs[name]
        found = [run for run in self._runs.values() if _ends_with(run.path, name)]
        if len(found) == 1:
            return found[0]
        seeds = [run.key for run in self._runs.values() if run.name == name]
        if seeds:
            raise NoSuchRun(f"run {name!r}: there are several: {listed(seeds)}")
        raise NoSuchRun(f"run {name!r}: there is no such run{nearest(name, self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"Runs({listed([*self], most=6)})"

    def __str__(self) -> str:
        return self.compare().text()

    def _repr_html_(self) -> str:
        try:
            found = self.compare().answer
        except UserError as error:  # runs that cannot be compared
            states = tables.GridColumn("state", tuple(run.state for run in self.values()), True)
            keys = tables.GridColumn("run", tuple(self), True)
            return tables.html(tables.Grid({"run": keys, "state": states}, (str(error),)))
        needless = {"seeds": not found.several_seeds, "to_target": found.target is None}
        grid = tables.grid(found, [key for key in SHOWN if not needless.get(key)])
        of_intervals = tables.notes_on_statistics(found)  # which the table has not
        notes = tuple(note for note in grid.notes if note not in of_intervals)
        return tables.html(replace(grid, notes=notes))

    # ------------------------------------------------------------------ tables
    def columns(self, table: str) -> TypedTable:
        if table == SUMMARIES:
            rows = {key: run._row for key, run in self.items()}
            records = [{"run": key, **compare.run_record(row, [row])} for key, row in rows.items()]
            return typed_tables.of_records(records)
        return typed_tables.of_runs(
            {key: run.columns(table) for key, run in self.items()},
            name={key: run.name for key, run in self.items()},
            seed={key: run.seed for key, run in self.items()},
        )

    # ------------------------------------------------------------------ answers
    def compare(
        self,
        baseline: str | LoadedRun | None = None,
        *,
        x: str | None = None,
        target: float | None = None,
        accuracy: Accuracy = "final",
        method: Method = "auto",
        effect: float | None = None,
        age: bool = False,
    ) -> RunComparison:
        """Return the table of ``edgefl compare``; the arguments are its options.

        ``baseline``: the name of a strategy, or one of its runs. UserError for an unknown baseline
        or x, and if a target is needed and the runs have none in common.
        """
        question = Question(self._baseline(baseline), x, target, accuracy, method, effect)
        with _of_version(*self.paths):
            found = compare.answer(self.paths, question)
        return RunComparison(compare.with_ages(found, self._files) if age else found, self.paths)

    def _baseline(self, given: str | LoadedRun | None) -> str | None:
        """Return the name of the strategy that is the baseline."""
        run = self._runs.get(given) if isinstance(given, str) else given
        if isinstance(run, LoadedRun):
            return run.name
        if not isinstance(given, str | None):
            raise UserError(f"baseline: expected the name of a strategy or a run, found {given!r}")
        return given

    @cached_property
    def _strategies(self) -> dict[str, list[LoadedRun]]:
        strategies: dict[str, list[LoadedRun]] = {}
        for run in self.values():
            strategies.setdefault(run.name, []).append(run)
        return strategies

    @property
    def _files(self) -> dict[str, list[RunFiles]]:
        """The files of the runs by strategy, as figures take them."""
        return {name: [run._files for run in of] for name, of in self._strategies.items()}

    # ------------------------------------------------------------------ figures and reports
    def kinds(self) -> list[str]:
        """Return the kinds of figures that these runs have, as ``edgefl plot --list``."""
        return [kind for kind, reason in gallery.missing(self._files).items() if not reason]

    def plot(
        self,
        kind: str = "accuracy",
        *,
        ax: Axes | Sequence[Axes] | None = None,
        x: str = "",
        xlim: Limits | None = None,
        ylim: Limits | None = None,
        log: Literal["", "x", "y", "xy"] = "",
        title: str = "",
        target: float | None = None,
        labels: Mapping[str, str] | None = None,
        width: Literal["", "column", "page"] = "",
    ) -> Any:
        """Draw a figure of ``edgefl plot``; return its axes, as an array if there are several.

        The options are those of the command. Without ``ax`` it is a new figure of pyplot, in the
        size and look for print. ``ax``: the axes to draw on, as many as the figure has panels; with
        one, x is emulated seconds unless ``x`` says otherwise. UserError for an unknown kind, an
        option that means nothing for it, and runs that do not have it.
        """
        given = [] if ax is None else [*np.ravel(np.asarray(ax, dtype=object))]
        for each in given:
            if not hasattr(each, "get_figure"):
                raise UserError(f"ax: expected axes of matplotlib, found {each!r}")
        if len(given) == 1 and not x:
            x = next(iter(gallery.find(kind).X), "")
        style = PlotStyle(width, x, xlim, ylim, log, title, target, labels or {})
        with _of_version(*self.paths):
            axes = gallery.axes(kind, self._files, style, given)
        return axes[0] if len(axes) == 1 else np.array(axes, dtype=object)

    def report(
        self,
        path: PathLike = "report.html",
        *,
        baseline: str | LoadedRun | None = None,
        target: float | None = None,
    ) -> Path:
        """Write the HTML file of ``edgefl report``, which replaces an earlier one; return its path.

        UserError if ``path`` does not end in .html, or cannot be written.
        """
        from edgefl.plugins.html_report import document

        out = Path(path)
        document.check(out)
        with _of_version(*self.paths):
            document.write(self.paths, out, Question(self._baseline(baseline), target=target))
        return out

    def follow(self, poll_s: float = POLL_S) -> Iterator[dict[str, Any]]:
        """Yield the rows of metrics.csv of all runs, as of one, with its key as "run".

        Runs of the same experiment that begin later are followed, too. It ends when the experiment
        has ended.
        """

        def paths() -> dict[str, Path]:
            return {key: path for key, (_, path) in _named(self.paths).items()}

        for key, row in _followed(paths, poll_s):
            yield {"run": key, **row}


class RunComparison(Mapping[str, ComparedStrategy]):
    """The table of ``edgefl compare``: strategies, over their seeds, against a baseline.

    ``comparison["fedasync"]`` has the estimates with their intervals: ``accuracy``, ``to_target``,
    and over the baseline ``gain`` (difference of accuracies) and ``speed_up``.
    """

    def __init__(self, answer: Comparison, paths: Sequence[Path]) -> None:
        """``paths``: of its runs."""
        self.answer, self._paths = answer, list(paths)
        self._strategies = {strategy.name: strategy for strategy in answer.strategies}

    def __getitem__(self, name: str) -> ComparedStrategy:
        if name not in self._strategies:
            raise NoSuchRun(f"strategy {name!r}: there is no such one{nearest(name, self)}")
        return self._strategies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._strategies)

    def __len__(self) -> int:
        return len(self._strategies)

    def columns(self, rows: Literal["strategies", "runs"] = "strategies") -> TypedTable:
        """Return the unrounded numbers as numpy columns, as of ``Runs.columns``.

        A row per strategy or per run, with the columns of ``edgefl compare --csv``: intervals are
        ``accuracy_low`` and ``_high``, ``gain_low``, ``speed_up_low``, ...
        """
        records = compare.of_strategies if rows == "strategies" else compare.of_runs
        return typed_tables.of_records(records(self.answer))

    def frame(self, rows: Literal["strategies", "runs"] = "strategies") -> pandas.DataFrame:
        """Return ``columns`` as a pandas.DataFrame. UserError without pandas."""
        return _framed(lambda: self.columns(rows))

    def text(self, width: int = 100) -> str:
        """Return what ``edgefl compare`` prints on a terminal of ``width`` characters."""
        console = Console(file=io.StringIO(), width=width, color_system=None)
        of_families = (family.table(self._paths) for family in families().values())
        with console.capture() as printed:
            for each in tables.printed(self.answer, width, of_families):
                console.print(each)
        return "\n".join(line.rstrip() for line in printed.get().rstrip().split("\n"))

    def markdown(self, columns: Sequence[str] = ()) -> str:
        """Return a table of GitHub's Markdown; ``columns`` as of ``edgefl compare --columns``."""
        return tables.markdown(tables.grid(self.answer, columns))

    def latex(self, columns: Sequence[str] = ()) -> str:
        """Return a ``tabular`` for the package booktabs; ``columns`` as of ``markdown``."""
        return tables.latex(tables.grid(self.answer, columns))

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return tables.html(tables.grid(self.answer))


# ---------------------------------------------------------------------- files
def _named(paths: Sequence[Path]) -> dict[str, tuple[str, Path]]:
    """Return the strategy and the folder of each run by its key."""
    return {
        name if len(of_strategy) == 1 else f"{name}/{path.name}": (name, path)
        for name, of_strategy in run_files.find(paths).items()
        for path in of_strategy
    }


def _ends_with(path: Path, name: str) -> bool:
    return path.resolve().as_posix().endswith(f"/{name.strip('/')}")


def _experiment_folder(run: Path) -> Path | None:
    """The folder of the experiment or sweep above a run; None for a run that was copied alone."""
    folders = [*run.resolve().parents][:3]
    marks = (EXPERIMENT, SWEEP)
    return next((each for each in folders if any((each / m).is_file() for m in marks)), None)


def _in_use(*runs: Path) -> bool:
    """Whether a command writes to the folder of the runs' experiments now."""
    for folder in set(map(_experiment_folder, runs)):
        try:
            if folder is not None:
                RunFolder(folder).refuse_if_in_use()
        except UserError:
            return True
    return False


@contextmanager
def _of_version(*paths: Path) -> Iterator[None]:
    """Wrap reading: an error about a file of a run of another version says so."""
    try:
        yield
    except UserError as error:
        written = {_version(path) for path in paths if str(path) in str(error)} - {"", __version__}
        if not written:
            raise
        by = ", ".join(sorted(written))
        raise UserError(f"{error}; written by edgefl {by}, this is {__version__}") from error


def _version(path: Path) -> str:
    """The version of edgefl that wrote a run; "" if its experiment.toml does not say so."""
    folder = path if (path / EXPERIMENT).is_file() else _experiment_folder(path)
    with suppress(OSError, ValueError, AttributeError):
        text = ((folder or path) / EXPERIMENT).read_text(encoding="utf-8")
        return str(parsed(text).get(FACTS, {}).get("edgefl", ""))
    return ""


def _followed(
    paths: Callable[[], Mapping[str, Path]], poll_s: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the key of a run and a row of its metrics.csv, until nothing writes to them."""
    tails: dict[Path, TableTail] = {}
    latest_s = time.monotonic()
    while True:
        known = paths()
        complete = all(map(run_files.read_summary, known.values()))
        quiet = time.monotonic() - latest_s > QUIET_S
        over = (complete or quiet) and not _in_use(*known.values())
        for key, path in known.items():  # after the look: the rows of the end are there then
            for row in tails.setdefault(path, TableTail(path / METRICS)).read_new():
                latest_s = time.monotonic()
                yield key, {name: _number(text) for name, text in row.items()}
        if over:
            return
        time.sleep(poll_s)


def _number(text: str) -> float | int | None:
    return int(text) if text.isdecimal() else number(text)
