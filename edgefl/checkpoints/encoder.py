"""From a graph of objects to a flat tree and arrays."""

from __future__ import annotations

import re
from array import array as typed_array
from base64 import b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any, NoReturn
from weakref import ref

import msgspec
import numpy as np

from edgefl.checkpoints.allowed import STANDARD, is_allowed, method_of, name_of, places
from edgefl.checkpoints.buffers import BufferTable, refused
from edgefl.checkpoints.class_info import ClassInfo, class_info, has_state
from edgefl.checkpoints.encoded import FORMAT, CannotEncode, Encoded

LONG_BYTES = 1024  # longer ones are stored as arrays
SMALL_INT = 1 << 63  # JSON holds these as they are
Entry = list[Any]  # [kind, extra, items, attributes]
Label = tuple[str, Any]  # how an object is reached: (".", attribute) or ("[", key)
STATE: Label = (".", "")  # what state() returned: its keys read like attributes
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class Encoder:
    """Encodes one graph. Objects are found breadth first, so no depth is too deep."""

    def __init__(self, externals: Mapping[str, object], own: Collection[str], copy: bool) -> None:
        self._externals = {id(found): name for name, found in externals.items()}
        self._own = tuple(own)
        self._buffers = BufferTable(copy)
        self._numbers: dict[int, int] = {}  # id of an object -> its number
        self._found: list[Any] = []  # by number; this keeps ids valid
        self._reached: list[tuple[int, Label]] = []  # by number: from which object, and how
        self._arrays: list[tuple[Entry, int]] = []  # entries that get the row of an array
        self._at = 0  # the number of the object that is being encoded

    def encode(self, root: object) -> Encoded:
        objects: list[Entry] = []
        first = self._value(root, (".", ""))
        while len(objects) < len(self._found):
            self._at = len(objects)
            objects.append(self._entry(self._found[self._at]))
        views, places, buffers = self._buffers.close()
        for entry, number in self._arrays:
            entry[1] = views[number] if entry[1] is None else [entry[1], views[number][0]]
        return Encoded(
            {"format": FORMAT, "root": first, "objects": objects, "buffers": places}, buffers
        )

    # ------------------------------------------------------------------ values
    def _value(self, found: Any, label: Label) -> Any:
        """Return a value in a tree: plain JSON, ``[number]`` of an object, or ``[kind, ...]``."""
        kind = type(found)
        if found is None or kind is bool:
            return found
        if kind is int:
            return found if -SMALL_INT <= found < SMALL_INT else ["int", hex(found)]
        if kind is str:
            return found if _is_text(found) else ["text", _hexed(found)]
        if kind is float:
            return found if found - found == 0 else ["float", repr(found)]
        number = self._numbers.get(id(found))
        if number is not None:
            return [number]
        name = self._externals.get(id(found))
        if name is not None and not has_state(kind):
            return ["external", name]
        return (self._atom(found, label) if name is None else None) or self._add(found, label)

    def _atom(self, found: Any, label: Label) -> list[Any] | None:
        """Return the value of an immutable object that refers to no other; else None."""
        match found:
            case bytes() if type(found) is bytes and len(found) <= LONG_BYTES:
                return ["bytes", b64encode(found).decode("ascii")]
            case Enum():
                self._check_name(type(found), label)
                named = found.name in type(found).__members__
                return ["enum", name_of(type(found)), found.name if named else int(found.value)]
            case type():
                self._check_name(found, label)
                return ["class", name_of(found)]
            case FunctionType():
                self._refuse(f"the function {found.__qualname__}", label)
            case np.generic():
                if refused(np.asarray(found)):
                    self._refuse(f"a numpy value of {found.dtype}", label)
                return ["scalar", found.dtype.str, found.tobytes().hex()]
            case np.dtype():
                if refused(np.empty(0, found)):
                    self._refuse(f"the numpy type {found}", label)
                return ["dtype", found.str]
            case PurePath():
                return ["path", str(found)]
            case Fraction():
                return ["fraction", hex(found.numerator), hex(found.denominator)]
        return None

    def _check_name(self, found: Any, label: Label) -> None:
        name = name_of(found)
        if STANDARD.get(name) is found:
            return
        if "<" in found.__qualname__:
            self._refuse(f"{found.__qualname__}, which a function defines", label)
        if not is_allowed(found.__module__, self._own):
            self._refuse(f"{name}, which is no class of {places(self._own)}", label)

    def _add(self, found: Any, label: Label) -> list[int]:
        number = self._numbers[id(found)] = len(self._found)
        self._found.append(found)
        self._reached.append((self._at, label))
        return [number]

    def _items(self, found: Iterable[Any]) -> list[Any]:
        return [self._value(each, ("[", place)) for place, each in enumerate(found)]

    def _pairs(self, found: Mapping[Any, Any]) -> list[Any]:
        values: list[Any] = []
        for key, value in found.items():
            values += self._value(key, ("[", key)), self._value(value, ("[", key))
        return values

    def _attributes(self, found: Any, info: ClassInfo) -> dict[str, Any]:
        return {name: self._value(value, (".", name)) for name, value in info.attributes(found)}

    # ------------------------------------------------------------------ entries
    def _entry(self, found: Any) -> Entry:
        name = self._externals.get(id(found))
        if name is not None:
            return ["external", name, [self._value(found.state(), STATE)]]
        make = MAKERS.get(type(found))
        return self._object(found) if make is None else make(self, found)

    def _list(self, found: list[Any]) -> Entry:
        return ["list", None, self._items(found)]

    def _tuple(self, found: tuple[Any, ...]) -> Entry:
        return ["tuple", None, self._items(found)]

    def _set(self, found: set[Any] | frozenset[Any]) -> Entry:
        try:  # equal sets have equal trees, where their elements have an order
            items: Collection[Any] = sorted(found)
        except TypeError:
            items = found
        return ["set" if isinstance(found, set) else "frozenset", None, self._items(items)]

    def _dict(self, found: dict[Any, Any]) -> Entry:
        if all(type(key) is str and _is_text(key) for key in found):
            values = {key: self._value(value, ("[", key)) for key, value in found.items()}
            return ["map", None, [], values]
        return ["dict", None, self._pairs(found)]

    def _deque(self, found: deque[Any]) -> Entry:
        return ["deque", [None, found.maxlen], self._items(found)]

    def _defaultdict(self, found: defaultdict[Any, Any]) -> Entry:
        factory = self._value(found.default_factory, (".", "default_factory"))
        return ["defaultdict", None, [factory, *self._pairs(found)]]

    def _bytes(self, found: bytes | bytearray) -> Entry:
        return self._buffer("bytes" if isinstance(found, bytes) else "bytearray", found)

    def _typed(self, found: typed_array[Any]) -> Entry:
        return self._buffer(f"array {found.typecode}", found)

    def _buffer(self, kind: str, found: Any) -> Entry:
        entry: Entry = ["buffer", kind, []]
        self._arrays.append((entry, self._buffers.add(np.frombuffer(found, np.uint8))))
        return entry

    def _array(self, found: np.ndarray) -> Entry:
        if what := refused(found):
            self._refuse(what)
        entry: Entry = ["ndarray", None, []]
        self._arrays.append((entry, self._buffers.add(found)))
        return entry

    def _generator(self, found: np.random.Generator) -> Entry:
        bits = found.bit_generator
        name = type(bits).__name__
        if name not in BIT_GENERATORS:
            self._refuse(f"a random generator of {name}")
        return ["generator", None, [self._value(bits, (".", "bit_generator"))]]

    def _bits(self, found: Any) -> Entry:
        seed = self._value(found.seed_seq, (".", "seed_seq"))
        return ["bits", type(found).__name__, [seed, self._value(found.state, (".", "state"))]]

    def _seed(self, found: np.random.SeedSequence) -> Entry:
        names = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
        return ["seed", None, [self._value(getattr(found, name), (".", name)) for name in names]]

    def _partial(self, found: partial[Any]) -> Entry:
        if type(found.func) is not MethodType:
            self._refuse("a partial of something that is no method")
        values = [self._value(found.func, (".", "func")), *self._items(found.args)]
        return [
            "partial",
            None,
            values,
            {k: self._value(v, (".", k)) for k, v in found.keywords.items()},
        ]

    def _method(self, found: MethodType) -> Entry:
        of, name = found.__self__, found.__func__.__name__
        if method_of(of, name, self._own) is not found.__func__:
            self._refuse(f"the method {name} of {type(of).__name__}")
        return ["method", name, [self._value(of, (".", "__self__"))]]

    def _weak(self, found: ref[Any]) -> Entry:
        return ["weak", None, [self._value(found(), (".", "()"))]]

    def _count(self, found: count[int]) -> Entry:
        numbers = re.fullmatch(r"count\((-?\d+)(?:, (-?\d+))?\)", repr(found))
        if numbers is None:
            self._refuse(repr(found))
        start, step = numbers.groups("1")
        return ["count", None, [self._value(int(each), (".", "")) for each in (start, step)]]

    def _range(self, found: range) -> Entry:
        return ["range", None, self._items((found.start, found.stop, found.step))]

    def _object(self, found: Any) -> Entry:
        kind: Any = type(found)
        info = class_info(kind, self._own)
        if info.refused:
            self._refuse(info.refused)
        if info.has_state:
            return ["state", info.name, [self._value(found.state(), STATE)]]
        if isinstance(found, msgspec.Struct):  # made at once from its fields, in their order
            values = msgspec.structs.asdict(found).items()
            return [
                "struct",
                info.name,
                [self._value(value, (".", name)) for name, value in values],
            ]
        if info.container is None:
            return ["object", info.name, [], self._attributes(found, info)]
        entry = MAKERS[info.container](self, found)
        if entry[0] == "map":
            entry = ["dict", None, self._pairs(found)]
        extra = [info.name, found.maxlen] if isinstance(found, deque) else info.name
        return [entry[0], extra, entry[2], self._attributes(found, info)]

    # ------------------------------------------------------------------ errors
    def _refuse(self, what: str, label: Label | None = None) -> NoReturn:
        """Raise CannotEncode. ``label``: how the object is reached from the current one."""
        labels = [] if label is None else [label]
        at = self._at if self._found else -1
        while at >= 0:
            external = self._externals.get(id(self._found[at]))
            before, how = self._reached[at]
            labels.append(how if external is None else (".", external))
            at = before if at and external is None else -1
        raise CannotEncode(f"{_path(reversed(labels))}: cannot save {what}")


MAKERS: dict[type, Callable[[Encoder, Any], Entry]] = {
    list: Encoder._list,
    tuple: Encoder._tuple,
    set: Encoder._set,
    frozenset: Encoder._set,
    dict: Encoder._dict,
    deque: Encoder._deque,
    defaultdict: Encoder._defaultdict,
    OrderedDict: lambda encoder, found: ["OrderedDict", None, encoder._pairs(found)],
    Counter: lambda encoder, found: ["Counter", None, encoder._pairs(found)],
    bytes: Encoder._bytes,
    bytearray: Encoder._bytes,
    typed_array: Encoder._typed,
    np.ndarray: Encoder._array,
    np.random.Generator: Encoder._generator,
    **{getattr(np.random, name): Encoder._bits for name in BIT_GENERATORS},
    np.random.SeedSequence: Encoder._seed,
    partial: Encoder._partial,
    MethodType: Encoder._method,
    ref: Encoder._weak,
    count: Encoder._count,
    range: Encoder._range,
}


def _is_text(found: str) -> bool:
    """Whether JSON can hold it: it has no lone surrogate."""
    return found.isascii() or not any("\ud800" <= each <= "\udfff" for each in found)


def _hexed(found: str) -> str:
    return found.encode("utf-8", "surrogatepass").hex()


def _path(labels: Iterable[Label]) -> str:
    """ "strategy.model.hook": keys of the outermost dict, and of a state, read like attributes."""
    path, named = "", True
    for sign, name in labels:
        if sign == "." or (named and isinstance(name, str)):
            path += f".{name}" if name and path else f"{name}"
        else:
            path += f"[{name!r}]"
        named = not path or (sign, name) == STATE
    return path or "the root"
