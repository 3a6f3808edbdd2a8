"""From a tree and arrays back to the graph of objects.

Objects that can change are made empty first, so that cycles are no difficulty; then what needs its
parts at once (tuples, keys); then all are filled; at last ``restore`` is called.
"""

from __future__ import annotations

from array import array as typed_array
from base64 import b64decode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from types import MethodType
from typing import Any
from weakref import ref

import msgspec
import numpy as np

from edgefl.checkpoints.allowed import find_class, method_of
from edgefl.checkpoints.buffers import Buffers
from edgefl.checkpoints.class_info import class_info
from edgefl.checkpoints.encoded import FORMAT, CannotDecode, Encoded
from edgefl.checkpoints.encoder import BIT_GENERATORS, Entry

MAPPINGS: dict[str, type] = {
    "map": dict,
    "dict": dict,
    "defaultdict": defaultdict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
}
MOST_POOL = 64  # words of a seed sequence; numpy has 4 unless it is told otherwise
GROWING: dict[str, type] = {"list": list, "set": set, "deque": deque, **MAPPINGS}


class Decoder:
    """Decodes one graph."""

    def __init__(
        self, encoded: Encoded, externals: Mapping[str, object], own: Collection[str]
    ) -> None:
        tree = encoded.tree
        if tree.get("format") != FORMAT:
            raise CannotDecode(f"has the format {tree.get('format')!r}; expected {FORMAT}")
        self._root = tree["root"]
        self._objects: list[Entry] = tree["objects"]
        self._buffers = Buffers(tree["buffers"], encoded.arrays)
        self._externals, self._own = externals, tuple(own)
        self._made: dict[int, Any] = {}  # by number
        self._waiting: set[int] = set()  # objects that need their parts at once
        self._texts: dict[str, str] = {}  # equal texts are one object

    def build(self) -> object:
        """Return the root, with all objects filled, but without ``restore``."""
        for number, entry in enumerate(self._objects):
            self._begin(number, entry)
        for number in _in_order(sorted(self._waiting), self._waiting_parts):
            if number in self._made:  # a later hash needs its attributes
                self._fill_attributes(self._made[number], self._objects[number])
            else:
                self._made[number] = self._immutable(self._objects[number])
        stages = (self._fill_attributes, self._fill_ordered, self._fill_hashed, self._fill_bits)
        for fill in stages:
            for number, entry in enumerate(self._objects):
                fill(self._made[number], entry)
        return self._value(self._root)

    def restore(self) -> None:
        """Call ``restore`` of all objects that have a state of their own, the inner ones first."""
        for number in _in_order(range(len(self._objects)), self._parts):
            entry = self._objects[number]
            if entry[0] in ("state", "external"):
                self._made[number].restore(self._value(entry[2][0]))

    # ------------------------------------------------------------------ values
    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._texts.setdefault(value, value)
        if not isinstance(value, list):
            return value
        return self._made[value[0]] if len(value) == 1 else self._atom(value)

    def _atom(self, value: list[Any]) -> Any:
        match value:
            case ["int", str(digits)]:
                return int(digits, 16)
            case ["float", str(digits)]:
                return float(digits)
            case ["text", str(digits)]:
                return bytes.fromhex(digits).decode("utf-8", "surrogatepass")
            case ["bytes", str(text)]:
                return b64decode(text, validate=True)
            case ["external", str(name)]:
                return self._external(name)
            case ["class", str(name)]:
                return find_class(name, self._own)
            case ["enum", str(name), member]:
                kind = find_class(name, self._own)
                if not issubclass(kind, Enum):
                    raise CannotDecode(f"names {name}, which is no enumeration")
                return kind[member] if isinstance(member, str) else kind(member)
            case ["scalar", str(dtype), str(digits)]:
                return np.frombuffer(bytes.fromhex(digits), _dtype(dtype), 1)[0]
            case ["dtype", str(dtype)]:
                return _dtype(dtype)
            case ["path", str(text)]:
                return Path(text)
            case ["fraction", str(above), str(below)]:
                return Fraction(int(above, 16), int(below, 16))
        raise CannotDecode(f"has the value {str(value)[:80]}")

    def _external(self, name: str) -> object:
        if name not in self._externals:
            raise CannotDecode(f"needs {name!r}, which this process does not have")
        return self._externals[name]

    def _values(self, items: list[Any]) -> Iterator[Any]:
        return (self._value(item) for item in items)

    # ------------------------------------------------------------------ order
    def _parts(self, number: int) -> Iterator[int]:
        """The numbers of the objects that an entry refers to."""
        entry = self._objects[number]
        values = [*entry[2], *(entry[3].values() if len(entry) > 3 else ())]
        return (value[0] for value in values if isinstance(value, list) and len(value) == 1)

    def _waiting_parts(self, number: int) -> Iterator[int]:
        return (part for part in self._parts(number) if part in self._waiting)

    # ------------------------------------------------------------------ making
    def _begin(self, number: int, entry: Entry) -> None:
        """Make an object that can be filled later, or that has no parts."""
        kind, extra = entry[0], entry[1]
        if kind in GROWING:
            self._made[number] = self._container(kind, extra)
        elif kind == "ndarray":
            self._made[number] = self._buffers.view(extra)
        elif kind == "buffer":
            self._made[number] = self._typed(*extra)
        elif kind == "external":
            self._made[number] = self._external(extra)
        elif kind in ("state", "object"):
            found = find_class(extra, self._own)
            info = class_info(found, self._own)
            if info.refused or info.container or info.has_state != (kind == "state"):
                raise CannotDecode(f"has {extra} as {kind}, which it is not")
            if info.hashed and kind == "object":
                self._waiting.add(number)
            self._made[number] = object.__new__(found)
        else:
            self._waiting.add(number)

    def _container(self, kind: str, extra: Any) -> Any:
        base: Any = GROWING[kind]
        name, most = extra if kind == "deque" else (extra, None)
        found = base if name is None else find_class(name, self._own)
        if not issubclass(found, base):
            raise CannotDecode(f"has {name} as {kind}, which it is not")
        made = base.__new__(found)
        if kind == "deque":
            deque.__init__(made, maxlen=most)
        return made

    def _typed(self, kind: str, name: str | None) -> Any:
        data = self._buffers.data(name)
        if kind == "bytes":
            return data
        return bytearray(data) if kind == "bytearray" else typed_array(kind.split()[1], data)

    def _immutable(self, entry: Entry) -> Any:
        """Make an object that needs all its parts at once."""
        kind, extra, items = entry[:3]
        if kind == "method":
            of = self._value(items[0])
            function = method_of(of, extra, self._own)
            if function is None:
                raise CannotDecode(f"names the method {extra} of {type(of).__name__}")
            return MethodType(function, of)
        if kind in ("tuple", "frozenset"):
            base: Any = tuple if kind == "tuple" else frozenset
            found = base if extra is None else find_class(extra, self._own)
            return base.__new__(found, self._values(items))
        if kind == "struct":
            found = find_class(extra, self._own)
            if not issubclass(found, msgspec.Struct):
                raise CannotDecode(f"has {extra} as {kind}, which it is not")
            return found(*self._values(items))
        if kind == "bits":
            if extra not in BIT_GENERATORS:
                raise CannotDecode(f"names the random generator {extra}")
            return getattr(np.random, extra)(self._value(items[0]))
        if kind == "partial":
            keywords = {name: self._value(value) for name, value in entry[3].items()}
            function, *arguments = self._values(items)
            if type(function) is not MethodType:
                raise CannotDecode("has a partial of something that is no method")
            return partial(function, *arguments, **keywords)
        if kind not in SIMPLE:
            raise CannotDecode(f"has an object of the kind {kind!r}")
        return SIMPLE[kind](*self._values(items))

    # ------------------------------------------------------------------ filling
    def _fill_attributes(self, made: Any, entry: Entry) -> None:
        if entry[0] not in ("map", "partial") and len(entry) > 3 and entry[3]:
            kind: Any = type(made)
            values = {name: self._value(value) for name, value in entry[3].items()}
            class_info(kind, self._own).fill(made, values)

    def _fill_ordered(self, made: Any, entry: Entry) -> None:
        if entry[0] in ("list", "deque"):
            GROWING[entry[0]].extend(made, self._values(entry[2]))  # type: ignore[attr-defined]  # all of GROWING have it

    def _fill_hashed(self, made: Any, entry: Entry) -> None:
        """Fill what compares its parts; they are complete."""
        kind, items = entry[0], entry[2]
        if kind == "set":
            set.update(made, self._values(items))
        elif kind == "map":
            made.update((self._value(key), self._value(each)) for key, each in entry[3].items())
        elif kind in MAPPINGS:
            if kind == "defaultdict":
                factory, items = self._value(items[0]), items[1:]
                if factory is not None and not isinstance(factory, (type, MethodType, partial)):
                    raise CannotDecode("has a defaultdict of something that is no class")
                made.default_factory = factory
            put = OrderedDict.__setitem__ if kind == "OrderedDict" else dict.__setitem__
            for key, value in zip(items[::2], items[1::2], strict=True):
                put(made, self._value(key), self._value(value))

    def _fill_bits(self, made: Any, entry: Entry) -> None:
        if entry[0] == "bits":
            made.state = self._value(entry[2][1])


class _Gone:
    """The former object of a dead weak reference."""


def _weak(found: Any) -> ref[Any]:
    return ref(_Gone() if found is None else found)


def _seed(entropy: Any, spawn_key: Any, pool_size: int, spawned: int) -> np.random.SeedSequence:
    if pool_size > MOST_POOL:
        raise CannotDecode(f"has a seed with a pool of {pool_size} words")
    return np.random.SeedSequence(
        entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned
    )


SIMPLE: dict[str, Callable[..., Any]] = {
    "weak": _weak,
    "seed": _seed,
    "count": count,
    "range": range,
    "generator": np.random.Generator,
}


def _dtype(text: str) -> np.dtype[Any]:
    found = np.dtype(text)
    if found.hasobject:
        raise CannotDecode(f"has a value of {found}")
    return found


def _in_order(starts: Iterable[int], parts: Callable[[int], Iterator[int]]) -> Iterator[int]:
    """Yield the numbers so that parts come before what they are parts of, as far as possible."""
    done: set[int] = set()
    for start in starts:
        if start in done:
            continue
        done.add(start)
        path = [(start, parts(start))]
        while path:
            number, left = path[-1]
            following = next((part for part in left if part not in done), None)
            if following is None:
                path.pop()
                yield number
            else:
                done.add(following)
                path.append((following, parts(following)))
