"""``extends = "other.toml"``: a config that says only what is different from another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgefl.config.errors import found
from edgefl.errors import UserError

KEY = "extends"
PICKED = ("model", "partition")  # tables whose other keys belong to what their ``name`` picks
INSTEAD = {"seed": "seeds", "seeds": "seed"}  # a key that takes the place of another


def resolved(path: Path, read: Callable[[Path], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """(the config in ``path`` with all that it extends, what to call it in an error line).
    UserError for a circle, or no file there.

    Tables are merged key by key, arrays and everything else replaced. Another ``name`` of a model
    or partition brings its own options.
    """
    layers, chain = [read(path)], [path]
    while KEY in layers[-1]:
        other = _other(layers[-1], chain)
        chain.append(other)
        layers.append(_read_other(other, chain[-2], read))
    whole: dict[str, Any] = {}
    for layer in reversed(layers):
        for key in INSTEAD.keys() & layer.keys():
            whole.pop(INSTEAD[key], None)
        whole = _merged(whole, {key: value for key, value in layer.items() if key != KEY})
    return whole, (
        str(path)
        if len(chain) == 1
        else f"{path} (extends {', '.join(str(each) for each in chain[1:])})"
    )


def _other(layer: Mapping[str, Any], chain: list[Path]) -> Path:
    """The file that the last one of ``chain`` extends, relative to its own folder."""
    path, name = chain[-1], layer[KEY]
    if not isinstance(name, str):
        raise UserError(
            f'{path}: {KEY}: expected the path of another config, as "base.toml", found'
            f" {found(name)}"
        )
    if "name" not in layer:  # else its results would take the place of the other's
        raise UserError(
            f"{path}: name: missing; a config that extends another needs a name of its own"
        )
    other = path.parent / Path(name).expanduser()
    if other.resolve() in [each.resolve() for each in chain]:
        raise UserError(
            f"{path}: {KEY}: goes in a circle: {' -> '.join(each.name for each in (*chain, other))}"
        )
    return other


def _read_other(other: Path, path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read(other)
    except UserError as error:
        raise UserError(f"{path}: {KEY}: {error}") from error


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and not (key in PICKED and _picks_another(old, value))
        ):
            whole[key] = _merged(old, value)
        else:
            whole[key] = value
    return whole


def _picks_another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "name" in new and new["name"] != old.get("name")
