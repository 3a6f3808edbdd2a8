"""What a config from the wire may name on the machine that receives it.

It may name code only if the user of this machine allows it, and files only below the directory of
its data sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from edgefl.catalog import load_dotted
from edgefl.config.errors import Loc, Source, found
from edgefl.config.groups import TRACES
from edgefl.errors import UserError
from edgefl.flower.app_folder import is_flower
from edgefl.loading.names import check_own_file

OWN = "own_code"  # a key next to the experiment's: all names of code outside the catalogs
MOST_OWN = 1000


def own_code(raw: dict[str, Any], source: Source) -> list[str]:
    """Remove and return the names of user code that any strategy of the comparison needs."""
    names = raw.pop(OWN, [])
    if (
        not isinstance(names, list)
        or len(names) > MOST_OWN
        or not all(isinstance(name, str) and ":" in name for name in names)
    ):
        raise source.error((OWN,), f"expected names of code, found {found(names)}")
    return names


def check_code(names: Sequence[str], allowed: Collection[str], source: Source) -> None:
    """UserError with everything that is missing on this machine.

    These are names that are not ``allowed``, missing files, and allowed code that cannot be
    imported.
    """
    refused = [name for name in dict.fromkeys(names) if name not in allowed]
    problems = dict.fromkeys(
        problem for name in names if (problem := _problem(name, name in allowed)) is not None
    )
    said = "names code that is not complete here"
    if refused:
        options = " ".join(f"--allow-task {shlex.quote(name)}" for name in refused)
        several = " and ".join(map(repr, refused))
        said = f"names {several}, which is code of this machine: expected {options} here"
    if refused or problems:
        raise UserError(f"{source.file} {'; '.join((said, *problems))}")


def _problem(name: str, allowed: bool) -> str | None:
    """Why this machine cannot import it; if it is not allowed, only its file is checked."""
    try:
        check_own_file(name, (Path.cwd(),))
        if allowed and not is_flower(name):
            load_dotted(name)
    except UserError as error:
        return str(error)
    return None


def check_paths(raw: dict[str, Any], allowed: Collection[str], source: Source) -> None:
    """UserError for the first text that may be a file outside the directory of data sets.

    All texts are checked, because any option of user code may be a file name. Exceptions: traces,
    which no edge opens, and ``allowed`` names.
    """
    if isinstance(raw.get("data"), dict) and raw["data"].get("dir") is not None:
        raise source.error(
            ("data", "dir"),
            "is set on each machine: expected --data DIR here, and none in the config",
        )
    left: list[tuple[Loc, Any]] = [((), raw)]
    while left:  # not recursive: the sender chose the depth
        loc, value = left.pop()
        if isinstance(value, dict):
            left += [((*loc, key), inner) for key, inner in value.items() if key not in TRACES]
        elif isinstance(value, list):
            left += [((*loc, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, str) and value not in allowed and _leads_out(value):
            raise source.error(
                loc,
                f"leads out of this machine's data directory: expected a path below it, found"
                f" {found(value)}",
            )


def _leads_out(text: str) -> bool:
    # a drive of Windows may stand in front of any path; UNC paths begin with \\
    return (
        text.startswith(("/", "\\", "~"))
        or re.match(r"[A-Za-z]:", text) is not None
        or "\0" in text
        or ".." in re.split(r"[/\\]", text)
    )
