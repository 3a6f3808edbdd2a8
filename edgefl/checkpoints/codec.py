"""Encode a graph of objects as JSON and arrays, and decode it, without pickle.

Objects stay shared as they were, also in cycles. What the codec knows: None, bool, int, float, str,
bytes, bytearray, range, list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict,
Counter, Fraction, paths, ``array.array``, ``itertools.count``, ``functools.partial``, weak
references; numpy's arrays, values, dtypes, generators and seed sequences; enumerations; objects of
allowed classes (``allowed.MODULES``, the user's own strategies) with their attributes and slots;
these classes by name; methods that ``allowed`` names or that the user's classes define.

- An object that defines ``state()`` and ``restore(state)`` is saved as its state. It is made
  without a call of ``__init__``, then gets the state.
- ``externals`` are objects that the process makes anew: they are saved as their name. If an
  external defines ``state()`` and ``restore(state)``, its state is saved, and the new object gets
  it.
- Arrays that overlap in memory still do afterwards. Each piece of memory is stored once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgefl.checkpoints.decoder import Decoder
from edgefl.checkpoints.encoded import CannotDecode, CannotEncode, Encoded
from edgefl.checkpoints.encoder import Encoder

# what a damaged tree may raise while objects are made of it
DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError),
)
__all__ = ["CannotDecode", "CannotEncode", "Encoded", "decode", "encode"]


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
    return Encoder(externals or {}, own, copy).encode(root)


def decode(
    encoded: Encoded,
    externals: Mapping[str, object] | None = None,
    own: Collection[str] = (),
) -> object:
    """Return what ``encode`` got, in new memory. CannotDecode if the tree is damaged, if it names
    what it must not name, or an external that is missing.

    What ``restore`` of an object raises is passed on.
    """
    try:
        decoder = Decoder(encoded, externals or {}, own)
        root = decoder.build()
    except DAMAGE as error:
        raise CannotDecode(f"is damaged ({type(error).__name__}: {error})") from error
    decoder.restore()
    return root
