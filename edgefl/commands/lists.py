"""The commands that list or show what a config may name and contain.

These are strategies, selections, models, data sets, partitions, compressions, experiment files,
their keys and their schema. A listing imports no plug-in; what is shown in full is imported.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl import catalog
from edgefl.commands import completion, show
from edgefl.errors import UserError, nearest

if TYPE_CHECKING:
    from edgefl.config.keys import Key

BASE = "edgefl.strategies.base"  # options of its classes are those of many strategies


def _name(part: str) -> Any:
    return typer.Argument(
        metavar="[NAME]",
        help="Show this one, with its options: one of the list, or your own, FILE.py:NAME.",
        autocompletion=completion.names_of(part),
    )


def strategies(name: Annotated[str | None, _name(completion.STRATEGY)] = None) -> None:
    """Strategies to compare: list them, or show one's options."""
    package = catalog.STRATEGIES
    if name is not None:
        from edgefl.strategies.base.catalog import load

        found = load(catalog.place(package, name), Path())
        use = f"'strategies=[{{strategy = \"{name}\"}}]'"
        return _show(name, found, f'[[strategies]] strategy = "{name}"', use)
    show.rows(completion.plugins(completion.STRATEGY) + show.plugins(package))
    show.hint(
        'edgefl strategies NAME shows its options; [[strategies]] strategy = "NAME" in a config (or'
        ' your own, "my_algo.py:MyAlgo"), then edgefl run CONFIG'
    )
    return None


def selections(name: Annotated[str | None, _name("strategies")] = None) -> None:
    """Ways to select edges for work: list them, or show one's options."""
    override = "strategies.LABEL.selection=NAME"
    _plugins("selections", "strategies", "[[strategies]] selection", override, name)


def models(name: Annotated[str | None, _name("model")] = None) -> None:
    """Models to train: list them, or show one's options."""
    _plugins("models", "model", "[model] name", "'model={name = \"NAME\"}'", name)


def datasets(name: Annotated[str | None, _name("data")] = None) -> None:
    """Data sets to train on: list them, or show one's options."""
    _plugins("datasets", "data", "[data] name", "data.name=NAME", name)


def partitions(name: Annotated[str | None, _name("partition")] = None) -> None:
    """Ways to divide data among edges: list them, or show one's options."""
    _plugins("partitions", "partition", "[partition] name", "'partition={name = \"NAME\"}'", name)


def compressions(name: Annotated[str | None, _name("compression")] = None) -> None:
    """Methods for smaller messages: list them, or show one's options."""
    _plugins("compressions", "compression", "[compression] up", "compression.up=NAME", name)


def _plugins(command: str, part: str, key: str, override: str, name: str | None) -> None:
    """List the plug-ins that ``key`` of a config can name, or show one.

    ``override`` names another one for a run, with none of the options of the config's own.
    """
    package, attribute, word = catalog.PARTS[part]
    if name is not None:
        found = catalog.find(package, catalog.place(package, name), attribute, Path(), word)
        return _show(name, found, f'{key} = "{name}"', override.replace("NAME", name))
    show.rows(completion.plugins(part) + show.plugins(catalog.GROUPS.get(package, package)))
    show.hint(
        f'edgefl {command} NAME shows its options; {key} = "NAME" in a config, or edgefl run CONFIG'
        f" {override}"
    )
    return None


def about(found: Any) -> str:
    """Return the docstrings of a plug-in's file, and of the plug-in if it is a class."""
    own = found.__doc__ if inspect.isclass(found) else None
    texts = filter(None, (sys.modules[found.__module__].__doc__, own))
    return "\n\n".join(map(inspect.cleandoc, texts))


def _show(name: str, found: Any, where: str, override: str) -> None:
    """Print what the plug-in's file says of itself, where that is, and its options."""
    from edgefl.config.keys import keys, owner
    from edgefl.config.section import Section

    module = sys.modules[found.__module__]
    show.paragraphs(f"{about(found)}\n")
    show.line(f"file: {module.__file__}")
    options = catalog.options_of(found) or Section
    own: list[Key] = []
    shared: list[Key] = []
    for key in keys(options):
        of_base = owner(options, key.name).__module__.startswith(BASE)
        (shared if of_base else own).append(key)
    show.line("")
    show.line(f"options beside {where}:" if own or shared else f"{where} has no options")
    show.rows(_rows(own))
    if shared:
        show.line("options of all strategies of its kind:")
        show.rows(_rows(shared))
    needed = "".join(f", {key.name} = ..." for key in own + shared if key.default == "required")
    if needed and '"}' not in override:
        table = override.partition("=")[0].removesuffix(".name")
        override = f"'{table}={{name = \"{name}\"}}'"
    override = override.replace('"}', f'"{needed}}}')
    if getattr(module, "DOWNLOADS", ()):
        show.hint(f"edgefl data get {name}, then edgefl run CONFIG {override}")
    else:
        show.hint(f"edgefl run CONFIG {override}")


def _rows(keys: Iterable[Key], table: str = "") -> list[tuple[str, str]]:
    """Return (key = default, its type, bounds and meaning) for each key."""
    place, found = f"{table}." if table else "", []
    for key in keys:
        default = completion.plain(key.default)
        head = f"{place}{key.name}" + ("" if default == "see below" else f" = {default}")
        kind = f"{key.kind} in {key.unit}" if key.unit else key.kind
        facts = ", ".join(filter(None, (kind, key.bounds)))
        found.append((head, completion.plain(f"{facts}. {key.meaning}")))
    return found


def schema() -> None:
    """Print the JSON schema of experiment files, by which editors complete and check them.

    It also knows the plug-ins of other packages that are installed here. A TOML file names its
    schema in its first line: #:schema FILE, relative to its own folder.
    """
    from edgefl.config.schema import text

    sys.stdout.write(text(others=True))


def listing() -> None:
    """List the experiment files that come with edgefl, one line each."""
    from edgefl.config import packaged

    show.rows([(name, packaged.one_line(name)) for name in packaged.names()])


def configs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The file to print or copy; with --keys, the table whose keys to list.",
            autocompletion=completion.configs,
        ),
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            metavar="DIR",
            help="Copy the file, or all, to a folder where you can change them.",
        ),
    ] = None,
    keys: Annotated[
        bool,
        typer.Option(
            "--keys", help="List the keys that most experiments need, or all keys of a table."
        ),
    ] = False,
) -> None:
    """List, print or copy the experiments that come with edgefl; list the keys of such a file."""
    from edgefl.config import packaged

    if keys and copy is not None:
        raise UserError("--keys and --copy: expected one of them")
    if keys:
        _keys(name)
    elif name is None and copy is None:
        listing()
        show.hint("edgefl run CONFIG --clock virtual; edgefl configs --keys lists their keys")
    elif name is None and copy is not None:
        packaged.copy(copy)
        show.hint(f"edgefl run {copy / 'quickstart.toml'}")
    elif name is not None and copy is None:
        sys.stdout.write(packaged.text(name))
    elif name is not None and copy is not None:
        show.hint(f"edgefl run {packaged.copy_one(name, copy)}")


def _keys(name: str | None) -> None:
    """List the basic keys of all tables, or all keys of one table: the basic ones first."""
    from edgefl.config.keys import about, is_basic, keys, sections

    tables = {place.replace("[]", ""): (place, model) for place, model in sections()}
    if name is None:
        rows = []
        for table, (place, model) in tables.items():
            basic = [key for key in keys(model) if is_basic(place, key.name) and not key.model]
            texts = [completion.plain(key.meaning).partition(". ")[0] for key in basic]
            rows += [(head, text) for (head, _), text in zip(_rows(basic, table), texts)]
        show.rows(rows)
        show.line("")
        show.line(f"tables: {', '.join(filter(None, tables))}")
        return show.hint("edgefl configs TABLE --keys, for all keys of a table")
    if name not in tables:
        raise UserError(f"--keys: no table {name!r}{nearest(name, filter(None, tables))}")
    place, model = tables[name]
    show.paragraphs(about(model))
    for title, wanted in (("basic", True), ("advanced", False)):
        found = [key for key in keys(model) if is_basic(place, key.name) is wanted]
        if found:
            show.line(f"{title}:")
            show.rows(_rows(found, name))
    return show.hint(f"edgefl run CONFIG {name}.KEY=VALUE")
