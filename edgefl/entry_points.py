"""What plug-ins add, edgefl's own and those of other packages: found by entry points.

A group of entry points has the name of what it adds to: ``edgefl.commands``, ``edgefl.strategies``,
``edgefl.selections``, ``edgefl.models``, ``edgefl.datasets``, ``edgefl.exports``,
``edgefl.task_kinds``. ``edgefl.options`` has the functions behind those options of the core's
commands that a plug-in carries out. Nothing of the core imports a plug-in; a plug-in is imported
when it is used.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OWN = "edgefl."  # the modules of edgefl's own entry points
PLUGINS = Path(__file__).parent / "plugins"  # its entry_points.txt has edgefl's own


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of ``group`` by name. edgefl's own go before those of others.

    edgefl's own are read from this package: those of an installed distribution may be of an older
    version, and a package that is only in PYTHONPATH has none.
    """
    from importlib.metadata import Distribution, entry_points  # it takes as long as typer

    others = (entry for entry in entry_points(group=group) if not entry.value.startswith(OWN))
    found: dict[str, EntryPoint] = {}
    for entry in (*Distribution.at(PLUGINS).entry_points.select(group=group), *others):
        found.setdefault(entry.name, entry)
    return found


def loaded(entry: EntryPoint) -> Any:
    """Import what ``entry`` names. UserError that names the plug-in if this fails."""
    try:
        return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: it is the code of others
        raise failure(entry, error) from error


def failure(entry: EntryPoint, error: BaseException) -> UserError:
    """Return the error that says in one line which plug-in cannot be loaded, and why."""
    package = f" of {entry.dist.name}" if entry.dist is not None and entry.dist.name else ""
    return UserError(
        f"plug-in {entry.name!r}{package} ({entry.value}) cannot be loaded:"
        f" {type(error).__name__}: {error}"
    )


def behind(option: str) -> Any:
    """Return the function of the plug-in that carries out ``option``, such as "--live".

    UserError if there is none.
    """
    entry = entries("edgefl.options").get(option.removeprefix("--"))
    if entry is None:
        raise UserError(f"{option}: the plug-in for it is not installed")
    return loaded(entry)


def source(place: str) -> str:
    """Return the text of the module in ``place``, "module:attribute", without importing it.

    Its packages are imported. ImportError if it has no file of text.
    """
    module = place.partition(":")[0]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {module!r}")
    return Path(spec.origin).read_text(encoding="utf-8")


def one_line(entry: EntryPoint) -> str:
    """Return the first line of the docstring of the module that ``entry`` names, without importing
    the module. UserError that names the plug-in if this fails.
    """
    try:
        text = ast.get_docstring(ast.parse(source(entry.value)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # its packages are the code of others
        raise failure(entry, error) from error
    return (text or "").partition("\n")[0]
