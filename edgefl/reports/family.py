"""Base class of a family of reports; every method is optional.

This file and every ``report.py`` import matplotlib only when they draw, since a base install has
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.results.figures.base import Plot, open_runs
from edgefl.results.figures.output import LEFT, left

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
