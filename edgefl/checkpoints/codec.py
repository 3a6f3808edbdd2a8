"""Encode a graph of objects as a pickle and arrays, and decode it with a restricted reader.

Objects stay shared as they were, also in cycles. What the codec knows: None, bool, int, float, str,
bytes, bytearray, range, list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict,
Counter, Fraction, PosixPath, ``array.array``, ``itertools.count``, ``functools.partial``, weak
references; numpy's arrays, values, dtypes, generators and seed sequences; enumerations; objects of
allowed classes (``ALLOWED``, the user's own strategies) with their attributes and slots; these
classes by name; methods that ``METHODS`` names or that the user's classes define.

- The pickle names classes, and the functions of ``CALLS``, which make the other objects.
- An object that defines ``state()`` and ``restore(state)`` is saved as its state. It is made
  without a call of ``__init__``, then gets the state.
- ``externals`` are objects that the process makes anew: they are saved as their name. If an
  external defines ``state()`` and ``restore(state)``, its state is saved, and the new object gets
  it.
- Arrays lie outside of the pickle. Arrays that overlap in memory still do afterwards. Each piece
  of memory is stored once.

Who changes a checkpoint chooses the objects of the resumed run. So the classes are those of a short
list, of which none starts a process or opens a file or a socket, and those of the modules of the
config's own strategies; a few of the standard library. No function can be named but those of the
codec, and a method only if the run itself keeps it. A name is only looked up where it is defined: a
damaged or foreign file can neither import another module nor reach a class through the imports of
an allowed one.
"""

from __future__ import annotations

import copyreg
import ctypes
import io
import pickle
import re
import sys
from array import array as typed_array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from inspect import getattr_static
from itertools import count
from pathlib import PosixPath
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, ClassVar, NoReturn
from weakref import ref

import msgspec
import numpy as np
from msgspec import Struct

from edgefl.errors import listed
from edgefl.pickles import DAMAGE, RestrictedUnpickler, UnsafePickle
from edgefl.vectors import ALIGNMENT, aligned

# ---------------------------------------------------------------------- what a checkpoint may name
# Packages, modules and classes of the state of a run. They are imported if a checkpoint names them.
ALLOWED = (
    "edgefl.actor",
    "edgefl.by_name",
    "edgefl.compression",
    "edgefl.config",
    "edgefl.coordinator",
    "edgefl.edges.edge",
    "edgefl.edges.training",
    "edgefl.exchange",
    "edgefl.clocks.setup.network",
    "edgefl.clocks.virtual.run:DeferredEdges",
    "edgefl.clocks.virtual.run:VirtualHost",
    "edgefl.clocks.virtual.pool.engine",
    "edgefl.clocks.wall.coordinator.run_logic",
    "edgefl.clocks.wall.coordinator.thread_messages",
    "edgefl.jobs",
    "edgefl.protocol",
    "edgefl.record.rows",
    "edgefl.record.energy",
    "edgefl.record.host_table",
    "edgefl.strategies",
    "edgefl.streams",
    "edgefl.vectors",
    "emulator.availability",
    "emulator.capacity",
    "emulator.clock",
    "emulator.compute",
    "emulator.delay",
    "emulator.energy.account",
    "emulator.energy.power",
    "emulator.faults",
    "emulator.fidelity",
    "emulator.links",
    "emulator.tdma.channel",
    "sortedcontainers.sortedlist",
)
# What a run keeps to call it later, by class: events of the agenda, and hooks of the network.
METHODS = {
    "edgefl.exchange.machine:FaultLives": {"_in_life"},
    "edgefl.clocks.setup.network:Builder": {"supply"},
    "edgefl.clocks.virtual.run:VirtualHost": {
        *("_end", "_hear", "_heard", "_miss", "_miss_frozen"),
        *("_scores_due", "_strike", "_tell", "_thaw", "_too_late"),
    },
    "emulator.links.network:Network": {"_announce", "_mark"},
}
STANDARD: dict[str, type] = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (
        *(bool, bytearray, bytes, dict, float, frozenset, int, list, object, set, str, tuple),
        *(Counter, Fraction, OrderedDict, defaultdict, deque),
    )
}


# Built-in containers, subclasses of which can be saved; the more special ones first.
CONTAINERS: tuple[type, ...] = (
    *(Counter, OrderedDict, defaultdict, deque),
    *(dict, list, set, frozenset, tuple),
)
# Bases without a state of their own.
STATELESS = {"abc", "typing", "typing_extensions", "_collections_abc", "collections.abc"}
BASES = {
    *("builtins:object", "collections:UserDict", "pydantic.main:BaseModel"),
    *("msgspec:Struct", "msgspec._core:_StructMixin"),
}


def name_of(found: Any) -> str:
    """Return "module:qualified.name" of a class."""
    return f"{found.__module__}:{found.__qualname__}"


def is_allowed(name: str, own: Collection[str]) -> bool:
    """Whether checkpoints may name the class "module:qualified.name".

    ``own``: modules of the user's strategies; a package stands for all its modules.
    """
    dotted = f"{name.replace(':', '.')}."
    return any(dotted.startswith(f"{root.replace(':', '.')}.") for root in (*ALLOWED, *own))


def is_plain(kind: type, own: Collection[str]) -> bool:
    """Whether a checkpoint may fill the attributes and slots that a class defines."""
    return is_allowed(name_of(kind), own) or name_of(kind) in BASES


def has_state(kind: type) -> bool:
    """Whether the class defines ``state()`` and ``restore(state)``."""
    return all(callable(getattr(kind, name, None)) for name in ("state", "restore"))


@cache
def refusal(kind: type, own: tuple[str, ...]) -> str:
    """Why objects of this class cannot be saved, or ""."""
    if kind in CONTAINERS:
        return ""
    if not is_allowed(name_of(kind), own):
        return (
            f"an object of {kind.__module__}.{kind.__qualname__}, which is no class of"
            f" {places(own)}"
        )
    if "<locals>" in kind.__qualname__:
        return f"an object of {kind.__qualname__}, a class that a function defines"
    if issubclass(kind, Struct) and not is_allowed(name_of(kind), ()):
        return f"an object of {kind.__qualname__}, a msgspec.Struct of one's own"
    for base in kind.__mro__:
        if not (is_plain(base, own) or base.__module__ in STATELESS or base in CONTAINERS):
            return f"an object of {kind.__qualname__}, which derives from {name_of(base)}"
    return ""


def name_refusal(found: Any, own: Collection[str]) -> str:
    """Why a checkpoint cannot name this class or function, or ""."""
    name = name_of(found)
    if not isinstance(found, type):
        return f"the function {found.__qualname__}"
    if STANDARD.get(name) is found:
        return ""
    if "<" in found.__qualname__:
        return f"{found.__qualname__}, which a function defines"
    return "" if is_allowed(name, own) else f"{name}, which is no class of {places(own)}"


def find_class(name: str, own: Collection[str]) -> type:
    """Return the class of a name. UnsafePickle if a checkpoint must not name it."""
    found = STANDARD.get(name) or _find(name, own)
    if not isinstance(found, type) or name_of(found) != name:
        raise UnsafePickle(f"names {name}, which is no class of {places(own)}")
    return found


def method_of(owner: Any, name: str, own: Collection[str]) -> FunctionType | None:
    """Return the method ``name`` of an object's class if a checkpoint may name it, else None.

    Of the user's own classes it may name all methods.
    """
    kind = type(owner)
    base = next((base for base in kind.__mro__ if name in vars(base)), object)
    found = vars(base).get(name)
    mine = any(f"{base.__module__}.".startswith(f"{each}.") for each in own)
    listed_there = name in METHODS.get(name_of(base), ())
    return found if isinstance(found, FunctionType) and (mine or listed_there) else None


def _find(name: str, own: Collection[str]) -> Any:
    module, _, path = name.partition(":")
    if not is_allowed(name, own):
        raise UnsafePickle(f"names {name}; expected a class of {places(own)}")
    if is_allowed(name, ()):
        try:
            import_module(module)
        except ImportError as error:
            raise UnsafePickle(f"names {name}: {error}") from error
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        # never through an instance or another module
        if found is not sys.modules.get(module) and not isinstance(found, type):
            return None
        found = vars(found).get(part) if found is not None else None
    return found


def places(own: Collection[str]) -> str:
    """Format for an error where the classes are that a checkpoint may name."""
    return listed(("the state of edgefl's runs", *own), 4)


# ---------------------------------------------------------------------- arrays
# Arrays of a checkpoint: each piece of memory once, and the arrays as views into it.
#
# Float sums depend on the alignment of their input, so an array starts at the same place of a cache
# line as before.

# What safetensors can hold as it is; all else goes into the file as bytes.
PLAIN = {
    np.dtype(kind).newbyteorder("<")
    for kind in (
        *(np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32),
        *(np.int64, np.float16, np.float32, np.float64),
    )
}
# [name of the buffer or None, dtype, shape, strides or None, offset in bytes, writeable]
View = list[Any]


def refused(array: np.ndarray) -> str:
    """Why the array cannot be saved, or ""."""
    if array.dtype.hasobject or np.dtype(array.dtype.str) != array.dtype:
        return f"an array of {array.dtype}"
    return "" if type(array) is np.ndarray else f"an array of the class {type(array).__name__}"


class BufferTable:
    """Collects arrays, and finds which of them share memory. ``copy``: copy what may change."""

    def __init__(self, copy: bool) -> None:
        self.copy = copy
        self._arrays: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        """Add an array; return its number. It must not move until ``close``."""
        self._arrays.append(array)
        return len(self._arrays) - 1

    def close(self) -> tuple[list[View], dict[str, int], dict[str, np.ndarray]]:
        """Return the views by number, the alignment of each buffer in bytes, and the buffers."""
        views: list[View] = [[] for _ in self._arrays]
        places: dict[str, int] = {}
        buffers: dict[str, np.ndarray] = {}
        for group in self._groups(views):
            low, high = group[0][0], max(end for _, end, _ in group)
            name = f"a{len(buffers)}"
            arrays = [self._arrays[number] for _, _, number in group]
            places[name] = low % ALIGNMENT
            buffers[name] = self._buffer(arrays, low, high)
            for start, _, number in group:
                views[number] = _view(self._arrays[number], name, start - low)
        return views, places, buffers

    def _groups(self, views: list[View]) -> list[list[tuple[int, int, int]]]:
        """(first byte, end, number) of the arrays, those that overlap in one group."""
        spans = []
        for number, array in enumerate(self._arrays):
            if array.size:
                spans.append((*_span(array), number))
            else:
                views[number] = _view(array, None, 0)
        groups: list[list[tuple[int, int, int]]] = []
        end = 0
        for span in sorted(spans):
            if not groups or span[0] >= end:
                groups.append([])
            groups[-1].append(span)
            end = max(end, span[1])
        # in the order of the graph, so that names do not depend on addresses
        return sorted(groups, key=lambda group: min(number for _, _, number in group))

    def _buffer(self, arrays: list[np.ndarray], low: int, high: int) -> np.ndarray:
        """The memory of overlapping arrays, as one contiguous array."""
        whole = next((a for a in arrays if a.flags.c_contiguous and a.nbytes == high - low), None)
        if whole is None:  # strided: with the gaps, which belong to the same memory
            memory = (ctypes.c_uint8 * (high - low)).from_address(low)
            return np.ctypeslib.as_array(memory).copy()
        if whole.dtype not in PLAIN:
            whole = whole.reshape(-1).view(np.uint8)
        changes = self.copy and any(array.flags.writeable for array in arrays)
        return whole.copy() if changes else whole


def _span(array: np.ndarray) -> tuple[int, int]:
    """The address of the array's first byte in memory, and the one after its last."""
    start = end = array.__array_interface__["data"][0]
    for length, step in zip(array.shape, array.strides):
        start += min(0, (length - 1) * step)
        end += max(0, (length - 1) * step)
    return start, end + array.itemsize


def _view(array: np.ndarray, name: str | None, start: int) -> View:
    """The row of an array whose lowest byte is byte ``start`` of the buffer."""
    back = sum((n - 1) * step for n, step in zip(array.shape, array.strides) if step < 0)
    return [
        name,
        array.dtype.str,
        list(array.shape),
        None if array.flags.c_contiguous else list(array.strides),
        start - back if array.size else 0,
        array.flags.writeable,
    ]


def arrays_of(
    views: list[View], places: Mapping[str, int], buffers: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Make the arrays of the views. Each buffer is copied into new memory, once.

    ValueError, TypeError or KeyError if something is damaged.
    """
    memory: dict[str | None, np.ndarray] = {None: np.empty(0, np.uint8)}
    for name, place in places.items():
        data = np.ascontiguousarray(buffers[name]).reshape(-1).view(np.uint8)
        start = int(place) % ALIGNMENT
        memory[name] = aligned(data.size + start, np.uint8)[start:]
        memory[name][:] = data
    arrays = []
    for name, dtype, shape, strides, offset, writeable in views:
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise UnsafePickle(f"has an array of {kind}")
        if offset < 0:  # numpy does not check it
            raise UnsafePickle(f"has an array at byte {offset}")
        made: np.ndarray = np.ndarray(tuple(shape), kind, memory[name], offset, strides)
        made.flags.writeable = bool(writeable)
        arrays.append(made)
    return arrays


FORMAT = 2  # of a checkpoint; 1 was a tree of JSON
OBJECTS = "objects"  # the name of the pickle among the arrays
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
MOST_PARTS = 10_000  # of a key that is a tuple of tuples
MOST_POOL = 64  # words of a seed sequence; numpy has 4 unless it is told otherwise


class CannotEncode(Exception):
    """An object that no checkpoint can hold. The message begins with the path to it."""


class CannotDecode(Exception):
    """A graph that is damaged, of another version, or that names what it must not name."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A graph of objects: ``tree`` is plain JSON, ``arrays`` are contiguous, by name.

    The arrays include the pickle, as bytes. The tree says how the other arrays are made of them.
    """

    tree: dict[str, Any]
    arrays: dict[str, np.ndarray]


def encode(
    root: object,
    externals: Mapping[str, object] | None = None,
    own: Collection[str] = (),
    copy: bool = True,
) -> Encoded:
    """Encode all that ``root`` refers to. CannotEncode names the path to what cannot be saved.

    ``own``: modules, or packages, of the user's strategies. ``copy``: copy arrays that are
    writeable, so that the result does not change; others must not change either way.
    """
    file = io.BytesIO()
    writer = _Writer(file, externals or {}, tuple(own), copy)
    try:
        writer.dump(root)
    except _Refused as reason:
        place = _path_to(reason.found, root, writer.externals)
        raise CannotEncode(f"{place}: cannot save {reason.what}") from None
    except RecursionError as error:
        raise CannotEncode("the root: cannot save objects that are nested so deeply") from error
    except pickle.PicklingError as error:  # a class whose name leads to something else
        raise CannotEncode(f"the root: {error}") from error
    views, places, buffers = writer.buffers.close()
    tree = {"format": FORMAT, "views": views, "buffers": places}
    return Encoded(tree, {**buffers, OBJECTS: np.frombuffer(file.getvalue(), np.uint8)})


def decode(
    encoded: Encoded,
    externals: Mapping[str, object] | None = None,
    own: Collection[str] = (),
) -> object:
    """Return what ``encode`` got, in new memory. CannotDecode if it is damaged, if it names what it
    must not name, or an external that is missing.

    What ``restore`` of an object raises is passed on.
    """
    tree = encoded.tree
    if tree.get("format") != FORMAT:
        raise CannotDecode(f"has the format {tree.get('format')!r}; expected {FORMAT}")
    try:
        reader = _Reader(encoded, externals or {}, tuple(own))
        root = reader.load()
    except UnsafePickle as error:
        raise CannotDecode(str(error)) from error
    except DAMAGE as error:
        raise CannotDecode(f"is damaged ({type(error).__name__}: {error})") from error
    for made, state in reader.restorable:
        made.restore(state)
    return root


# ---------------------------------------------------------------------- from objects
class _Refused(Exception):
    """An object that cannot be saved."""

    def __init__(self, found: object, what: str) -> None:
        super().__init__(what)
        self.found, self.what = found, what


class _Writer(pickle.Pickler):
    """Writes one graph. pickle itself only writes the plain built-in types."""

    def __init__(
        self, file: io.BytesIO, externals: Mapping[str, object], own: tuple[str, ...], copy: bool
    ) -> None:
        super().__init__(file, protocol=5)
        self.externals = {id(found): name for name, found in externals.items()}
        self.own = own
        self.buffers = BufferTable(copy)

    def reducer_override(self, found: Any) -> Any:
        """Return how an object is made again, in the form of ``__reduce__``."""
        kind = type(found)
        name = self.externals.get(id(found))
        if name is not None:
            return (external, (name,), (found.state(),) if has_state(kind) else None)
        if kind in REDUCTIONS:
            return REDUCTIONS[kind](self, found)
        match found:
            case type() | FunctionType():
                if found not in CALLS.values() and (what := name_refusal(found, self.own)):
                    raise _Refused(found, what)
                return NotImplemented
            case Enum():
                named = found.name in kind.__members__
                return member, (kind, found.name if named else int(found.value))
            case np.generic():
                if refused(np.asarray(found)):
                    raise _Refused(found, f"a numpy value of {found.dtype}")
                return scalar, (found.dtype.str, found.tobytes())
            case np.dtype():
                if refused(np.empty(0, found)):
                    raise _Refused(found, f"the numpy type {found}")
                return dtype, (found.str,)
        return self._object(found, kind)

    def _object(self, found: Any, kind: Any) -> Any:
        if what := refusal(kind, self.own):
            raise _Refused(found, what)
        new: Any = copyreg.__newobj__  # type: ignore[attr-defined]  # stands for an opcode
        if has_state(kind):
            return new, (kind,), (found.state(),)
        if isinstance(found, msgspec.Struct):  # made at once from its fields, in their order
            return new, (kind, *msgspec.structs.asdict(found).values())
        state: Any = object.__getstate__(found)
        if isinstance(found, (tuple, frozenset)):
            return new, (kind, list(found)), state
        if isinstance(found, deque):
            return new, (kind, found.maxlen), state, iter(found)
        if isinstance(found, (list, set)):
            return new, (kind,), state, iter(found)
        if isinstance(found, dict):
            factory = (found.default_factory,) if isinstance(found, defaultdict) else ()
            return new, (kind, *factory), state, None, iter(found.items())
        return new, (kind,), state

    def _array(self, found: np.ndarray) -> Any:
        if what := refused(found):
            raise _Refused(found, what)
        return array, (self.buffers.add(found),)

    def _generator(self, found: np.random.Generator) -> Any:
        name = type(found.bit_generator).__name__
        if name not in BIT_GENERATORS:
            raise _Refused(found, f"a random generator of {name}")
        return generator, (found.bit_generator,)

    def _seed(self, found: np.random.SeedSequence) -> Any:
        entropy, key = found.entropy, tuple(map(int, found.spawn_key))
        if entropy is not None and type(entropy) is not int:
            entropy = [int(number) for number in np.ravel(entropy)]
        return seed, (entropy, key, found.pool_size, found.n_children_spawned)

    def _partial(self, found: partial[Any]) -> Any:
        if type(found.func) is not MethodType:
            raise _Refused(found, "a partial of something that is no method")
        return later, (found.func, found.args, found.keywords)

    def _method(self, found: MethodType) -> Any:
        of, name = found.__self__, found.__func__.__name__
        if method_of(of, name, self.own) is not found.__func__:
            raise _Refused(found, f"the method {name} of {type(of).__name__}")
        return method, (of, name)

    def _count(self, found: count[int]) -> Any:
        parts = re.fullmatch(r"count\((-?\d+)(?:, (-?\d+))?\)", repr(found))
        if parts is None:
            raise _Refused(found, repr(found))
        return count, tuple(map(int, parts.groups("1")))


REDUCTIONS: dict[type, Callable[[_Writer, Any], Any]] = {
    np.ndarray: _Writer._array,
    np.random.Generator: _Writer._generator,
    **{
        getattr(np.random, name): lambda writer, found: (
            bits,
            (type(found).__name__, found.seed_seq, found.state),
        )
        for name in BIT_GENERATORS
    },
    np.random.SeedSequence: _Writer._seed,
    partial: _Writer._partial,
    MethodType: _Writer._method,
    count: _Writer._count,
    ref: lambda writer, found: (weak, (found(),)),
    typed_array: lambda writer, found: (typed, (found.typecode, found.tobytes())),
    Fraction: lambda writer, found: (fraction, (found.numerator, found.denominator)),
    range: lambda writer, found: NotImplemented,  # as pickle saves it
    PosixPath: lambda writer, found: NotImplemented,
}


# ---------------------------------------------------------------------- to objects
class _Reader(RestrictedUnpickler):
    """Reads one graph. ``restorable``: objects that get a state, the inner ones first."""

    def __init__(
        self, encoded: Encoded, externals: Mapping[str, object], own: tuple[str, ...]
    ) -> None:
        tree = encoded.tree
        arrays = arrays_of(tree["views"], tree["buffers"], encoded.arrays)
        self._externals, self._own = externals, own
        self._new: dict[int, Any] = {}  # objects that may get attributes, by id
        self.restorable: list[tuple[Any, Any]] = []
        own_calls = {
            "array": arrays.__getitem__,
            "external": self._external,
            "method": self._method,
        }
        calls = CALLS | {f"{__name__}:{name}": call for name, call in own_calls.items()}
        super().__init__(encoded.arrays[OBJECTS].tobytes(), calls)

    def find_class(self, module: str, name: str) -> Any:
        return self.calls.get(f"{module}:{name}") or find_class(f"{module}:{name}", self._own)

    def _external(self, name: str) -> object:
        if _of(str, name) not in self._externals:
            raise UnsafePickle(f"needs {name!r}, which this process does not have")
        found = self._externals[name]
        if has_state(type(found)):
            self._new[id(found)] = found
        return found

    def _method(self, of: Any, name: str) -> MethodType:
        function = method_of(of, _of(str, name), self._own)
        if function is None:
            raise UnsafePickle(f"names the method {name} of {type(of).__name__}")
        return MethodType(function, of)

    def make(self, kind: Any, arguments: tuple[Any, ...]) -> Any:
        if not isinstance(kind, type):
            raise UnsafePickle(f"makes an object of a {type(kind).__name__}")
        if what := refusal(kind, self._own):
            raise UnsafePickle(f"has {what}")
        if issubclass(kind, msgspec.Struct):
            return kind(*arguments)
        base: Any = next((each for each in CONTAINERS if issubclass(kind, each)), object)
        if base in (tuple, frozenset):
            (items,) = arguments
            if base is frozenset:
                self._check_keys(_of(list, items))
            made = base.__new__(kind, _of(list, items))
        else:
            made = base.__new__(kind)
            if base is deque:
                deque.__init__(made, (), *arguments)
            elif base is defaultdict:
                made.default_factory = _factory(*arguments)
        self._new[id(made)] = made
        return made

    def fill(self, made: Any, state: Any) -> None:
        """Set the attributes, whatever the class does at an assignment (frozen dataclasses)."""
        if id(made) not in self._new:
            raise UnsafePickle(f"has a state for an object of {type(made).__name__}")
        if has_state(type(made)):
            (content,) = _of(tuple, state)
            self.restorable.append((made, content))
            return
        attributes, slots = state if isinstance(state, tuple) else (state, {})
        if attributes is not None:
            vars(made).update(_of(dict, attributes))
        for name, value in _of(dict, slots).items():
            slot = getattr_static(made, name)
            # not those of a built-in class, such as defaultdict's factory
            if not isinstance(slot, MemberDescriptorType) or not is_plain(
                slot.__objclass__, self._own
            ):
                raise AttributeError(name)
            slot.__set__(made, value)

    def extend(self, made: Any, items: list[Any]) -> None:
        adds: dict[type, Any] = {list: list.extend, deque: deque.extend, set: set.update}
        base = next((kind for kind in adds if isinstance(made, kind)), None)
        if base is None:
            raise UnsafePickle(f"has items for an object of {type(made).__name__}")
        if base is set:
            self._check_keys(items)
        adds[base](made, items)

    def put(self, made: Any, pairs: list[tuple[Any, Any]]) -> None:
        put = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
        self._check_keys([key for key, _ in pairs])
        for key, value in pairs:
            put(made, key, value)

    def _check_keys(self, keys: list[Any]) -> None:
        """Refuse keys of very many parts.

        The hash of nested tuples needs a recursion without a limit, and takes each part as often as
        it stands in a tuple.
        """
        for key in keys:
            parts, count = [key], 0
            while parts:
                part = parts.pop()
                if isinstance(part, tuple | frozenset):
                    parts += part
                elif isinstance(part, msgspec.Struct):
                    parts += msgspec.structs.astuple(part)
                count += 1
                if count > MOST_PARTS:
                    raise UnsafePickle("has a key of very many parts")

    def _frozenset(self) -> None:
        items = self.pop_mark()
        self._check_keys(items)
        self.stack.append(frozenset(items))

    dispatch: ClassVar[Any] = {
        **RestrictedUnpickler.dispatch,
        pickle.EMPTY_SET[0]: pickle._Unpickler.dispatch[pickle.EMPTY_SET[0]],
        pickle.FROZENSET[0]: _frozenset,
        pickle.ADDITEMS[0]: RestrictedUnpickler.dispatch[pickle.APPENDS[0]],
    }


def _factory(found: Any) -> Any:
    if found is not None and not isinstance(found, (type, MethodType, partial)):
        raise UnsafePickle("has a defaultdict of something that is no class")
    return found


# ---------------------------------------------------------------------- what a pickle may call
def _of(kind: type, found: Any) -> Any:
    """Check an argument: iterating over a value of another type may have no end."""
    if type(found) is not kind:
        raise UnsafePickle(f"has a {type(found).__name__} in place of a {kind.__name__}")
    return found


def array(number: int) -> NoReturn:
    """Stands for the array of this number. The reader has them."""
    raise UnsafePickle("has an array outside of a checkpoint")


def external(name: str) -> NoReturn:
    """Stands for an external of the reader."""
    raise UnsafePickle("has an external outside of a checkpoint")


def method(of: object, name: str) -> NoReturn:
    """Stands for a method of an object. The reader knows which it may have."""
    raise UnsafePickle("has a method outside of a checkpoint")


def later(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> partial[Any]:
    """Return a partial of a method."""
    if type(function) is not MethodType:
        raise UnsafePickle("has a partial of something that is no method")
    return partial(function, *_of(tuple, arguments), **_of(dict, keywords))


def member(kind: Any, value: str | int) -> Enum:
    """Return a member of an enumeration by its name, or flags by their number."""
    if not isinstance(kind, type) or not issubclass(kind, Enum):
        what = repr(kind) if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise UnsafePickle(f"has a member of {what}, which is no enumeration")
    return kind[value] if type(value) is str else kind(_of(int, value))


def dtype(text: str) -> np.dtype[Any]:
    """Return a numpy type."""
    found: np.dtype[Any] = np.dtype(_of(str, text))
    if found.hasobject:
        raise UnsafePickle(f"has a value of {found}")
    return found


def scalar(kind: str, data: bytes) -> Any:
    """Return a numpy value."""
    return np.frombuffer(data, dtype(kind), 1)[0]


def generator(found: Any) -> np.random.Generator:
    """Return a random generator."""
    if type(found).__name__ not in BIT_GENERATORS:
        raise UnsafePickle(f"has a random generator of {type(found).__name__}")
    return np.random.Generator(found)


def bits(name: str, seeds: np.random.SeedSequence, state: dict[str, Any]) -> Any:
    """Return the bit generator of a random generator."""
    if _of(str, name) not in BIT_GENERATORS:
        raise UnsafePickle(f"names the random generator {name}")
    made = getattr(np.random, name)(_of(np.random.SeedSequence, seeds))
    made.state = state
    return made


def seed(entropy: Any, spawn_key: Any, pool_size: int, spawned: int) -> np.random.SeedSequence:
    """Return a seed sequence."""
    if pool_size > MOST_POOL:
        raise UnsafePickle(f"has a seed with a pool of {pool_size} words")
    words = entropy if type(entropy) in (list, tuple) else [entropy or 0]
    for number in (*words, *_of(tuple, spawn_key)):
        _of(int, number)
    return np.random.SeedSequence(
        entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned
    )


def fraction(above: int, below: int) -> Fraction:
    """Return a fraction. Of a text it could take for ever."""
    return Fraction(_of(int, above), _of(int, below))


def typed(code: str, data: bytes) -> typed_array[Any]:
    """Return an ``array.array``."""
    return typed_array(_of(str, code), _of(bytes, data))


class _Gone:
    """The former object of a dead weak reference."""


def weak(found: Any) -> ref[Any]:
    """Return a weak reference."""
    return ref(_Gone() if found is None else found)


CALLS: dict[str, Any] = {
    f"{call.__module__}:{call.__name__}": call
    for call in (
        *(array, external, method, later, member, dtype, scalar, generator, bits, seed, weak),
        *(fraction, typed, count, range, PosixPath),
    )
}


# ---------------------------------------------------------------------- paths in errors
def _path_to(target: object, root: object, externals: Mapping[int, str]) -> str:
    """Return how the root leads to an object, as "strategy.model.hook".

    Keys of the outermost dict, and of a state, read like attributes. A path begins anew at an
    external.
    """
    paths = {id(root): ""}
    waiting = deque([root])
    alive = [root]  # so that no id is used twice
    while waiting:
        found = waiting.popleft()
        path = externals.get(id(found), paths[id(found)])
        if found is target:
            break
        for part_path, part in _parts(found, path, id(found) in externals):
            if id(part) not in paths:
                paths[id(part)] = part_path
                waiting.append(part)
                alive.append(part)
    return paths.get(id(target)) or "the root"


def _parts(found: Any, path: str, is_external: bool) -> Iterator[tuple[str, Any]]:
    """Yield the path and the object for all that an object refers to."""
    attributes: dict[str, Any] = {}
    if isinstance(found, partial):
        attributes = {"func": found.func, "args": found.args, **found.keywords}
    elif isinstance(found, MethodType):
        attributes = {"__self__": found.__self__}
    elif isinstance(found, ref):
        attributes = {"()": found()}
    elif has_state(type(found)):
        attributes = found.state()
    elif isinstance(found, msgspec.Struct):
        attributes = msgspec.structs.asdict(found)
    elif not (is_external or isinstance(found, (type, FunctionType, np.ndarray, np.generic))):
        state: Any = object.__getstate__(found)
        for part in state if isinstance(state, tuple) else (state,):
            attributes |= part or {}
        if isinstance(found, dict):
            for key, value in found.items():
                named = key if not path and isinstance(key, str) else f"{path}[{key!r}]"
                yield from ((named, each) for each in (key, value))
        elif isinstance(found, CONTAINERS):
            items: Any = found
            yield from ((f"{path}[{place!r}]", each) for place, each in enumerate(items))
        if isinstance(found, defaultdict):
            attributes["default_factory"] = found.default_factory
    yield from ((f"{path}.{name}".lstrip("."), each) for name, each in attributes.items())
