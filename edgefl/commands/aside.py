"""What happens to files that are where a command writes its own: report, plot, export, data."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.disk import free_name
from edgefl.errors import UserError

Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace existing files. Default: rename them to NAME.1."),
]


@contextmanager
def kept_aside(paths: Iterable[Path], overwrite: bool) -> Iterator[None]:
    """Keep what is at ``paths`` beside them while the block writes there, and say so at its end.

    A file FILE.html becomes FILE.1.html, or has the next free number; a folder NAME becomes NAME.1.
    If the block fails, all is as it was. Nothing is kept with ``overwrite``. UserError if the
    system refuses.
    """
    wanted = () if overwrite else dict.fromkeys(paths)
    kept: list[tuple[Path, Path]] = []
    try:
        there = (path for path in wanted if path.is_file() or _is_filled(path))
        kept.extend((path, _keep(path)) for path in there)
        yield
    except BaseException:
        for path, aside in kept:
            if aside.is_file():
                aside.unlink()
            elif not path.exists():
                aside.rename(path)
            else:  # something was written there: both stay
                show.line(f"{path}: the earlier one is now {aside}")
        raise
    for path, aside in kept:
        show.line(f"{path}: the earlier one is now {aside}")


def _is_filled(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _keep(path: Path) -> Path:
    """Return where ``path`` is kept: a file twice until it is replaced, a folder only there."""
    folder = path.is_dir()
    aside = free_name(path, "" if folder else _suffixes(path))
    try:
        if folder:
            path.rename(aside)
        else:
            shutil.copy2(path, aside)
    except OSError as error:
        raise UserError(f"{path}: cannot be kept as {aside} ({error.strerror})") from error
    return aside


def _suffixes(path: Path) -> str:
    """Return ".json.gz" for "trace.json.gz"."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
