"""Where data sets and the cache of parsed data sets are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from edgefl.errors import UserError

VARIABLE = "EDGEFL_DATA"
CACHE_VARIABLE = "EDGEFL_CACHE"


def data_dir(configured: str | None, env: Mapping[str, str]) -> Path:
    """Return the data directory: the config's ``[data] dir``, else $EDGEFL_DATA, else ``data/``."""
    return Path(configured or env.get(VARIABLE) or "data").expanduser()


def cache_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of the cache of parsed data sets.

    It is $EDGEFL_CACHE, else ``edgefl`` in the user's cache directory.
    """
    return Path(
        env.get(CACHE_VARIABLE) or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "edgefl"
    ).expanduser()


def first_of(
    directory: Path,
    folders: Iterable[str],
    names: Iterable[str],
    fits: Callable[[Path], bool] = Path.is_file,
) -> Path | None:
    """Return the first of ``names`` that is in ``directory/FOLDER/``, else in ``directory/``.

    ``fits``: whether a path is what is searched for.
    """
    names = tuple(names)
    places = (*(directory / folder for folder in folders), directory)
    paths = (place / name for place in places for name in names)
    return next((path for path in paths if fits(path)), None)


def file_of(directory: Path, folders: Iterable[str], names: Iterable[str], get: str) -> Path:
    """Return the first of these files, as ``first_of`` does.

    The UserError for a missing file has the command that downloads the data set ``get``.
    """
    names = tuple(names)
    path = first_of(directory, folders, names)
    if path is None:
        raise missing(f"file {' or '.join(names)}", directory, folders, get)
    return path


def missing(what: str, directory: Path, folders: Iterable[str], get: str) -> UserError:
    """Return the error for a missing data set: what is missing, where, and how to download it."""
    where = f"{directory.absolute() / next(iter(folders))} or {directory.absolute()}"
    command = f"`edgefl data get {get} --dir {directory}`"
    return UserError(
        f"no {what} in {where}: {command} gets it; or set [data] dir or ${VARIABLE} to the"
        " directory that has it"
    )
