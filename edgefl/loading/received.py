"""What a config from the wire may name on the machine that receives it: code only if its user
allows it, and files only below the directory of its data sets.
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
from edgefl.loading.names import check_own_file

OWN = "own_code"  # key beside the experiment's: every name of code outside the catalogs
MOST_OWN = 1000


def own_code(raw: dict[str, Any], source: Source) -> list[str]:
    """Take from ``raw`` the names of code that the whole comparison needs, not its next strategy
    alone.
    """
    names = raw.pop(OWN, [])
    if (
        not isinstance(names, list)
        or len(names) > MOST_OWN
        or not all(isinstance(name, str) and ":" in name for name in names)
    ):
        raise source.error((OWN,), f"expected names of code, found {found(names)}")
    return names


def check_code(names: Sequence[str], allowed: Collection[str], source: Source) -> None:
    """UserError that tells all that is missing here: names that are not ``allowed``, files that
    are not there, and what of those allowed cannot be imported.
    """
    refused = [name for name in dict.fromkeys(names) if name not in allowed]
    problems = dict.fromkeys(
        problem for name in names if (problem := _problem(name, name in allowed)) is not None
    )
    said = "names code that is not whole here"
    if refused:
        options = " ".join(f"--allow-task {shlex.quote(name)}" for name in refused)
        several = " and ".join(map(repr, refused))
        said = f"names {several}, which is code of this machine: expected {options} here"
    if refused or problems:
        raise UserError(f"{source.file} {'; '.join((said, *problems))}")


def _problem(name: str, allowed: bool) -> str | None:
    """What keeps this machine from importing it; without leave, only its file is looked for."""
    try:
        check_own_file(name, (Path.cwd(),))
        if allowed:
            load_dotted(name)
    except UserError as error:
        return str(error)
    return None


def check_paths(raw: dict[str, Any], allowed: Collection[str], source: Source) -> None:
    """UserError for the first text that would lead out of the directory of data sets if it named
    a file there. Any key may be such a name: those of options of one's own are not known here.

    Traces are files of the coordinator: no edge opens them. An ``allowed`` name may lead anywhere.
    """
    if isinstance(raw.get("data"), dict) and raw["data"].get("dir") is not None:
        raise source.error(
            ("data", "dir"), "is this machine's own matter: expected --data DIR here, and none sent"
        )
    left: list[tuple[Loc, Any]] = [((), raw)]
    while left:  # no recursion: the sender chose the depth
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
    return text.startswith(("/", "\\", "~")) or "\0" in text or ".." in re.split(r"[/\\]", text)
