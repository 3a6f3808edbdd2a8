"""Classes and functions that a checkpoint may name.

Those of edgefl, of the emulator, and of the modules of the config's own strategies; a few of the
standard library. A name is only looked up where it is defined. So a damaged or foreign file can
neither import another module nor reach a class through the imports of an allowed one.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from fractions import Fraction
from importlib import import_module
from types import FunctionType
from typing import Any

from edgefl.checkpoints.encoded import CannotDecode
from edgefl.errors import listed

ROOTS = ("edgefl", "emulator")  # their modules are imported if a checkpoint names them
STANDARD: dict[str, type] = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (
        *(bool, bytearray, bytes, dict, float, frozenset, int, list, object, set, str, tuple),
        *(Counter, Fraction, OrderedDict, defaultdict, deque),
    )
}


def name_of(found: Any) -> str:
    """Return "module:qualified.name" of a class or a function."""
    return f"{found.__module__}:{found.__qualname__}"


def is_allowed(module: str, own: Collection[str]) -> bool:
    """Whether checkpoints may name what ``module`` defines.

    ``own``: modules of the user's strategies; a package stands for all its modules.
    """
    return any(f"{module}.".startswith(f"{root}.") for root in (*ROOTS, *own))


def find_class(name: str, own: Collection[str]) -> type:
    """Return the class of a name. CannotDecode if a checkpoint must not name it."""
    found = STANDARD.get(name) or _find(name, own)
    if not isinstance(found, type) or name_of(found) != name:
        raise CannotDecode(f"names {name}, which is no class of {_where(own)}")
    return found


def find_function(name: str, own: Collection[str]) -> FunctionType:
    """Return the function of a name. CannotDecode if a checkpoint must not name it."""
    found = _find(name, own)
    if not isinstance(found, FunctionType) or name_of(found) != name:
        raise CannotDecode(f"names {name}, which is no function of {_where(own)}")
    return found


def _find(name: str, own: Collection[str]) -> Any:
    module, _, path = name.partition(":")
    if not is_allowed(module, own):
        raise CannotDecode(f"names {name}; expected a name of {_where(own)}")
    if is_allowed(module, ()):
        try:
            import_module(module)
        except ImportError as error:
            raise CannotDecode(f"names {name}: {error}") from error
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        # never through an instance or another module
        if found is not sys.modules.get(module) and not isinstance(found, type):
            return None
        found = vars(found).get(part) if found is not None else None
    return found.__func__ if isinstance(found, staticmethod) else found


def _where(own: Collection[str]) -> str:
    return listed((*ROOTS, *own), 4)
