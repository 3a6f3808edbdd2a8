"""What the shell completes beside names of commands and options.

A function gets the context, which has what is on the command line so far, and the word that the
user has begun. Nothing is imported before the user asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgefl.config.keys import Key

MOST_SHOWN = 60  # characters of a text beside a word; shells show it in the same line
Complete = Callable[[typer.Context, str], list[tuple[str, str]]]
STRATEGY = "strategy"
# key that chooses a plug-in -> the table in ``catalog.PARTS``; STRATEGY: a strategy
PLUGINS = {
    "data.name": "data",
    "model.name": "model",
    "partition.name": "partition",
    "compression.up": "compression",
    "compression.down": "compression",
    "selection": "strategies",
    "strategy": STRATEGY,
}


def names_of(part: str) -> Complete:
    """Return the function that completes the name of a plug-in of ``part``, as in ``PLUGINS``."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return plugins(part)

    return complete


def plugins(part: str) -> list[tuple[str, str]]:
    """Return the names of all plug-ins of edgefl for ``part``, with a line about each."""
    from edgefl import catalog

    if part != STRATEGY:
        package, attribute, _ = catalog.PARTS[part]
        names = catalog.names(package, attribute)
        return [(name, catalog.one_line(package, name)) for name in names]
    from edgefl.strategies.base.catalog import strategy_names

    return [(name, catalog.one_line(catalog.STRATEGIES, name)) for name in strategy_names()]


def configs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a config that comes with edgefl."""
    from edgefl.config import packaged

    return [(name, packaged.one_line(name)) for name in packaged.names()]


def kinds(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the kind of a figure."""
    from edgefl.results.figures import gallery

    return [(name, plot.about) for name, plot in gallery.plots().items()]


def schemes(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a strategy or run in the folders that the command has so far."""
    from edgefl.errors import UserError
    from edgefl.results import run_files

    # the option that waits for its value has kept the folders from being parsed
    given = [Path(each) for each in (*(ctx.params.get("runs") or ()), *ctx.args)]
    with suppress(UserError, OSError):
        return [(name, "") for name in run_files.find([path for path in given if path.is_dir()])]
    return []


# ---------------------------------------------------------------------- KEY=VALUE
def overrides(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete a change to the config.

    Without a beginning: the keys that most experiments need. bash gives "=" as a word of its own,
    and wants only the value; other shells want the whole word.
    """
    given = [*map(str, ctx.params.get("overrides") or ())]
    key, equals, _ = incomplete.partition("=")
    before = f"{key}="
    if given[-1:] == ["="]:
        key, equals, before = "".join(given[-2:-1]), "=", ""
    elif not incomplete and given and "=" not in (*given[-2:-1], given[-1]):
        key, equals, before = given[-1], "=", ""  # of bash, too: it has dropped the "="
    known = {place: (key, basic) for place, key, basic in _keys(ctx.params.get("config"))}
    if equals:
        return [(f"{before}{each}", "") for each in _values(key, *known.get(key, ())[:1])]
    fitting = {
        place: key
        for place, (key, basic) in known.items()
        if place.startswith(incomplete) and (incomplete or basic)
    }
    shown = [(f"{place}=", _short(key.meaning)) for place, key in fitting.items()]
    if len(fitting) == 1:  # a shell ends the only word with a space; there are values to come
        ((place, only),) = fitting.items()
        values = _values(place, only) or [only.kind.partition(" ")[0]]
        shown += [(f"{place}={each}", "") for each in values]
    return shown


def _keys(path: Path | None) -> Iterator[tuple[str, Key, bool]]:
    """Yield each dotted key, what is known of it, and whether it is basic.

    With those of the file's own strategies, groups and plug-ins.
    """
    from edgefl.config.file import Config, entry_key
    from edgefl.config.keys import is_basic, keys, sections
    from edgefl.config.links import Devices, Links
    from edgefl.errors import UserError

    for place, model in sections():
        for key in keys(model) if "[" not in place else ():
            if key.model is None:
                yield f"{place}.{key.name}" if place else key.name, key, is_basic(place, key.name)
    tables: dict[str, Any] = {}
    if path is not None:
        with suppress(UserError, OSError):  # a file that cannot be read adds nothing
            tables = Config.read(path).tables
    for table in ("data", "model", "partition"):
        for chosen in _tables(tables.get(table)):
            for key in keys(_options(table, chosen.get("name"))):
                yield f"{table}.{key.name}", key, False
    for entry in _tables(tables.get("strategies")):
        for key in keys(_options(STRATEGY, entry.get("strategy"))):
            yield f"strategies.{entry_key(entry, ('strategies',))}.{key.name}", key, False
    for group in _tables(tables.get("groups")):
        for table, model in (("links", Links), ("devices", Devices)):
            for key in keys(model):
                yield f"groups.{entry_key(group, ('groups',))}.{table}.{key.name}", key, False


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return the tables in a part of a file that nothing has checked."""
    return [each for each in (value if isinstance(value, list) else [value]) if type(each) is dict]


def _options(part: str, name: Any) -> type[BaseModel]:
    """Return the options of a plug-in of edgefl. Code of the user is not run for a completion."""
    from edgefl import catalog
    from edgefl.config.section import Section
    from edgefl.strategies.base.catalog import load

    if name not in [known for known, _ in plugins(part)]:
        return Section
    if part == STRATEGY:
        return load(name).Options
    package, attribute, _ = catalog.PARTS[part]
    return catalog.options_of(catalog.find(package, name, attribute)) or Section


def _values(place: str, key: Key | None = None) -> list[str]:
    """Return the words that a key takes, or the names of plug-ins; otherwise its default."""
    for end, part in PLUGINS.items():
        if f".{place}".endswith(f".{end}"):
            return [name for name, _ in plugins(part)]
    if key is None:
        return []
    if key.kind == "true or false":
        return ["true", "false"]
    words = re.findall(r'`"([^"`]*)"`', key.kind)
    default = plain(key.default).strip('"')
    return [*words, *([] if default in ("none", "required", *words) else [default])]


def _short(markdown: str) -> str:
    """Return the beginning of a text, for the line of a shell."""
    text = plain(markdown).partition(". ")[0]
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def plain(markdown: str) -> str:
    """Return the text of a key for a terminal: commands keep their marks, names lose them."""
    return re.sub(r"`([^` ]+|[^`]*\"[^`]*)`", r"\1", markdown)
