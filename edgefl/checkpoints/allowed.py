"""Classes that a checkpoint may name, and the methods of them that it may keep to call later.

Who changes a checkpoint chooses the objects of the resumed run. So the classes are those of a short
list of modules, in which no class starts a process or opens a file or a socket, and those of the
modules of the config's own strategies; a few of the standard library. No function can be named but
those of the codec, and a method only if the run itself keeps it. A name is only looked up where it
is defined: a damaged or foreign file can neither import another module nor reach a class through
the imports of an allowed one.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from fractions import Fraction
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

from msgspec import Struct

from edgefl.errors import listed
from edgefl.pickles import UnsafePickle

# Modules and packages of the state of a run. They are imported if a checkpoint names them.
MODULES = (
    "edgefl.actor",
    "edgefl.by_name",
    "edgefl.compression",
    "edgefl.config",
    "edgefl.coordinator",
    "edgefl.edges.edge",
    "edgefl.edges.training",
    "edgefl.exchange",
    "edgefl.clocks.setup.network",
    "edgefl.clocks.virtual.host",
    "edgefl.clocks.virtual.pool.executor",
    "edgefl.clocks.wall.coordinator.run_logic",
    "edgefl.clocks.wall.coordinator.thread_messages",
    "edgefl.jobs",
    "edgefl.protocol",
    "edgefl.record.counters",
    "edgefl.record.energy",
    "edgefl.record.host_table",
    "edgefl.strategies",
    "edgefl.streams",
    "edgefl.vector_store",
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
    "edgefl.exchange.fault_lives:FaultLives": {"_in_life"},
    "edgefl.clocks.setup.network:Builder": {"supply"},
    "edgefl.clocks.virtual.host:VirtualHost": {
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


def is_allowed(module: str, own: Collection[str]) -> bool:
    """Whether checkpoints may name the classes that ``module`` defines.

    ``own``: modules of the user's strategies; a package stands for all its modules.
    """
    return any(f"{module}.".startswith(f"{root}.") for root in (*MODULES, *own))


def is_plain(kind: type, own: Collection[str]) -> bool:
    """Whether a checkpoint may fill the attributes and slots that a class defines."""
    return is_allowed(kind.__module__, own) or name_of(kind) in BASES


def has_state(kind: type) -> bool:
    """Whether the class defines ``state()`` and ``restore(state)``."""
    return all(callable(getattr(kind, name, None)) for name in ("state", "restore"))


@cache
def refusal(kind: type, own: tuple[str, ...]) -> str:
    """Why objects of this class cannot be saved, or ""."""
    if kind in CONTAINERS:
        return ""
    if not is_allowed(kind.__module__, own):
        return (
            f"an object of {kind.__module__}.{kind.__qualname__}, which is no class of"
            f" {places(own)}"
        )
    if "<locals>" in kind.__qualname__:
        return f"an object of {kind.__qualname__}, a class that a function defines"
    if issubclass(kind, Struct) and not is_allowed(kind.__module__, ()):
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
    return (
        "" if is_allowed(found.__module__, own) else f"{name}, which is no class of {places(own)}"
    )


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
    if not is_allowed(module, own):
        raise UnsafePickle(f"names {name}; expected a class of {places(own)}")
    if is_allowed(module, ()):
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
