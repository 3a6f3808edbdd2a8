"""The base class of all parts of the experiment file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from edgefl import catalog
from edgefl.errors import UserError, nearest
from emulator.errors import BadValue


def table_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation, or that of an array's entries; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is dict:  # its keys are names of the user
        return None
    return next((found for part in get_args(annotation) if (found := table_of(part))), None)


EDGE_ID = r"^[a-z0-9][a-z0-9_-]{0,31}$"
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PATTERNS = {  # the patterns in words, for error messages
    EDGE_ID: "at most 32 of a-z, 0-9, _ and -, beginning with a letter or digit",
    RUN_NAME: (
        "at most 64 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or digit: it names a"
        " directory"
    ),
}

Loc = tuple[str | int, ...]  # ("strategies", 1, "alpha")
Model = TypeVar("Model", bound=BaseModel)
MOST_SAID = 120  # characters of an override in an error line
LARGEST_INT = 2**63 - 1  # in TOML, and in the messages that contain a config

EXPECTED = {
    "model_type": "expected a table",
    "tuple_type": "expected an array",
    "list_type": "expected an array",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",  # if a plug-in's options are not strict
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "string_type": 'expected text ("...")',
    "bool_type": "expected true or false",
    "too_short": "expected at least one",
}
MISSING: dict[Loc, str] = {("stop",): "missing: expected [stop] with emulated_s or versions"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a config comes from: a file, and overrides by the key that each of them sets.

    ``near`` ends the error line about an unknown key, given it and the valid keys of its table.
    """

    file: str
    overrides: Mapping[Loc, str] = field(default_factory=dict)
    near: Callable[[str, Sequence[str]], str] = nearest

    def error(self, loc: Loc, problem: str) -> UserError:
        """Return the error for the key at ``loc``."""
        said = [
            self.overrides[loc[:end]]
            for end in range(len(loc), 0, -1)
            if loc[:end] in self.overrides
        ]
        said += [
            text
            for key, text in self.overrides.items()
            if key[: len(loc)] == loc and re.search(rf"\b{re.escape(str(key[-1]))}\b", problem)
        ]
        place = as_override(said[0]) if said else self.file
        return UserError(f"{place}: {dotted(loc)}: {problem}" if loc else f"{place}: {problem}")

    @contextmanager
    def at(self, *loc: str | int) -> Iterator[None]:
        """Wrap a check of the key at ``loc``: its UserError or BadValue gets the key's place."""
        try:
            yield
        except (UserError, BadValue) as error:
            raise self.error(loc, str(error)) from None  # it has said all


def dotted(loc: Loc) -> str:
    """Format a key as people write it: ``strategies[1].alpha``."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc
    ).removeprefix(".")


def found(value: Any, most: int = 60) -> str:
    """Format a value for an error line, in at most ``most`` characters."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"one of {value.bit_length()} bits"  # Python cannot format thousands of digits
    if isinstance(value, str):
        value = value[:most]
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def as_override(text: str) -> str:
    """Format an override as the start of an error line."""
    return f"override {found(text, MOST_SAID)}"


def validated(
    model: type[Model],
    data: Mapping[str, Any],
    source: Source,
    at: Loc = (),
    also: Sequence[str] = (),
) -> Model:
    """Validate ``data`` as a ``model``; UserError for its first problem.

    ``also``: keys that are allowed next to the model's in the same table.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    # an unknown key first: a required key with a typo is reported as unknown and as missing
    worst = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
    key = _key(worst, data)
    tried = [detail for detail in details if detail["loc"] != key and _key(detail, data) == key]
    problem = (
        _none_of(tried)
        if len(tried) > 1
        else _problem(worst, _fields(model, key[:-1], also), source, (*at, *key))
    )
    raise source.error((*at, *key), problem)


def check_numbers(data: Mapping[str, Any], source: Source) -> None:
    """Refuse numbers that TOML allows but no key does: inf, nan, integers beyond 64 bits.

    UserError for the first of them.
    """
    left: list[tuple[Loc, Any]] = [((), data)]
    while left:  # not recursive: the data may come from the wire
        loc, value = left.pop()
        if isinstance(value, dict):
            left += [((*loc, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [((*loc, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            raise source.error(loc, f"expected a finite number, found {value}")
        elif isinstance(value, int) and abs(value) > LARGEST_INT:
            raise source.error(
                loc, f"expected a whole number of at most 64 bits, found {found(value)}"
            )


def _key(detail: ErrorDetails, data: Any) -> Loc:
    """Where the key of a problem is in ``data``.

    For a key with a union type, pydantic appends the type that it tried; this part is removed.
    """
    loc = detail["loc"]
    for depth, part in enumerate(loc):
        if isinstance(part, int) and isinstance(data, (list, tuple)) and part < len(data):
            data = data[part]
        elif isinstance(data, Mapping) and part in data:
            data = data[part]
        else:
            return loc[: depth + (detail["type"] == "missing")]
    return loc


def _none_of(tried: Sequence[ErrorDetails]) -> str:
    """Format the problem of a key with a union type, such as a number or one of some words."""
    words = [
        word for detail in tried if detail["type"] == "literal_error" for word in _words(detail)
    ]
    kinds = [
        in_words(detail).removeprefix("expected ")
        for detail in tried
        if detail["type"] != "literal_error"
    ]
    *first, last = (*kinds, *map(repr, words))
    value = tried[0]["input"]
    return f"expected {', '.join(first)} or {last}, found {found(value)}{_nearest_of(value, words)}"


def _fields(model: type[BaseModel], loc: Loc, also: Sequence[str]) -> list[str]:
    """The valid keys at ``loc`` inside ``model``."""
    for part in loc:
        inner = (
            table_of(model.model_fields[part].annotation) if part in model.model_fields else None
        )
        model = inner or model
    return [*model.model_fields, *also]


def _problem(detail: ErrorDetails, valid: list[str], source: Source, whole: Loc) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        name = str(detail["loc"][-1])
        near = source.near(name, valid)
        # a key of another choice for this table is unknown here: it is not the nearest one
        itself = repr(".".join(map(str, whole))) in near
        return f"unknown key{nearest(name, valid) if itself else near}"
    if kind == "missing":
        given = [key for key in value if key not in valid] if isinstance(value, dict) else []
        typo = get_close_matches(str(detail["loc"][-1]), given, n=1)
        return (
            f"missing; {typo[0]!r} is given, is it this key?"
            if typo
            else MISSING.get(whole, "missing")
        )
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    key = str(detail["loc"][-1])
    expected = in_words(detail)
    if kind == "string_pattern_mismatch" and detail["ctx"]["pattern"] in PATTERNS:
        expected = f"expected {PATTERNS[detail['ctx']['pattern']]}"
    near = _nearest_of(value, _words(detail)) if kind == "literal_error" else ""
    return f"{expected}, found {found(value)}{near}{_counterpart(key, value, valid)}"


def _counterpart(key: str, value: Any, valid: Sequence[str]) -> str:
    """Name the key that takes several values where ``key`` takes one, or the reverse."""
    if isinstance(value, list) and f"{key}s" in valid:
        return f"; several: {key}s"
    if not isinstance(value, list) and key.endswith("s") and key[:-1] in valid:
        return f"; one: {key[:-1]}"
    return ""


def in_words(detail: ErrorDetails) -> str:
    """Return what pydantic expected, in the style of our messages."""
    return EXPECTED.get(detail["type"]) or _plain(detail["msg"])


def _plain(message: str) -> str:
    """Rewrite pydantic's sentence in the style of our messages."""
    message = re.sub(r"\b0\.0{12,}\d+", lambda digits: f"{float(digits[0]):g}", message)
    for start in ("Input should be ", "String should "):
        if message.startswith(start):
            return (
                "expected "
                + ("text to " if start.startswith("String") else "")
                + message.removeprefix(start)
            )
    return message[:1].lower() + message[1:]


def _words(detail: ErrorDetails) -> list[str]:
    """The words that a key of literals accepts."""
    expected: str = detail["ctx"]["expected"]
    return expected.replace(" or ", ", ").replace("'", "").split(", ")


def _nearest_of(value: Any, words: list[str]) -> str:
    close = get_close_matches(value, words, n=1) if isinstance(value, str) else []
    return nearest(close[0], words) if close else ""


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as OneLineErrors
else:

    class OneLineErrors(type(BaseModel)):
        """Makes the call of a class, as in ``Edges(count=0)``, raise UserError of one line.

        What reads a file validates without a call, and names the file.
        """

        def __call__(cls, **values: Any) -> Any:
            return validated(cls, values, Source(cls.__name__))


def _named(value: Any) -> Any:
    return catalog.name_of(value) if callable(value) else value


# The name of a plug-in. In Python it may be the class or the function itself.
PlugInName = Annotated[str, BeforeValidator(_named)]


class Section(BaseModel, metaclass=OneLineErrors):
    """Base of every part of the file: immutable, no unknown keys, no silent conversion.

    For example, "2" is not accepted as 2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def is_set(section: Section, key: str) -> bool:
    """Whether ``key`` has another value than its default."""
    return bool(getattr(section, key) != type(section).model_fields[key].default)


def refuse_keys_of_other_kinds(section: Section, kinds: Mapping[str, Sequence[str]]) -> None:
    """ValueError for a key that is not of the section's own ``kind``.

    ``kinds``: kind -> its keys. Keys that are in none of them are for every kind.
    """
    own = section.model_dump(include={"kind"})["kind"]
    for key in type(section).model_fields:
        of = [kind for kind, keys in kinds.items() if key in keys]
        if of and own not in of and is_set(section, key):
            expected = " or ".join(f'"{kind}"' for kind in of)
            raise ValueError(f'{key}: expected kind = {expected}, found "{own}"')
