"""Arguments and options that several commands share.

CONFIG may be one of the files that come with the package. Files that are where a command writes its
own (report, plot, export, data) are kept aside.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.commands import completion, show
from edgefl.disk import free_name
from edgefl.errors import UserError


def located(path: Path | None, quiet: bool = False) -> Path | None:
    """Return ``path``, or the packaged file of that name if ``path`` is no file.

    Prints a note if it uses the packaged file, unless ``quiet``.
    """
    if path is None or path.is_file():
        return path
    from edgefl.config import packaged

    found = packaged.find(path)
    if found is None:
        return path
    if not quiet:
        said = f"no {path} here, using the one that comes with edgefl: {found}"
        print(f"edgefl: {said}", file=sys.stderr)
    return found


def given(context: typer.Context, path: Path | None) -> Path | None:
    """Return ``located(path)``, for the argument or option of a command."""
    return located(path, quiet=context.resilient_parsing)  # the shell asks for completions


ARGUMENT: Any = typer.Argument(metavar="CONFIG", help="The experiment file (TOML).", callback=given)
Config = Annotated[Path, ARGUMENT]
ConfigOrNone = Annotated[Path | None, ARGUMENT]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes to the config: stop.emulated_s=10",
        autocompletion=completion.overrides,
    ),
]
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]


MOST_PORT = 65535
OverwriteFiles = Annotated[
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
                aside.replace(path)  # the new one may be whole, while one after it failed
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


InventoryPath = Annotated[
    Path, typer.Argument(metavar="INVENTORY", help="The hosts (TOML): docs/how-to/several-machines")
]
AcceptKeys = Annotated[
    bool,
    typer.Option("--accept-new-host-keys", help="Accept the ssh keys of hosts not known yet."),
]


def port_of(text: str, option: str) -> int | None:
    """Return the port that the user gave; None for "". UserError for anything but a port."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > MOST_PORT:
        raise UserError(f"{option} {text}: expected a port, 0 to {MOST_PORT} (0: any free one)")
    return int(text)
