"""The experiment files that are part of the package: ``configs/`` of a checkout."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from edgefl.errors import UserError

EXTENDS = "extends"  # the key of a config with only the keys that differ from another one
FOLDER = Path(__file__).parents[1] / "configs"  # in a checkout, a link to its configs/
SCHEMA = "experiment.schema.json"  # the JSON schema, which the first line of each file names
DIRECTIVE = "#:schema"  # how a TOML file names its schema, by a path relative to its own folder


def names() -> list[str]:
    """Return every packaged file by its path in a checkout, such as configs/quickstart.toml."""
    return [file.relative_to(FOLDER.parent).as_posix() for file in sorted(FOLDER.rglob("*.toml"))]


def find(path: Path) -> Path | None:
    """Return the packaged file for ``path``; None if it is a file, or is not packaged.

    configs/ and .toml may be left out: "quickstart".
    """
    known = [] if path.is_file() else names()
    forms = [path.as_posix()] if path.suffix else _forms(path.as_posix())
    near = [name for name in forms if name in known]
    return FOLDER.parent / near[0] if near else None


def _forms(name: str) -> list[str]:
    return [name, f"configs/{name}", f"configs/{name}.toml"]


def one_line(name: str) -> str:
    """The first sentence of the comment at the top of a packaged file."""
    _, *lines = (FOLDER.parent / name).read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line[:1] == "#", lines))
    return comment.partition(". ")[0].rstrip(".")


def nearest(path: Path) -> str:
    """Return the end of an error line for a missing file."""
    if path.suffix:
        known = {name: name for name in names()}
    else:  # the name of an experiment
        known = {name.removeprefix("configs/").removesuffix(".toml"): name for name in names()}
    close = get_close_matches(path.as_posix(), known, n=1)
    if close:
        return f" (nearest that comes with edgefl: {known[close[0]]!r})"
    return "; `edgefl configs` lists those that come with edgefl"


def text(name: str) -> str:
    """Read a packaged file; ``name`` may omit configs/ and .toml. UserError if there is none."""
    return (FOLDER.parent / _whole(name)).read_text(encoding="utf-8")


def copy_one(name: str, folder: Path) -> Path:
    """Copy one packaged file, those that it extends, and the schema, to ``folder``.

    The copies have the same relative paths. Returns the path of the first copy. UserError if a
    target exists.
    """
    found = FOLDER.parent / _whole(name)
    for source in (*_with_bases(found), FOLDER / SCHEMA):
        target = folder / source.relative_to(FOLDER)
        if target.exists():
            if target.name == SCHEMA:
                continue
            raise UserError(f"--copy {folder}: {target} already exists")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise UserError(f"--copy {folder}: {error.strerror or error}") from error
    return folder / found.relative_to(FOLDER)


def _with_bases(path: Path) -> Iterator[Path]:
    """Yield ``path``, the file that it extends, and so on."""
    yield path
    other = tomllib.loads(path.read_text(encoding="utf-8")).get(EXTENDS)
    if other is not None:
        yield from _with_bases(path.parent / other)


def _whole(name: str) -> str:
    known = names()
    near = [each for each in _forms(name) if each in known]
    if not near:
        raise UserError(f"no packaged config {name!r}{nearest(Path(f'configs/{name}'))}")
    return near[0]


def copy(folder: Path) -> None:
    """Copy all packaged files to ``folder``. UserError if it exists."""
    try:
        shutil.copytree(FOLDER, folder)
    except FileExistsError as error:
        raise UserError(f"--copy {folder}: already exists, expected a new folder") from error
    except OSError as error:
        raise UserError(f"--copy {folder}: {error.strerror or error}") from error
