"""The only place where pickles are read, and it runs nothing that a file chooses.

Python's own unpickler imports and calls what a file names. Here a file can name only what its
reader lists, and can call only functions that the reader gives. Objects are made, filled and
extended by methods of the reader. Of the objects' own code only the hash of a key runs, and what a
Struct of the program does when it is made.

``read_arrays`` reads data sets that were published as pickles (CIFAR's Python form): numbers,
texts, bytes, lists, tuples, dicts and arrays of numbers.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgefl.errors import UserError

# What a damaged pickle can raise while it is read.
DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, EOFError),
    *(RecursionError, MemoryError, struct.error, pickle.UnpicklingError),
)
NUMBERS = re.compile(r"[<>|=]?[biuf][1248]")  # kinds of dtype
# Opcodes that call a class, or that no file here needs.
REFUSED = (
    *("INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"),
    *("DICT", "EMPTY_SET", "ADDITEMS", "FROZENSET", "NEXT_BUFFER", "READONLY_BUFFER"),
)


class UnsafePickle(ValueError):
    """The pickle has something that its reader does not allow. The message says what it does."""


def _refusing(opcode: str) -> Callable[[Any], None]:
    def refuse(reader: Any) -> None:
        raise UnsafePickle(f"has the opcode {opcode}")

    return refuse


class RestrictedUnpickler(pickle._Unpickler):
    """Reads one pickle. ``calls``: the functions that it may call, as "module:name".

    It is the pure Python form of pickle's reader, because its table of opcodes can be replaced.
    """

    def __init__(self, data: bytes, calls: Mapping[str, Callable[..., Any]], **options: Any):
        super().__init__(io.BytesIO(data), **options)
        self.calls = calls
        self._callable = {id(function) for function in calls.values()}
        self.stack: list[Any]  # of pickle's reader
        self.pop_mark: Callable[[], list[Any]]
        self.read: Callable[[int], bytes]

    # ------------------------------------------------------------------ what a reader decides
    def find_class(self, module: str, name: str) -> Any:
        """Return what the file names."""
        found = self.calls.get(f"{module}:{name}")
        if found is None:
            raise UnsafePickle(f"names {module}.{name}")
        return found

    def make(self, kind: Any, arguments: tuple[Any, ...]) -> Any:
        """Return a new object of a class."""
        raise UnsafePickle("makes an object")

    def fill(self, made: Any, state: Any) -> None:
        """Give an object its state."""
        raise UnsafePickle("has a state for something that is no array")

    def extend(self, made: Any, items: list[Any]) -> None:
        """Append items to a list."""
        if type(made) is not list:
            raise UnsafePickle("has items for something that is no list")
        made.extend(items)

    def put(self, made: Any, pairs: list[tuple[Any, Any]]) -> None:
        """Set items of a dict.

        Tuples are no keys: the hash of nested ones needs a recursion without a limit.
        """
        if type(made) is not dict or not all(type(key) in (str, bytes, int) for key, _ in pairs):
            raise UnsafePickle("has a dict with other keys than texts and numbers")
        made.update(pairs)

    # ------------------------------------------------------------------ opcodes
    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if id(function) not in self._callable or type(arguments) is not tuple:
            raise UnsafePickle(f"calls something of the type {type(function).__name__}")
        self.stack.append(function(*arguments))

    def _newobj(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        if type(arguments) is not tuple:  # one without an end
            raise UnsafePickle(f"makes an object of a {type(arguments).__name__}")
        self.stack.append(self.make(kind, arguments))

    def _build(self) -> None:
        state = self.stack.pop()
        self.fill(self.stack[-1], state)

    def _append(self) -> None:
        item = self.stack.pop()
        self.extend(self.stack[-1], [item])

    def _appends(self) -> None:
        items = self.pop_mark()
        self.extend(self.stack[-1], items)

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put(self.stack[-1], [(key, value)])

    def _setitems(self) -> None:
        items = self.pop_mark()
        self.put(self.stack[-1], list(zip(items[::2], items[1::2], strict=True)))

    def _bytearray(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.stack.append(bytearray(self.read(size)))  # only as many as there are

    dispatch: ClassVar[Any] = {
        **pickle._Unpickler.dispatch,
        **{getattr(pickle, name)[0]: _refusing(name) for name in REFUSED},
        pickle.REDUCE[0]: _reduce,
        pickle.NEWOBJ[0]: _newobj,
        pickle.BUILD[0]: _build,
        pickle.APPEND[0]: _append,
        pickle.APPENDS[0]: _appends,
        pickle.SETITEM[0]: _setitem,
        pickle.SETITEMS[0]: _setitems,
        pickle.BYTEARRAY8[0]: _bytearray,
    }


# ---------------------------------------------------------------------- published data sets
def read_arrays(path: Path) -> Any:
    """Return the content of a pickle file. UserError if it is damaged or has more than data.

    Keys that are byte strings of Python 2 become texts.
    """
    try:
        found = _ArrayReader(path.read_bytes()).load()
    except UnsafePickle as error:
        raise UserError(
            f"{path}: a pickle that contains more than numbers and texts (it {error}): not read"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UserError(f"{path}: a pickle made to break its reader: not read") from error
    except (OSError, *DAMAGE) as error:
        raise UserError(f"{path}: not a whole pickle of numpy arrays ({error})") from error
    return {_text(key): value for key, value in found.items()} if type(found) is dict else found


class _ArrayReader(RestrictedUnpickler):
    """Knows only numpy's arrays of numbers."""

    def __init__(self, data: bytes) -> None:
        # what is stored once can be copied many times: here, from a text and into an array
        self._left_bytes = 2 * len(data)
        calls: dict[str, Callable[..., Any]] = {
            "numpy.core.multiarray:_reconstruct": _empty,
            "numpy._core.multiarray:_reconstruct": _empty,
            "numpy.core.numeric:_frombuffer": _array,
            "numpy._core.numeric:_frombuffer": _array,
            "numpy:ndarray": _ndarray,
            "numpy:dtype": _dtype,
            "_codecs:encode": self._encoded,
        }
        super().__init__(data, calls, encoding="bytes")

    def fill(self, made: Any, state: Any) -> None:
        if type(made) is np.ndarray:
            _, shape, kind, fortran, content = state
            array = _array(content, kind, shape, "F" if fortran else "C")
            self._take(len(content))
            put: Any = made.__setstate__  # its type wants numpy's bool
            put((1, array.shape, array.dtype, bool(fortran), bytes(content)))
        elif isinstance(made, np.dtype) and (order := _text(state[1])) in ("<", ">", "|", "="):
            found: Any = made
            found.__setstate__((3, order, None, None, None, -1, -1, 0))
        else:
            super().fill(made, state)

    def _encoded(self, text: str, encoding: str) -> bytes:
        if encoding != "latin1":
            raise UnsafePickle("has a text in another encoding than latin1")
        self._take(len(text))
        return text.encode("latin-1")

    def _take(self, size: int) -> None:
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise UnsafePickle("has more bytes than its file")


def _text(found: Any) -> Any:
    return found.decode("latin-1") if isinstance(found, bytes) else found


def _empty(*ignored: Any) -> np.ndarray:
    """An array whose content follows."""
    return np.empty(0, np.uint8)


def _ndarray(*ignored: Any) -> None:
    """Only named, as numpy's class of arrays."""
    raise UnsafePickle("calls numpy.ndarray")


def _dtype(text: Any, *ignored: Any) -> np.dtype[Any]:
    if not isinstance(text, (str, bytes)) or not NUMBERS.fullmatch(_text(text)):
        raise UnsafePickle("has an array of something other than numbers")
    found: np.dtype[Any] = np.dtype(_text(text), copy=True)  # its byte order is set later
    return found


def _array(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(kind, np.dtype) or not isinstance(content, (bytes, bytearray)):
        raise UnsafePickle("has an array of objects")
    return np.frombuffer(content, kind).reshape(shape, order="F" if order == "F" else "C")
