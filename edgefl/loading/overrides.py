"""``key.path=value`` from the command line, applied to a config before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefl.config.errors import Loc, as_override, dotted, found
from edgefl.config.experiment import StrategyEntry
from edgefl.config.toml import MOST_NESTED, BadTOML, parsed
from edgefl.errors import UserError, nearest


def apply(raw: dict[str, Any], overrides: Sequence[str]) -> dict[Loc, str]:
    """Change ``raw`` in place and return the override of each key that it set.

    UserError if an override does not fit.
    """
    origins: dict[Loc, str] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys) or len(keys) > MOST_NESTED:
            raise UserError(
                f"{as_override(text)}: expected key.path=value, such as training.epochs=2 or"
                " strategies.0.alpha=0.5"
            )
        origins[_put(raw, keys, toml_value(value), text)] = text
    return origins


def toml_value(text: str) -> Any:
    """Parse a TOML value; any other text is itself the value, so that text needs no quotes."""
    try:
        tables = parsed(f"value = {text}")
    except BadTOML:
        return text
    return tables["value"] if len(tables) == 1 else text


def _put(raw: dict[str, Any], keys: list[str], value: Any, text: str) -> Loc:
    """Set the key and return the outermost key that the file did not have, else the key itself."""
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
    """Return the key or index for ``key`` inside ``node``."""
    if isinstance(node, dict):
        return key
    if not isinstance(node, list):
        raise UserError(
            f"{as_override(text)}: {dotted(loc)}: expected a table, found {found(node)}"
        )
    if key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < len(node):
        return int(key)
    names = [_entry_name(entry, loc) for entry in node]
    if key in names:
        return names.index(key)
    near = nearest(key, [*filter(None, names)])
    last = len(node) - 1
    numbers = f"expected {f'a number from 0 to {last}' if last else 0}" if node else "it is empty"
    raise UserError(
        f"{as_override(text)}: {dotted(loc)} has no entry {found(key)}{near}, {numbers}"
        f"{' or a name' if any(names) else ''}"
    )


def _entry_name(entry: Any, loc: Loc) -> str:
    """The name of an entry, not checked yet, of ``strategies`` or ``groups``; "" if it has none."""
    if loc == ("groups",):
        return str(entry.get("name", "")) if isinstance(entry, dict) else ""
    if loc != ("strategies",):
        return ""
    fields: dict[str, Any] = (
        {key: entry.get(key) for key in ("strategy", "label")} if isinstance(entry, dict) else {}
    )
    if not isinstance(fields.get("strategy"), str):
        return ""
    return str(StrategyEntry.model_construct(**fields).name)
