"""One-line errors of a config: place, key, what was expected and found, and the nearest key.

With every key of the experiment file, and other names that people use for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefl.config.experiment import PATTERNS, Experiment
from edgefl.errors import UserError, nearest
from emulator.errors import BadValue

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


def table_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation, or that of an array's entries; None if there is none."""
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return next(
        (each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)),
        None,
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


@dataclass(frozen=True, slots=True)
class Source:
    """Where a config comes from: a file, and overrides by the key that each of them sets.

    ``near`` ends the error line about an unknown key, given it and the valid keys of its table.
    """

    file: str
    overrides: Mapping[Loc, str] = field(default_factory=dict)
    near: Callable[[str, Sequence[str]], str] = nearest_key

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
            raise self.error(loc, str(error)) from error


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
        raise refusal(error, model, data, source, at, also) from None


def refusal(
    error: ValidationError,
    model: type[BaseModel],
    data: Mapping[str, Any],
    source: Source,
    at: Loc = (),
    also: Sequence[str] = (),
) -> UserError:
    """Return the error for the first problem of ``data``; the others: see ``validated``."""
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
    return source.error((*at, *key), problem)


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
        if isinstance(part, int) and isinstance(data, (list, tuple)):
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
        (EXPECTED.get(detail["type"]) or _plain(detail["msg"])).removeprefix("expected ")
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
        return f"missing; {typo[0]!r} is given, is it this key?" if typo else "missing"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    key = str(detail["loc"][-1])
    expected = EXPECTED.get(kind) or _plain(detail["msg"])
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


def _plain(message: str) -> str:
    """Rewrite pydantic's sentence in the style of our messages."""
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
