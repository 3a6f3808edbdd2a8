"""``edgefl new``: writes a small working plug-in of your own, with its test."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.errors import UserError

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


class NewKind(StrEnum):
    strategy = "strategy"
    model = "model"
    data = "data"


# kind -> the override that selects the new file, after the quickstart's config
OVERRIDES = {
    NewKind.strategy: "strategies=[{{strategy = '{file}:{title}'}}]",
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
    """Write a small working strategy, model or data set of your own, with its test."""
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
