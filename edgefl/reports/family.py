"""The families of reports: their base class, and those that there are.

A family is a file in this folder that binds ``FAMILY``. It imports matplotlib only when it draws,
since a base install has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edgefl.reports
from edgefl.record.files import EXPERIMENT
from edgefl.results.figures.base import LEFT, Plot, left, open_runs

if TYPE_CHECKING:
    from rich.table import Table


class Family:
    """The reports about one subject; derive a class and bind an instance to ``FAMILY``.

    A directory is that of a run, or of a scheme with one run per seed below it.
    """

    ORDER: int = 1000  # position in summary.json and on the terminal, smallest first
    MARK: str  # runs that have this event, reported number or file
    FILES: tuple[str, ...] = ()  # paths that ``leave`` may write, in the experiment's folder

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        """Return the family's section of summary.json, or None.

        The run has the MARK and ended after ``emulated_s``.
        """
        return None

    def table(self, directories: Sequence[Path]) -> Table | None:
        """Return a table for the terminal, shown below the comparison."""
        return None

    def plots(self) -> Mapping[str, Plot]:
        """Return the family's kinds of figures by name: values of ``edgefl plot --kind``."""
        return {}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        """Write the family's tables and figures into the experiment's ``folder``.

        Return the lines that the terminal shows about them.
        """
        return []


@dataclass(frozen=True, slots=True)
class SectionRow:
    """A finished run that has the family's section: its scheme's name, and its summary.json."""

    name: str
    facts: Mapping[str, Any]
    section: dict[str, Any]

    @property
    def seed(self) -> int | None:
        return self.facts.get("seed")


def rows_of(directories: Sequence[Path], section: str) -> list[SectionRow]:
    """Return the finished runs in ``directories`` or below that have this section.

    UserError if a directory holds no run.
    """
    return [
        SectionRow(name, run.summary, found)
        for name, runs in open_runs(directories).items()
        for run in runs
        if isinstance(found := run.summary.get(section), dict) and found
    ]


def by_scheme(rows: Iterable[SectionRow]) -> dict[str, list[SectionRow]]:
    """Return the rows of each scheme, one per seed."""
    schemes: dict[str, list[SectionRow]] = {}
    for row in rows:
        schemes.setdefault(row.name, []).append(row)
    return schemes


def scheme_table(
    title: str, schemes: Collection[str], columns: Mapping[str, Sequence[str]]
) -> Table:
    """Return a table for 80 columns; ``columns``: heading -> cells, one per scheme."""
    from rich.text import Text

    from edgefl.results.forms import plain_table

    shown = plain_table(title)
    shown.add_column("strategy\n", overflow="fold", min_width=min(12, max(map(len, schemes))))
    for heading in columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, *cells in zip(schemes, *columns.values()):
        shown.add_row(Text(name), *cells)
    return shown


def pictures(*names: str) -> tuple[str, ...]:
    """Return the file names of these figures, PNG and PDF, in the experiment's folder."""
    return tuple(f"figures/{name}.{kind}" for name in names for kind in LEFT)


def drawable() -> bool:
    """Return whether matplotlib is installed; a base install has none."""
    try:
        import matplotlib  # noqa: F401  # only whether it is there
    except ModuleNotFoundError:
        return False
    return True


def draw(
    family: Family, directories: Sequence[Path], folder: Path, names: Mapping[str, str]
) -> list[str]:
    """Draw each kind that has data as figures/NAME.png and .pdf; ``names``: kind -> NAME.

    Return the lines for the terminal. Draw nothing on a base install.
    """
    if not drawable():
        return []
    plots, runs = family.plots(), open_runs(directories)
    paths = [
        path
        for kind, name in names.items()
        for path in left(plots[kind], runs, folder / "figures" / name)
    ]
    return [f"figure{'s' * (len(paths) > 1)}: {', '.join(map(str, paths))}"] if paths else []


COMPARISON = ("comparison.csv", "comparison_seeds.csv", *pictures("accuracy"))
ABOVE_RUNS = (EXPERIMENT, *COMPARISON)


def families() -> dict[str, Family]:
    """Return the families by the names of their files, sorted by ORDER."""
    files = (file for place in edgefl.reports.__path__ for file in Path(place).glob("*.py"))
    names = sorted(file.stem for file in files if "\nFAMILY = " in file.read_text(encoding="utf-8"))
    found = {name: import_module(f"edgefl.reports.{name}").FAMILY for name in names}
    return dict(sorted(found.items(), key=lambda item: (item[1].ORDER, item[0])))


def sections(run: Path, marks: Collection[str], emulated_s: float) -> dict[str, Any]:
    """Return the sections of summary.json by family.

    ``marks``: the events and reported numbers that occurred in the run. A family whose mark is
    missing costs no time.
    """
    return {
        name: section
        for name, family in families().items()
        if family.MARK in marks or (run / family.MARK).is_file()
        if (section := family.section(run, emulated_s)) is not None
    }


def files() -> tuple[str, ...]:
    """Return the files that may be in an experiment's folder above its runs.

    They are the experiment, the comparison and the families' files.
    """
    return ABOVE_RUNS + tuple(name for family in families().values() for name in family.FILES)
