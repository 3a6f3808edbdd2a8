"""``edgefl new``: files to start from: a plug-in, a config, or a project with both."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.config import packaged
from edgefl.errors import UserError

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
QUICKSTART = "configs/quickstart.toml"


class NewKind(StrEnum):
    strategy = "strategy"
    selection = "selection"
    model = "model"
    data = "data"
    config = "config"
    project = "project"


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
    kind: Annotated[NewKind, typer.Argument(help="What to write.")],
    name: Annotated[
        str, typer.Argument(help="Its name, for NAME.py and test_NAME.py, NAME.toml or NAME/.")
    ],
    folder: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="The folder for the files.")
    ] = Path(),
) -> None:
    """Write files to start from: a strategy, selection, model, data set, config or project.

    All of them work as they are. A plug-in has a test beside it; a project is a folder with a
    config, a strategy of your own with its test, and a README.
    """
    given = name
    name = given.removesuffix(".toml" if kind is NewKind.config else ".py").replace("-", "_")
    if not NAME.fullmatch(name):
        raise UserError(
            f"name {given!r}: expected lower-case letters, digits and _, a letter first, such as"
            " my_algo"
        )
    if kind is not NewKind.config and (iskeyword(name) or name in sys.stdlib_module_names):
        raise UserError(
            f"name {given!r}: Python has a {name} of its own; choose another, my_{name}"
        )
    if kind is NewKind.project:
        folder = folder / name
    files = _files(kind, name)
    there = next((folder / file for file in files if (folder / file).exists()), None)
    if there is not None:
        raise UserError(f"{there}: already exists; choose another name or --in DIR")
    if kind not in OVERRIDES and not (folder / packaged.SCHEMA).exists():
        schema = packaged.FOLDER / packaged.SCHEMA
        files[packaged.SCHEMA] = schema.read_text(encoding="utf-8")
    for file, text in files.items():
        path = folder / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        show.line(f"wrote {path}")
    place = "" if folder == Path() else f"cd {folder} && "
    if f"test_{name}.py" in files:
        lacks = "" if find_spec("pytest") else "pip install pytest && "
        show.line(f"test it: {lacks}{place}pytest test_{name}.py")
    if kind in OVERRIDES:
        override = OVERRIDES[kind].format(file=f"{name}.py", title=_title(name))
        show.hint(f'{place}edgefl run {QUICKSTART} --clock virtual name=trial "{override}"')
    else:
        config = "experiment" if kind is NewKind.project else name
        show.hint(f"{place}edgefl run {config}.toml --clock virtual")


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _files(kind: NewKind, name: str) -> dict[str, str]:
    """Return the text of each new file."""
    if kind is NewKind.config:
        return {f"{name}.toml": _config(name, f"{name}.toml")}
    if kind is not NewKind.project:
        return {f"{name}.py": _text(f"{kind}.py", name)} | {
            f"test_{name}.py": _text(f"test_{kind}.py", name)
        }
    own = f'\n[[strategies]]\nstrategy = "{name}.py:{_title(name)}"  # your own\n'
    config = "experiment.toml"
    return {
        config: _config(name, config) + own,
        f"{name}.py": _text("strategy.py", name),
        f"test_{name}.py": _text("test_strategy.py", name).replace(QUICKSTART, config),
        "README.md": _text("README.md", name),
        ".gitignore": "runs/\ndata/\n__pycache__/\n",
    }


def _text(template: str, name: str) -> str:
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    return text.replace("CLASS", _title(name)).replace("NAME", name)


def _config(name: str, file: str) -> str:
    """Return the quickstart's config under another name."""
    text = packaged.text("quickstart")
    return (
        f"{packaged.DIRECTIVE} {packaged.SCHEMA}\n"
        f"# {name}: say in one line what it compares.\n"
        f"#   edgefl run {file} --clock virtual\n"
        + text[text.index("name =") :].replace("quickstart", name)
    )
