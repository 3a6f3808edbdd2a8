"""Reports about families of strategies, beyond the comparison. Start here, then ``aggregation``.

A module of this folder that binds a ``Family`` to ``FAMILY`` is a family. matplotlib is imported
only when a figure is drawn, since a base install has none.

aggregation    how server steps weighed their gradients (WKAFL and its relatives)
by_label       accuracy on the data of fast and of slow devices
dissemination  cost and effect of asking for fresher models (FedASMU, FedSSMU)
distillation   what a distilling server reports per round (FedEcho)
edge_scores    how well the model serves each edge: scores on the edges' own samples
pushes         what became of models that the server pushed, and what they cost
native         what was measured of native links and devices
slots          how slotted strategies used a TDMA channel
"""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl.record.files import EXPERIMENT, Row
from edgefl.results.figures.base import LEFT, Plot, left, open_runs
from edgefl.results.run_files import write_table
from edgefl.results.statistics import spread

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class SectionRow:
    """A finished run that has the family's section: its strategy's name, and its summary.json."""

    name: str
    facts: Mapping[str, Any]
    section: dict[str, Any]

    def value(self, key: str) -> Any:
        """Return a value of the section ("A_mean": the "mean" of its part A) or of summary.json."""
        if key in self.section:
            return self.section[key]
        outer, _, inner = key.rpartition("_")
        if outer in self.section:
            return (self.section[outer] or {}).get(inner)
        return self.facts.get(key)


@dataclass(frozen=True)
class Family:
    """The reports about one subject; bind an instance, or one of a subclass, to ``FAMILY``.

    ``order``: position in summary.json and on the terminal, smallest first. ``mark``: runs that
    have this event, reported number or file. ``plots``: kinds of figures by name, for ``edgefl plot
    --kind``. ``pictures``: of these, kind -> the name of the figure that a run leaves. ``csv``: the
    file of the sections that a run leaves, with the ``columns`` after the name and the seed (see
    SectionRow.value). A directory is that of a run, or of a strategy with a run per seed below it.
    """

    name: str  # that of the file, and of the section
    order: int
    mark: str
    plots: Mapping[str, Plot] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    csv: str = ""
    columns: tuple[str, ...] = ()
    about_csv: str = ""  # what the terminal says about it

    @property
    def files(self) -> tuple[str, ...]:
        """The paths that ``leave`` may write, in the experiment's folder."""
        return ((self.csv,) if self.csv else ()) + pictures(*self.pictures.values())

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        """Return the family's section of summary.json, or None.

        The run has the mark and ended after ``emulated_s``.
        """
        return None

    def columns_of(self, rows: Sequence[SectionRow]) -> tuple[str, ...]:
        """Return the columns that the CSV file of these rows has after the name and the seed."""
        return self.columns

    def rows(self, directories: Sequence[Path]) -> list[SectionRow]:
        """Return the finished runs in ``directories`` or below that have the family's section.

        UserError if a directory holds no run.
        """
        return [
            SectionRow(name, run.summary, section)
            for name, runs in open_runs(directories).items()
            for run in runs
            if isinstance(section := run.summary.get(self.name), dict) and section
        ]

    def table(self, directories: Sequence[Path]) -> Table | None:
        """Return a table for the terminal, shown below the comparison."""
        rows = self.rows(directories)
        return self.table_of(rows) if rows else None

    def table_of(self, rows: Sequence[SectionRow]) -> Table | None:
        """Return the table of these runs, of which there is at least one."""
        return None

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        """Write the family's CSV file and figures into the experiment's ``folder``.

        Return the lines that the terminal shows about them.
        """
        lines = []
        if self.csv:
            if not (rows := self.rows(directories)):
                return []
            self.write_csv(rows, folder / self.csv)
            lines = [f"{self.about_csv}: {folder / self.csv}"] * bool(self.about_csv)
        return [*lines, *self.draw(directories, folder, self.pictures)]

    def write_csv(self, rows: Sequence[SectionRow], path: Path) -> None:
        """Write a row per run; counts by number are like "1:40 2:17"."""
        columns = ("name", "seed", *self.columns_of(rows))
        cells = [[row.name, *(_cell(row.value(key)) for key in columns[1:])] for row in rows]
        write_table(path, columns, cells)

    def draw(
        self, directories: Sequence[Path], folder: Path, pictures: Mapping[str, str]
    ) -> list[str]:
        """Draw each kind of ``pictures`` that has data, PNG and PDF; return lines about them.

        Draw nothing on a base install.
        """
        if not (pictures and drawable()):
            return []
        runs = open_runs(directories)
        paths = [
            path
            for kind, name in pictures.items()
            for path in left(self.plots[kind], runs, folder / "figures" / name)
        ]
        return [f"figure{'s' * (len(paths) > 1)}: {', '.join(map(str, paths))}"] if paths else []


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return " ".join(f"{number}:{count}" for number, count in value.items())
    return value


def reports(events: Iterable[Row]) -> Iterator[tuple[Row, Mapping[str, float]]]:
    """Yield each event on which the strategy reported numbers, with them."""
    for event in events:
        for decision in event.get("decisions", ()):
            if decision["do"] == "report":
                yield event, decision["values"]


def by_strategy(rows: Iterable[SectionRow]) -> dict[str, list[SectionRow]]:
    """Return the rows of each strategy, one per seed."""
    strategies: dict[str, list[SectionRow]] = {}
    for row in rows:
        strategies.setdefault(row.name, []).append(row)
    return strategies


def strategy_table(
    title: str, strategies: Collection[str], columns: Mapping[str, Sequence[str]]
) -> Table:
    """Return a table for 80 columns; ``columns``: heading -> cells, one per strategy."""
    from rich.text import Text

    from edgefl.results.tables import plain_table

    shown = plain_table(title)
    shown.add_column("strategy\n", overflow="fold", min_width=min(12, max(map(len, strategies))))
    for heading in columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, *cells in zip(strategies, *columns.values()):
        shown.add_row(Text(name), *cells)
    return shown


def mean_cells(
    strategies: Mapping[str, Sequence[SectionRow]], columns: Mapping[str, tuple[str, str, float]]
) -> dict[str, list[str]]:
    """Return the columns of a ``strategy_table`` with means and deviations over each one's runs.

    ``columns``: heading -> value, its form, and what it is multiplied by.
    """
    return {
        heading: [_mean([row.value(key) for row in of], form, factor) for of in strategies.values()]
        for heading, (key, form, factor) in columns.items()
    }


def _mean(values: Sequence[float | None], form: str, factor: float) -> str:
    """Return the mean above its deviation, or "N of M" if not all runs have the number."""
    over = spread(values)
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else "-"
    mean = f"{factor * over.mean:{form}}"
    return mean if over.deviation is None else f"{mean}\n±{factor * over.deviation:{form}}"


def plain_means(
    strategies: Mapping[str, Sequence[SectionRow]], key: str, form: str, divisor: float = 1
) -> list[str]:
    """Return a column with the means over those of each strategy's runs that have the number."""
    means = [mean(runs, key) for runs in strategies.values()]
    return ["-" if each is None else f"{each / divisor:{form}}" for each in means]


def mean(runs: Sequence[SectionRow], key: str) -> float | None:
    """Return the mean over the runs that have the number; None if none has."""
    values = [value for row in runs if (value := row.value(key)) is not None]
    return fmean(values) if values else None


def pictures(*names: str) -> tuple[str, ...]:
    """Return the file names of these figures, PNG and PDF, in the experiment's folder."""
    return tuple(f"figures/{name}.{kind}" for name in names for kind in LEFT)


def drawable() -> bool:
    """Return whether matplotlib is installed; a base install has none."""
    return find_spec("matplotlib") is not None


# ---------------------------------------------------------------------- all families
ABOVE_RUNS = (EXPERIMENT, "comparison.csv", "comparison_seeds.csv")


def families() -> dict[str, Family]:
    """Return the families by the names of their files, in their order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = {name: import_module(f"{__name__}.{name}") for name in names}
    known = {name: each.FAMILY for name, each in modules.items() if hasattr(each, "FAMILY")}
    return dict(sorted(known.items(), key=lambda item: (item[1].order, item[0])))


def sections(run: Path, marks: Collection[str], emulated_s: float) -> dict[str, Any]:
    """Return the sections of summary.json by family.

    ``marks``: the events and reported numbers that occurred in the run. A family whose mark is
    missing costs no time.
    """
    return {
        name: section
        for name, family in families().items()
        if family.mark in marks or (run / family.mark).is_file()
        if (section := family.section(run, emulated_s)) is not None
    }


def files() -> tuple[str, ...]:
    """Return the files that may be in an experiment's folder above its runs.

    They are the experiment, the comparison and the families' files.
    """
    of_families = (name for family in families().values() for name in family.files)
    return (*ABOVE_RUNS, *pictures("accuracy"), *of_families)
