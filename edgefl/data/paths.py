"""Where data sets and the cache of parsed data sets are on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def file_of(directory: Path, folders: Iterable[str], names: Iterable[str], get: str) -> Path:
    """Return the first file with one of ``names`` in ``directory/FOLDER/``, else ``directory/``.

    The UserError for a missing file has the command that downloads the data set ``get``.
    """
    names = tuple(names)
    for place in (*(directory / folder for folder in folders), directory):
        for name in names:
            if (place / name).is_file():
                return place / name
    raise missing(f"file {' or '.join(names)}", directory, folders, get)


def folder_of(directory: Path, folders: Iterable[str], inside: str, get: str) -> Path:
    """Return the first of ``directory/FOLDER/`` and ``directory/`` that contains ``inside``.

    The UserError for a missing one has the command that downloads the data set ``get``.
    """
    for place in (*(directory / folder for folder in folders), directory):
        if (place / inside).exists():
            return place
    raise missing(inside, directory, folders, get)


def missing(what: str, directory: Path, folders: Iterable[str], get: str) -> UserError:
    """Return the error for a missing data set: what is missing, where, and how to download it."""
    where = f"{directory.absolute() / next(iter(folders))} or {directory.absolute()}"
    command = f"`edgefl data get {get} --dir {directory}`"
    return UserError(
        f"no {what} in {where}: {command} gets it; or set [data] dir or ${VARIABLE} to the"
        " directory that has it"
    )
