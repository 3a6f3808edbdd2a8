"""Where data sets lie on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Mapping

from edgefl.errors import UserError

VARIABLE = "EDGEFL_DATA"


def data_dir(configured: str | None, env: Mapping[str, str]) -> Path:
    """The data directory: the config's ``[data] dir``, else $EDGEFL_DATA, else ``data/``."""
    return Path(configured or env.get(VARIABLE) or "data").expanduser()


def file_of(directory: Path, folders: Iterable[str], names: Iterable[str]) -> Path:
    """The first file called one of ``names`` in ``directory/FOLDER/`` or, after those, ``directory/``. UserError if there is none."""
    folders, names = tuple(folders), tuple(names)
    for place in (*(directory / folder for folder in folders), directory):
        for name in names:
            if (place / name).is_file():
                return place / name
    where = f"{directory.absolute() / folders[0]} or {directory.absolute()}"
    raise UserError(f"no file {' or '.join(names)} in {where}: put it there, or set [data] dir or ${VARIABLE} to the directory that has it")
