"""What a family of reports gives; each method may be left as it is. Nothing here or in a
``report.py`` imports matplotlib before something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Draw = Callable[[Sequence[Path], Path], list[Path]]


class Family:
    """The reports about one subject: derive, and bind an instance to ``FAMILY``.

    Directories are those of runs or of schemes (one run, or one below it for each seed).
    """

    ORDER: int = 1000  # among the families: in summary.json and on the terminal, the smallest first
    MARK: str  # of the runs that it is about: an event, a reported number, or a file
    FILES: tuple[str, ...] = ()  # what ``leave`` may write, by its path in the experiment's folder
    KINDS: tuple[str, ...] = ()  # of ``edgefl plot --kind``
    OF: str = ""  # whose runs these figures are drawn of, for help and messages

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        """The family's section of the summary.json of a run that has ended after ``emulated_s``
        and has the MARK; None if there is nothing to say.
        """
        return None

    def table(self, directories: Sequence[Path]) -> Table | None:
        """For the terminal, below the comparison."""
        return None

    def figures(self) -> Mapping[str, Draw]:
        """Kind -> what draws it: takes directories and a file name that ends in .png; returns
        the PNG and the PDF, or [] if no run has anything to draw.
        """
        return {}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        """Write the family's tables and figures into the experiment's ``folder``; the lines for
        the terminal that say so.
        """
        return []


def pictures(*names: str) -> tuple[str, ...]:
    """The files of such figures in the experiment's folder."""
    return tuple(f"figures/{name}.{kind}" for name in names for kind in ("png", "pdf"))


def drawable() -> bool:
    """Whether matplotlib is installed; a base install has none."""
    try:
        import matplotlib  # noqa: F401  # only whether it is there
    except ModuleNotFoundError:
        return False
    return True


def draw(
    family: Family, directories: Sequence[Path], folder: Path, names: Mapping[str, str]
) -> list[str]:
    """Draw ``pictures`` of each kind under its name, as far as there is something to draw, and
    say so. Nothing on a base install.
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
