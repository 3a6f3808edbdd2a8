"""Base class of a family of reports; every method is optional.

This file and every ``report.py`` import matplotlib only when they draw, since a base install has
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Draw = Callable[[Sequence[Path], Path], list[Path]]


class Family:
    """The reports about one subject; derive a class and bind an instance to ``FAMILY``.

    A directory is that of a run, or of a scheme with one run per seed below it.
    """

    ORDER: int = 1000  # position in summary.json and on the terminal, smallest first
    MARK: str  # runs that have this event, reported number or file
    FILES: tuple[str, ...] = ()  # paths that ``leave`` may write, in the experiment's folder
    KINDS: tuple[str, ...] = ()  # values of ``edgefl plot --kind``
    OF: str = ""  # which runs these figures are about, for help and messages

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        """Return the family's section of summary.json, or None.

        The run has the MARK and ended after ``emulated_s``.
        """
        return None

    def table(self, directories: Sequence[Path]) -> Table | None:
        """Return a table for the terminal, shown below the comparison."""
        return None

    def figures(self) -> Mapping[str, Draw]:
        """Return for each kind the function that draws it.

        It takes directories and a file name that ends in .png. It returns the PNG and the PDF, or
        [] if no run has data for the figure.
        """
        return {}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        """Write the family's tables and figures into the experiment's ``folder``.

        Return the lines that the terminal shows about them.
        """
        return []


def pictures(*names: str) -> tuple[str, ...]:
    """Return the file names of these figures, PNG and PDF, in the experiment's folder."""
    return tuple(f"figures/{name}.{kind}" for name in names for kind in ("png", "pdf"))


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
    drawings = family.figures()
    drawn = [
        path
        for kind, name in names.items()
        for path in drawings[kind](directories, folder / "figures" / f"{name}.png")[:1]
    ]
    return [f"figure{'s' * (len(drawn) > 1)}: {', '.join(map(str, drawn))}"] if drawn else []
