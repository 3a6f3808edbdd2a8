"""What a format is: an ``ExportFormat``, registered by an entry point of ``edgefl.exports``, or
in a file of the user, "my_format.py:FORMAT".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl import catalog
from edgefl.entry_points import entries, loaded
from edgefl.errors import UserError, nearest
from edgefl.results import run_files

GROUP = "edgefl.exports"


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format that runs can be written in.

    ``write(runs, out)`` writes the runs, by display name, and returns the lines that say what was
    written. UserError if it cannot. ``out``: the default place. ``view(out)``: how to look at it.
    ``adds``: runs are added to what is there, and nothing is replaced.
    """

    out: str
    view: Callable[[str], str]
    write: Callable[[Mapping[str, Path], str], list[str]]
    adds: bool = False


def find(name: str) -> ExportFormat:
    """Return a format, or the one that a dotted name or path leads to.

    UserError names the nearest one if there is none of this name.
    """
    formats = entries(GROUP)
    if ":" not in name and name not in formats:
        near = nearest(name, formats)
        raise UserError(f"unknown format {name!r}{near}; one of your own: {catalog.FORMS}")
    found: ExportFormat = catalog.load_dotted(name) if ":" in name else loaded(formats[name])
    return found


def runs_of(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the run directories in ``paths`` or below by a name each, such as "fedavg seed 2"."""
    return {
        name if len(runs) == 1 else f"{name} {run.name}": run
        for name, runs in run_files.find(paths).items()
        for run in runs
    }


def file_path(out: str, *suffixes: str) -> Path:
    """Return ``out`` as the path of one file. UserError for a folder, or another suffix."""
    path = Path(out)
    if path.is_dir() or not path.name.endswith(suffixes):
        raise UserError(f"--out {out}: expected a file that ends in {' or '.join(suffixes)}")
    return path


def folder_path(out: str) -> Path:
    """Make ``out`` a folder, if it is none yet. UserError if that is not possible."""
    path = Path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: expected a folder ({error.strerror})") from error
    return path
