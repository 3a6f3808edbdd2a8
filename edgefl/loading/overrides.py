"""``key.path=value`` from the command line, put into a config before it is checked."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from edgefl.config.errors import Loc, dotted, found
from edgefl.config.experiment import StrategyEntry
from edgefl.errors import UserError, nearest


def apply(raw: dict[str, Any], overrides: Sequence[str]) -> dict[Loc, str]:
    """Change ``raw`` in place; returns which override brought in which key. UserError if one
    does not fit.
    """
    origins: dict[Loc, str] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise UserError(
                f"override {text!r}: expected key.path=value, as training.epochs=2 or"
                " strategies.0.alpha=0.5"
            )
        origins[_put(raw, keys, _value(value), text)] = text
    return origins


def _value(text: str) -> Any:
    """A TOML value, else the text itself, so that text needs no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _put(raw: dict[str, Any], keys: list[str], value: Any, text: str) -> Loc:
    """Returns the outermost key that the file did not have, else the key itself."""
    node: Any = raw
    loc: Loc = ()
    created: Loc | None = None
    for depth, key in enumerate(keys):
        step = _step(node, key, loc, text)
        loc = (*loc, step)
        if depth == len(keys) - 1:
            node[step] = value
        elif isinstance(node, dict) and step not in node:
            node[step] = {}
            created = created or loc
        node = node[step]
    return created or loc


def _step(node: Any, key: str, loc: Loc, text: str) -> str | int:
    """The key or index that ``key`` means inside ``node``."""
    if isinstance(node, dict):
        return key
    if not isinstance(node, list):
        raise UserError(f"override {text!r}: {dotted(loc)}: expected a table, found {found(node)}")
    if key.isascii() and key.isdecimal() and int(key) < len(node):
        return int(key)
    names = [_entry_name(entry) for entry in node] if loc == ("strategies",) else []
    if key in names:
        return names.index(key)
    raise UserError(
        f"override {text!r}: {dotted(loc)} has no entry"
        f" {key!r}{nearest(key, [*filter(None, names)])}, expected one of the {len(node)} from 0"
    )


def _entry_name(entry: Any) -> str:
    """What a strategy entry, not checked yet, will be called."""
    fields: dict[str, Any] = (
        {key: entry.get(key) for key in ("strategy", "label")} if isinstance(entry, dict) else {}
    )
    if not isinstance(fields.get("strategy"), str):
        return ""
    return str(StrategyEntry.model_construct(**fields).name)
