"""The commands that list or write files: strategies, selections, models, datasets, configs, new.

They import no plug-in.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from edgefl import catalog
from edgefl.commands import show
from edgefl.errors import UserError


def strategies() -> None:
    """List the strategies that an experiment can compare."""
    # imported here: it needs numpy, which the other listings do not
    from edgefl.strategies.base.catalog import (
        file_stem,
        strategy_names,
    )

    show.rows(
        [
            (name, catalog.one_line("edgefl.strategies", file_stem(name)))
            for name in strategy_names()
        ]
        + show.plugins("edgefl.strategies")
    )
    show.hint(
        '[[strategies]] strategy = "NAME" in a config (or your own, "my_algo.py:MyAlgo"), then'
        " edgefl run CONFIG"
    )


def selections() -> None:
    """List the ways in which strategies can select edges."""
    _list("edgefl.strategies.selection", "build")
    show.hint(
        '[[strategies]] selection = "NAME" in a config, or edgefl run CONFIG'
        " strategies.LABEL.selection=NAME"
    )


def models() -> None:
    """List the models that the edges can train."""
    _list("edgefl.models", "build")
    show.hint('[model] name = "NAME" in a config, or edgefl run CONFIG model.name=NAME')


def datasets() -> None:
    """List the data sets on which the edges can train."""
    _list("edgefl.data", "load")
    show.hint('[data] name = "NAME" in a config, or edgefl run CONFIG data.name=NAME')


def _list(package: str, attribute: str) -> None:
    own, added = (
        catalog.names(package, attribute),
        show.plugins(catalog.GROUPS.get(package, package)),
    )
    show.rows([*((name, catalog.one_line(package, name)) for name in own), *added])


def listing() -> None:
    """List the experiment files that come with edgefl, one line each."""
    from edgefl.config import packaged

    show.rows([(name, packaged.one_line(name)) for name in packaged.names()])


def configs(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The file to print or copy.")
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            metavar="DIR",
            help="Copy the file, or all, to a folder where you can change them.",
        ),
    ] = None,
) -> None:
    """List, print or copy the experiment files that come with edgefl."""
    from edgefl.config import packaged

    if name is None and copy is None:
        listing()
        show.hint("edgefl run CONFIG --clock virtual")
    elif name is None and copy is not None:
        packaged.copy(copy)
        show.hint(f"edgefl run {copy / 'quickstart.toml'}")
    elif name is not None and copy is None:
        sys.stdout.write(packaged.text(name))
    elif name is not None and copy is not None:
        show.hint(f"edgefl run {packaged.copy_one(name, copy)}")


TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


class NewKind(StrEnum):
    strategy = "strategy"
    selection = "selection"
    model = "model"
    data = "data"


# kind -> the override that selects the new file, after the quickstart's config
OVERRIDES = {
    NewKind.strategy: "strategies=[{{strategy = '{file}:{title}'}}]",
    NewKind.selection: (
        "strategies=[{{strategy = 'fedavg', clients_per_round = 3, selection = '{file}:build'}}]"
    ),
    NewKind.model: "model={{name = '{file}:build'}}",
    NewKind.data: "data={{name = '{file}:load'}}",
}


def new(
    kind: Annotated[NewKind, typer.Argument(help="The kind of plug-in.")],
    name: Annotated[str, typer.Argument(help="Its name, for NAME.py and test_NAME.py.")],
    folder: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="The folder for the files.")
    ] = Path(),
) -> None:
    """Write a small working strategy, selection, model or data set of your own, with its test."""
    name = name.removesuffix(".py").replace("-", "_")
    if not NAME.fullmatch(name):
        raise UserError(
            f"name {name!r}: expected lower-case letters, digits and _, a letter first, such as"
            " my_algo"
        )
    title = "".join(part.capitalize() for part in name.split("_"))
    found = {
        folder / f"{name}.py": TEMPLATES / f"{kind}.py.txt",
        folder / f"test_{name}.py": TEMPLATES / f"test_{kind}.py.txt",
    }
    there = next((path for path in found if path.exists()), None)
    if there is not None:
        raise UserError(f"{there}: already exists; choose another name or --in DIR")
    for path, template in found.items():
        text = template.read_text(encoding="utf-8").replace("CLASS", title).replace("NAME", name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        show.line(f"wrote {path}")
    place = "" if folder == Path() else f"cd {folder} && "
    override = OVERRIDES[kind].format(file=f"{name}.py", title=title)
    show.line(f"test it: {place}pytest test_{name}.py")
    show.hint(f'{place}edgefl run configs/quickstart.toml --clock virtual name=trial "{override}"')
