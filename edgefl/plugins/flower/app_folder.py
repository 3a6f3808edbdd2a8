"""The folder of a Flower app: ``task = "flower:PATH"`` and the app's pyproject.toml.

flwr is not needed to read it.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, as_user_error, nearest
from emulator.plain_text import read_text

FLOWER = "flower:"  # how the name of a task begins that is a Flower app
PROJECT = "pyproject.toml"
COMPONENTS = "[tool.flwr.app.components]"
Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class AppFolder:
    """A Flower app on this machine.

    ``client`` and ``server``: its components as "module:attribute"; ``server`` None: it has none.
    ``config``: [tool.flwr.app.config], flat: a key of a nested table is "table.key".
    """

    path: Path
    client: str
    server: str | None
    config: dict[str, Setting]

    def run_config(self, overrides: Mapping[str, Any]) -> dict[str, Setting]:
        """Return the app's config with ``overrides``; UserError for a key that it does not have."""
        given = flat(overrides, "flower.run_config")
        unknown = next((key for key in given if key not in self.config), None)
        if unknown is not None:
            raise UserError(
                f"flower.run_config: {self.path / PROJECT} has no key {unknown!r} in"
                f" [tool.flwr.app.config]{nearest(unknown, self.config)}"
            )
        return self.config | given

    def digest(self, run_config: Mapping[str, Setting]) -> str:
        """Return 16 hex digits that differ if the app's code or its config differs."""
        state = hashlib.sha256(repr(sorted(run_config.items())).encode())
        for path in sorted((*self.path.rglob("*.py"), self.path / PROJECT)):
            state.update(str(path.relative_to(self.path)).encode() + b"\0" + path.read_bytes())
        return state.hexdigest()[:16]


def app_folder(task: str, folders: Sequence[Path]) -> AppFolder:
    """Read the app that ``task`` names, relative to the first of ``folders`` that has it.

    UserError if there is none, or it names no ClientApp.
    """
    given = task.removeprefix(FLOWER)
    places = [(folder / Path(given).expanduser()).resolve() for folder in folders]
    place = next((path for path in places if path.is_dir()), None)
    if not given or place is None:
        tried = " or ".join(dict.fromkeys(map(str, places)))
        raise UserError(
            f'{task!r}: expected "{FLOWER}" and the folder of an app, no folder {tried}'
        )
    file = place / PROJECT
    try:
        with as_user_error():
            text = read_text(file)
        app = tomllib.loads(text)
        for key in ("tool", "flwr", "app"):
            app = _table(app, key, file)
    except FileNotFoundError as error:
        raise UserError(f"{task!r}: no file {file}, which every Flower app has") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: is not valid TOML: {error}") from error
    components = _table(app, "components", file)
    client = _component(components, "clientapp", file)
    if client is None:
        raise UserError(
            f'{file}: {COMPONENTS} names no clientapp: expected clientapp = "module:attribute"'
        )
    config = flat(_table(app, "config", file), f"{file}: [tool.flwr.app.config]")
    return AppFolder(place, client, _component(components, "serverapp", file), config)


def flat(config: Mapping[str, Any], place: str, prefix: str = "") -> dict[str, Setting]:
    """Return ``config`` without nested tables, as Flower passes it to an app."""
    found: dict[str, Setting] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, place, f"{name}.")
        elif isinstance(value, Setting):
            found[name] = value
        else:
            raise UserError(
                f"{place}: {name}: expected a truth value, a number or a text, found"
                f" {type(value).__name__}"
            )
    return found


def _table(given: dict[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{file}: {key}: expected a table")
    return found


def _component(components: Mapping[str, Any], key: str, file: Path) -> str | None:
    found = components.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not all(part for part in found.partition(":")):
        raise UserError(f'{file}: {COMPONENTS} {key}: expected "module:attribute", found {found!r}')
    return found
