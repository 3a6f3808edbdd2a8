"""What is tried: keys of the config with their values, and settings that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from zlib import crc32

from edgefl.config.file import toml_value
from edgefl.errors import UserError, nearest

EXAMPLE = "--grid training.learning_rate=0.01,0.1"
SEED = "seed"  # the key whose values are repetitions, not settings
RANGE = re.compile(r"([^,\s]+?)\.\.([^,\s]+?)(:log)?")
SAFE = re.compile(r"[A-Za-z0-9_.+-]{1,40}")  # what stands in a directory's name as it is
BRACKETS = {"[": "]", "{": "}"}
QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The numbers from ``low`` to ``high``; ``log``: evenly over their logarithms."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True, slots=True)
class GridAxis:
    """A key of the config with the ``values`` to try, or with a ``span`` to draw them from.

    ``methods``: the names of the strategies that it is for; () means all, except that a key of one
    strategy (``strategies.NAME.mu``) is for this one.
    """

    key: str
    values: tuple[Any, ...] = ()
    span: ValueRange | None = None
    methods: tuple[str, ...] = ()

    def is_for(self, number: int, name: str) -> bool:
        """Whether it changes the strategy ``name`` at ``number`` of the config."""
        if self.methods:
            return name in self.methods
        table, _, rest = self.key.partition(".")
        entry = rest.partition(".")[0]
        return table != "strategies" or not rest or entry in (name, str(number))

    @property
    def has_order(self) -> bool:
        """Whether its values are numbers, so that it has a smallest and a largest one."""
        return self.span is None and all(map(_is_number, self.values))


@dataclass(frozen=True, slots=True)
class Setting:
    """One value for each key, as (key, value) in the order of the axes."""

    values: tuple[tuple[str, Any], ...] = ()

    def __hash__(self) -> int:
        return hash(tuple(self.overrides()))  # a value may be an array

    def overrides(self) -> list[str]:
        """Return it as ``key=value``, as the command line takes changes to a config."""
        return [f"{key}={toml_text(value)}" for key, value in self.values]

    def named(self, short: Mapping[str, str]) -> str:
        """Return "learning_rate=0.1,mu=1", with the names ``short`` of the keys.

        It can be part of a directory's name: a value with other characters ends in a digest.
        """
        return ",".join(f"{short[key]}={_safe(value)}" for key, value in self.values)

    def with_value(self, key: str, value: Any) -> Setting:
        """Return the setting with another value for ``key``."""
        return Setting(tuple((each, value if each == key else old) for each, old in self.values))

    def __getitem__(self, key: str) -> Any:
        return dict(self.values)[key]


def parse(
    words: Sequence[str], ranges: bool = False
) -> tuple[tuple[GridAxis, ...], tuple[int, ...]]:
    """Read ``key=value,value`` words; return (the axes, the seeds; () if none are given).

    ``ranges``: ``low..high`` and ``low..high:log`` are allowed. UserError, in one line, for a word
    that is not of this form, a key that is given twice, and for no word at all.
    """
    if not words:
        raise UserError(f"--grid: missing: expected at least one, such as {EXAMPLE}")
    axes = [_axis(word, ranges) for word in words]
    keys = [axis.key for axis in axes]
    if "seeds" in keys:
        raise UserError("--grid seeds: expected single ones: --grid seed=1,2,3")
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UserError(f"--grid {twice}: is given twice; name all its values in one --grid")
    seeds = next((axis for axis in axes if axis.key == SEED), None)
    rest = tuple(axis for axis in axes if axis is not seeds)
    return rest, () if seeds is None else _seeds(seeds)


def _axis(word: str, ranges: bool) -> GridAxis:
    key, equals, text = word.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"--grid {word}: expected KEY=VALUE,VALUE, such as {EXAMPLE}")
    if not text.strip():
        raise UserError(f"--grid {word}: is empty: expected values, such as {EXAMPLE}")
    match = RANGE.fullmatch(text.strip())
    if match is not None:
        return GridAxis(key, span=_span(word, match, ranges))
    texts = list(_parts(text))
    if not all(texts):
        raise UserError(f"--grid {word}: expected a value between commas")
    values = tuple(map(toml_value, texts))
    said = [toml_text(value) for value in values]
    twice = next((each for each in said if said.count(each) > 1), None)
    if twice is not None:
        raise UserError(f"--grid {word}: the value {twice} is given twice")
    return GridAxis(key, values)


def _span(word: str, match: re.Match[str], ranges: bool) -> ValueRange:
    low, high, log = toml_value(match[1]), toml_value(match[2]), match[3] is not None
    if not (_is_number(low) and _is_number(high) and low < high) or (log and low <= 0):
        positive = " above 0" if log else ""
        raise UserError(
            f"--grid {word}: expected two numbers{positive}, the smaller one first, such as"
            " 0.001..0.1:log"
        )
    if not ranges:
        raise UserError(
            f"--grid {word}: a range needs --sampler random or --sampler optuna; expected values,"
            f" such as {EXAMPLE}"
        )
    return ValueRange(low, high, log)


def _seeds(axis: GridAxis) -> tuple[int, ...]:
    if axis.span is not None or not all(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in axis.values
    ):
        raise UserError("--grid seed: expected whole numbers of at least 0, such as seed=1,2,3")
    return axis.values


def settings(axes: Sequence[GridAxis]) -> list[Setting]:
    """Return every combination of the axes' values; the last axis changes first."""
    keys = [axis.key for axis in axes]
    return [
        Setting(tuple(zip(keys, values))) for values in product(*(axis.values for axis in axes))
    ]


def short_names(axes: Sequence[GridAxis]) -> dict[str, str]:
    """Return a short name for each key: its last part, or all of it if another key ends alike."""
    keys = dict.fromkeys(axis.key for axis in axes)
    last = [key.rpartition(".")[2] for key in keys]
    return {key: _safe(key if last.count(name) > 1 else name) for key, name in zip(keys, last)}


def unknown_method(axes: Sequence[GridAxis], names: Sequence[str]) -> None:
    """Raise UserError for an axis that is for no strategy of the config."""
    for axis in axes:
        for method in axis.methods:
            if method not in names:
                raise UserError(f"{axis.key}: no strategy {method!r}{nearest(method, names)}")


def toml_text(value: Any) -> str:
    """Return a value as TOML in one line; text without quotes where that is read as the same."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {quoted(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, str):
        return value if value and toml_value(value) == value else quoted(value)
    return str(value)


def quoted(value: Any) -> str:
    """Return a value as TOML in one line, with text in quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else toml_text(value)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that are not inside brackets or quotes."""
    closing: list[str] = []
    part = ""
    for character in text:
        if closing and character == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in QUOTES:
            pass
        elif character in QUOTES:
            closing.append(character)
        elif character in BRACKETS:
            closing.append(BRACKETS[character])
        elif character == "," and not closing:
            yield part.strip()
            part = ""
            continue
        part += character
    yield part.strip()


def _safe(value: Any) -> str:
    text = toml_text(value)
    if SAFE.fullmatch(text):
        return text
    return f"{re.sub(r'[^A-Za-z0-9_.+-]+', '_', text)[:30]}-{crc32(text.encode()):08x}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
