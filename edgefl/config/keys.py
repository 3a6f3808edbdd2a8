"""The keys of a pydantic model: type, default, bounds, unit and text (that below the key).

The reference, the schema, completion and the listings of options are all made from this.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

# ending of a key -> its unit
UNITS = {
    "_mbit_s": "Mbit/s",
    "samples_per_s": "samples/s",
    "samples_per_slot": "samples/slot",
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

    ``table``: as ``edgefl.config.errors.sections`` gives it.
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


def undocumented(model: type[BaseModel]) -> list[str]:
    """Return the names of keys without a text."""
    return [key.name for key in keys(model) if not key.text]


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
        _inner(field.annotation),
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


def _inner(hint: Any) -> type[BaseModel] | None:
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return hint
    return next((found for part in get_args(hint) if (found := _inner(part))), None)


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
