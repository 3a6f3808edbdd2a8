"""``extends = "other.toml"``: a config with only the keys that differ from another config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgefl.config.errors import found
from edgefl.errors import UserError

KEY = "extends"
PICKED = ("model", "partition")  # tables whose other keys are options of the plug-in ``name``
INSTEAD = {"seed": "seeds", "seeds": "seed"}  # a key that replaces another


def resolved(path: Path, read: Callable[[Path], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the config in ``path`` with all that it extends, and its name for error lines.

    Tables are merged key by key; arrays and all other values are replaced. A new ``name`` of a
    model or partition discards the old options. UserError for a cycle or a missing file.
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
    """Return the file that the last one of ``chain`` extends, relative to its own folder."""
    path, name = chain[-1], layer[KEY]
    if not isinstance(name, str):
        raise UserError(
            f'{path}: {KEY}: expected the path of another config, such as "base.toml", found'
            f" {found(name)}"
        )
    if "name" not in layer:  # otherwise its results would overwrite those of the other
        raise UserError(f"{path}: name: missing; a config that extends another needs its own name")
    other = path.parent / Path(name).expanduser()
    if other.resolve() in [each.resolve() for each in chain]:
        raise UserError(
            f"{path}: {KEY}: is a cycle: {' -> '.join(each.name for each in (*chain, other))}"
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
