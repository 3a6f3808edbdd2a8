"""A safe reader of pickles that contain only plain data and numpy arrays.

Some data sets (CIFAR's Python form) were published as pickles. Python's own unpickler calls any
function that a file names. This reader interprets the opcodes itself and builds no object by name:
it knows only the few names in MEANINGS, for arrays, types and encoded bytes. The results are
numbers, texts, bytes, lists, tuples, dicts and arrays of numbers.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgefl.errors import UserError

NUMBERS = re.compile(r"[<>|=]?[biuf][1248]")  # kinds of dtype
MEANINGS = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy.core.numeric _frombuffer": "buffer",
    "numpy._core.numeric _frombuffer": "buffer",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}


class UnsafePickle(ValueError):
    """The pickle contains something other than data."""


class _Name(str):
    """A value of MEANINGS, as a type of its own: no text in the file has this type."""


class _Array:
    """An array whose content follows later."""

    value: np.ndarray | None = None


class _Dtype:
    def __init__(self, text: str) -> None:
        self.text = text


def read(path: Path) -> Any:
    """Return the content of a pickle file. UserError if it is damaged or has more than data."""
    try:
        with open(path, "rb") as file:
            return _finished(_Machine(path.stat().st_size).run(file))
    except UnsafePickle as error:
        raise UserError(
            f"{path}: a pickle that contains more than numbers and texts ({error}): not read"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UserError(f"{path}: a pickle made to break its reader: not read") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not a whole pickle of numpy arrays ({error})") from error


def _finished(value: Any) -> Any:
    """Replace the containers of arrays by the arrays, at the top level and in a dict there.

    Keys that are byte strings of Python 2 become texts.
    """
    if isinstance(value, dict):
        return {_text(key): _array_of(inner) for key, inner in value.items()}
    return _array_of(value)


def _array_of(value: Any) -> Any:
    if isinstance(value, _Array) and value.value is None:
        raise ValueError("an array without content")
    return value.value if isinstance(value, _Array) else value


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


class _Machine:
    """The stack machine of pickle, with numpy's arrays as its only objects."""

    def __init__(self, most_bytes: int) -> None:
        # a text that is stored once can be encoded to bytes many times
        self.left_bytes = most_bytes
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: BinaryIO) -> Any:
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                return self.stack.pop()
            self._step(opcode.name, argument)
        raise ValueError("no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in ("PROTO", "FRAME"):
            return
        if name in CONSTANTS:
            self.stack.append(CONSTANTS[name]())
        elif name in VALUES:
            self.stack.append(argument)
        elif name in BYTE_STRINGS:
            self.stack.append(argument.encode("latin-1"))
        elif "PUT" in name or name == "MEMOIZE":
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "GLOBAL":
            self.stack.append(_meaning(argument))
        else:
            getattr(self, f"_{name.lower()}", self._unknown(name))()

    def _unknown(self, name: str) -> Any:
        def refuse() -> None:
            raise UnsafePickle(f"opcode {name}")

        return refuse

    def _marked(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _tail(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        if len(items) < count:
            raise ValueError("an empty stack")
        del self.stack[-count:]
        return items

    def _tuple(self) -> None:
        self.stack.append(tuple(self._marked()))

    def _tuple1(self) -> None:
        self.stack.append(tuple(self._tail(1)))

    def _tuple2(self) -> None:
        self.stack.append(tuple(self._tail(2)))

    def _tuple3(self) -> None:
        self.stack.append(tuple(self._tail(3)))

    def _append(self) -> None:
        (item,) = self._tail(1)
        self.stack[-1].append(item)

    def _appends(self) -> None:
        items = self._marked()
        self.stack[-1].extend(items)

    def _setitem(self) -> None:
        key, value = self._tail(2)
        self.stack[-1][_key(key)] = value

    def _setitems(self) -> None:
        items = self._marked()
        self.stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))

    def _stack_global(self) -> None:
        module, attribute = self._tail(2)
        self.stack.append(_meaning(f"{module} {attribute}"))

    def _reduce(self) -> None:
        name, arguments = self._tail(2)
        if not isinstance(name, _Name) or name == "ndarray":
            raise UnsafePickle(f"a call of {_shown(name)}")
        made = CALLS[name](*arguments)
        self.left_bytes -= len(made) if isinstance(made, bytes) else 0
        if self.left_bytes < 0:
            raise UnsafePickle("more bytes than the file has")
        self.stack.append(made)

    def _build(self) -> None:
        (state,) = self._tail(1)
        target = self.stack[-1]
        if isinstance(target, _Array):
            _, shape, kind, fortran, content = state
            target.value = _array(content, kind, shape, "F" if fortran else "C")
        elif isinstance(target, _Dtype) and _text(state[1]) in ("<", ">", "|", "="):
            target.text = _text(state[1]) + target.text.lstrip("<>|=")
        else:
            raise UnsafePickle("a state for something that is no array")


def _shown(value: Any) -> str:
    """Format a value for an error. Lists are not shown: nested ones can grow exponentially."""
    return repr(value[:60]) if isinstance(value, (str, bytes)) else f"a {type(value).__name__}"


def _key(key: Any) -> Any:
    """Check a key of a dict. Tuples are refused: their hash needs a recursion without a limit."""
    if not isinstance(key, (str, bytes, int)):
        raise UnsafePickle(f"a {type(key).__name__} as a key")
    return key


def _meaning(name: str) -> _Name:
    if name not in MEANINGS:
        raise UnsafePickle(f"the name {name.replace(' ', '.')}")
    return _Name(MEANINGS[name])


def _dtype(text: Any, *ignored: Any) -> _Dtype:
    if not isinstance(text, (str, bytes)) or not NUMBERS.fullmatch(_text(text)):
        raise UnsafePickle(f"an array of {_shown(text)}")
    return _Dtype(_text(text))


def _array(content: Any, kind: Any, shape: tuple[int, ...], order: Any) -> np.ndarray:
    if not isinstance(kind, _Dtype) or not isinstance(content, (bytes, bytearray)):
        raise UnsafePickle("an array of objects")
    return np.frombuffer(content, dtype=np.dtype(kind.text)).reshape(
        shape, order="F" if order == "F" else "C"
    )


def _buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.value = _array(content, kind, shape, order)
    return made


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise UnsafePickle(f"a text in {_shown(encoding)}")
    return text.encode("latin-1")


CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
VALUES = {
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "FLOAT",
    "BINFLOAT",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
    "BYTEARRAY8",
}
BYTE_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # of Python 2
CALLS: dict[str, Callable[..., Any]] = {
    "array": lambda *ignored: _Array(),
    "dtype": _dtype,
    "encode": _encoded,
    "buffer": _buffer,
}
