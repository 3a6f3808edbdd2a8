"""The experiment files that come with the package: what a checkout has as ``configs/``."""

from __future__ import annotations

import shutil
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from edgefl.errors import UserError

FOLDER = Path(__file__).parents[1] / "configs"  # in a checkout a link to its configs/


def names() -> list[str]:
    """Every packaged file under the path that it has in a checkout: configs/quickstart.toml."""
    return [file.relative_to(FOLDER.parent).as_posix() for file in sorted(FOLDER.rglob("*.toml"))]


def find(path: Path) -> Path | None:
    """The packaged file that ``path`` names; None if a file is there, or none is packaged."""
    if path.exists() or path.as_posix() not in names():
        return None
    return FOLDER.parent / path


def one_line(name: str) -> str:
    """The first sentence of the comment at the head of a packaged file."""
    lines = (FOLDER.parent / name).read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line[:1] == "#", lines))
    return comment.partition(". ")[0].rstrip(".")


def nearest(path: Path) -> str:
    """The end of an error line for a file that is not there."""
    close = get_close_matches(path.as_posix(), names(), n=1)
    if close:
        return f" (nearest that comes with edgefl: {close[0]!r})"
    return "; `edgefl configs` lists those that come with edgefl"


def copy(folder: Path) -> None:
    """Copy all of them to ``folder``. UserError if something is there already."""
    try:
        shutil.copytree(FOLDER, folder)
    except FileExistsError as error:
        raise UserError(f"--copy {folder}: expected a new folder, found one") from error
    except OSError as error:
        raise UserError(f"--copy {folder}: {error.strerror or error}") from error
