"""The keys of a pydantic model: type, default, bounds, unit and text (that below the key).

The reference, the schema, completion and the listings of options are all made from this. Also all
keys of the experiment file, and other names that people use for them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from edgefl.config.experiment import Experiment
from edgefl.config.section import table_of
from edgefl.errors import nearest

# ending of a key -> its unit
UNITS = {
    "_mbit_s": "Mbit/s",
    "samples_per_s": "samples/s",
    "samples_per_slot": "samples/slot",
    "tokens_per_s": "tokens/s",
    "_ms": "ms",
    "_s": "s",
    "_slots": "slots",
    "_bytes": "bytes",
    "_w": "W",
    "_j_mbit": "J/Mbit",
    "_joules": "J",
}
COUNTED = " of them"  # for lists; that a text is not empty goes without saying
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
SURE = 0.8  # difflib ratio from which an option counts as a misspelt key
# other names for a key: short ones, and those of other frameworks
ALIASES = {
    "algorithm": "strategies[].strategy",
    "algorithms": "strategies",
    "alpha": "partition.alpha",
    "bandwidth": "links.up_mbit_s",
    "batch": "training.batch_size",
    "batchsize": "training.batch_size",
    "bs": "training.batch_size",
    "clients": "edges.count",
    "client_selection": "strategies[].selection",
    "data_dir": "data.dir",
    "dataset": "data.name",
    "delay": "links.latency_ms",
    "duration": "stop.emulated_s",
    "eta": "training.learning_rate",
    "latency": "links.latency_ms",
    "local_epochs": "training.epochs",
    "lr": "training.learning_rate",
    "n_clients": "edges.count",
    "nodes": "edges.count",
    "num_clients": "edges.count",
    "num_edges": "edges.count",
    "num_rounds": "stop.versions",
    "rate": "links.up_mbit_s",
    "round": "stop.versions",
    "rounds": "stop.versions",
    "scheme": "strategies[].strategy",
    "selection": "strategies[].selection",
    "selector": "strategies[].selection",
    "time": "stop.emulated_s",
    "wd": "training.weight_decay",
}
# table -> the key that people mean if they give the table as an option
TABLE_KEYS = {"data": "data.dir", "edges": "edges.count"}
# other names for the number of edges of a group
COUNTS = frozenset(
    ("clients", "devices_count", "edges", "n", "nodes", "num_clients", "num_edges", "size")
)


def sections(
    model: type[BaseModel] = Experiment, at: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (dotted place, model) of the whole file and of each of its tables, outermost first.

    The place of an array ends in [].
    """
    yield at, model
    for key, info in model.model_fields.items():
        place = f"{at}.{key}" if at else key
        inner = table_of(info.annotation)
        if inner is not None:
            yield from sections(
                inner, place + "[]" if get_origin(info.annotation) is tuple else place
            )


def _elsewhere() -> dict[str, str]:
    """Map the last part of every key of the file to the whole key; the outermost one wins."""
    return {
        name: f"{place}.{name}" if place else name
        for place, model in reversed(list(sections()))
        for name in model.model_fields
    }


def nearest_key(key: str, valid: Sequence[str]) -> str:
    """Return the end of an error line about an unknown ``key``: what was probably meant.

    In this order: the same key in another table, another name of a key, a typo of a key of this
    table, a typo of a key of another table, else all keys of this table.
    """
    elsewhere = _elsewhere()
    if key.lower() in COUNTS and "count" in valid:
        return " (nearest: 'count')"
    if key in elsewhere and key not in valid:
        return f" (nearest: {elsewhere[key]!r})"
    if key.lower() in ALIASES:
        return f" (nearest: {ALIASES[key.lower()]!r})"
    if get_close_matches(key.lower(), [name.lower() for name in valid]):
        return nearest(key, valid)
    close = get_close_matches(key, elsewhere, n=1)
    return f" (nearest: {elsewhere[close[0]]!r})" if close else nearest(key, valid)


def meant(name: str) -> str | None:
    """Return the whole key for ``name``, an option with a possible typo; None if there is none."""
    elsewhere = _elsewhere()
    name = name.strip("-").replace("-", "_").lower()
    close = get_close_matches(name, elsewhere, n=1, cutoff=SURE)
    found = ALIASES.get(name) or elsewhere.get(close[0] if close else name)
    tables = dict(sections())
    if found is not None and found in tables:  # a text is no table: name the key in it
        found = TABLE_KEYS.get(found) or (
            f"{found}.name" if "name" in tables[found].model_fields else None
        )
    return None if found is None or "[]" in found else found


# table -> its keys that most experiments need; all other keys are advanced
BASIC = {
    "": ("name", "seed", "seeds"),
    "data": ("name", "dir"),
    "partition": ("name",),
    "model": ("name",),
    "training": ("epochs", "batch_size", "learning_rate", "optimizer", "momentum"),
    "edges": ("count",),
    "links": ("profile", "up_mbit_s", "down_mbit_s", "latency_ms"),
    "devices": ("profile", "samples_per_s", "spread", "slowest_ratio"),
    "groups[]": ("name", "count", "links", "devices"),
    "stop": ("versions", "emulated_s"),
    "evaluation": ("every_versions", "every_s", "target_accuracy"),
    "strategies[]": ("strategy", "label"),
}


def is_basic(table: str, name: str) -> bool:
    """Whether most experiments need the key ``name`` of a table, or tables that have such keys.

    ``table``: as ``sections`` gives it.
    """
    place = f"{table}.{name}" if table else name
    return name in BASIC.get(table, ()) or place in BASIC or f"{place}[]" in BASIC


@dataclass(frozen=True)
class Key:
    """One key of a table; all fields except ``model`` are Markdown."""

    name: str
    kind: str
    default: str
    bounds: str
    text: str
    model: type[BaseModel] | None = None  # of its own table of keys

    @property
    def unit(self) -> str:
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), "")

    @property
    def meaning(self) -> str:
        """The text; of a table without one, the first sentence about it."""
        if self.text or self.model is None:
            return self.text
        return about(self.model).partition(". ")[0].rstrip(".") + "."


def keys(model: type[BaseModel]) -> list[Key]:
    """Return the keys in the order of the source, inherited ones first."""
    return [_key(model, name, field) for name, field in model.model_fields.items()]


def about(model: type[BaseModel]) -> str:
    """Return the text of a table, in one line."""
    return " ".join(inspect.cleandoc(model.__doc__ or "").split())


def owner(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The class among ``model`` and its bases whose source has the key."""
    return next(each for each in model.__mro__ if name in vars(each).get("__annotations__", {}))


def _key(model: type[BaseModel], name: str, field: FieldInfo) -> Key:
    return Key(
        name,
        _type(field.annotation),
        _default(field),
        _bounds(field),
        texts(owner(model, name)).get(name, ""),
        table_of(field.annotation),
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return "none"
    if isinstance(default, BaseModel):
        given = {
            name: getattr(default, name)
            for name, key in type(default).model_fields.items()
            if key.is_required()
        }
        return f"`{_toml(given)}`" if given else "see below"
    return f"`{_toml(default)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) and value != int(value) else str(value)


def _bounds(field: FieldInfo) -> str:
    several = "list of" in _type(field.annotation)
    found = _constraints([*field.metadata, *_inside(field.annotation)])
    return ", ".join(each for each in found if several or not each.endswith(COUNTED))


def _inside(hint: Any) -> Iterator[Any]:
    """Yield the constraints inside a union: ``Annotated[float, Field(gt=0)] | Literal["auto"]``."""
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            if get_origin(part) is Annotated:
                for each in part.__metadata__:
                    yield from getattr(each, "metadata", [each])


def _constraints(metadata: list[Any]) -> Iterator[str]:
    for each in metadata:
        for bound, words in BOUNDS.items():
            value = getattr(each, bound, None)
            if value is not None:
                yield f"{words} {_number(value)}"
        if getattr(each, "min_length", None):
            yield f"at least {each.min_length}{COUNTED}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(f'`"{each}"`' for each in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_type(each) for each in get_args(hint) if each is not type(None))
    if get_origin(hint) in (tuple, list):
        return f"list of {_type(get_args(hint)[0])}"
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return "table"
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    return names.get(hint, "table" if get_origin(hint) is dict else "any")


@cache
def texts(model: type) -> dict[str, str]:
    """Map each key to the text below it in the class body, in one line."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, after in zip(body.body, body.body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _text(after)
            if text is not None:
                found[statement.target.id] = " ".join(text.split())
    return found


def _text(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None
