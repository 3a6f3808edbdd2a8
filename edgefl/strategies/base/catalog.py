"""Strategies by name. The folder is the registry: k_async.py is "k-async".

``my_pkg.my_algo:MyAlgo`` and ``path/to/my_algo.py:MyAlgo`` are names, too.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from edgefl.catalog import FORMS, OWN_FILE, STRATEGIES, VARIANTS, load_dotted
from edgefl.entry_points import entries
from edgefl.errors import UserError, nearest
from edgefl.snake_case import snake
from edgefl.strategies.base.events_and_decisions import Event
from edgefl.strategies.base.strategy import LocalRule, Strategy, StrategyOptions
from edgefl.strategies.selection.selector import Selector

ROOM = Path(__file__).resolve().parents[1]


def strategy_names() -> list[str]:
    """Return the name of every strategy in the folder, sorted."""
    stems = (path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")
    return sorted([*(stem.replace("_", "-") for stem in stems), *VARIANTS])


def file_stem(name: str) -> str:
    """Return the file name of a strategy, without its suffix."""
    return VARIANTS.get(name, name).replace("-", "_")


def own_modules(kind: type[Strategy], selector: type[Selector] = Selector) -> tuple[str, ...]:
    """Return the modules and packages of the user that define a strategy, its rule and its
    selector, sorted.

    A package stands for all its modules, and a file for the modules next to it that are loaded.
    () for the catalog's own strategies.
    """
    kinds = [
        *(each for each in kind.__mro__ if issubclass(each, Strategy)),
        *(each for each in kind.rule.__mro__ if issubclass(each, LocalRule)),
        *(each for each in selector.__mro__ if issubclass(each, Selector)),
    ]
    found = {each.__module__.partition(".")[0] for each in kinds} - {"edgefl"}
    folders = {_folder(name) for name in found if name.startswith(OWN_FILE)}
    found |= {name for name in tuple(sys.modules) if "." not in name and _folder(name) in folders}
    return tuple(sorted(found))


def misnamed(kind: type[Strategy]) -> list[str]:
    """Return a line for each public name in a user's strategy or its rule that edgefl never reads,
    that its file does not use, and that is close to a name that edgefl reads.
    """
    return [line for each in (kind, kind.rule) for line in _misnamed(each)]


def _misnamed(kind: type) -> list[str]:
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] != "edgefl"]
    known = {
        name
        for each in kind.__mro__
        if each not in own or each is object
        for name in (*vars(each), *getattr(each, "__annotations__", {}))
    }
    # on_arrived, update_arrived and on_update_arrived are near arrived
    near = {name: name for name in known if not name.startswith("_")}
    near |= {f"on_{name}": name for name in list(near)} | {
        f"{prefix}{snake(event.__name__)}": name
        for event in Event.__args__
        for prefix in ("", "on_", "handle_")
        for name in [snake(event.__name__).rpartition("_")[2]]
        if name in near
    }
    lines = []
    for each in own:
        source, module = "", sys.modules.get(each.__module__)
        with suppress(OSError, TypeError):  # no file, for example in an interactive session
            source = "" if module is None else inspect.getsource(module)
        for name in vars(each):
            used = re.search(rf"""\.{name}\b|["']{name}["']""", source)
            if name.startswith("_") or name in known or used:
                continue
            close = get_close_matches(name, near, n=1, cutoff=0.8)
            if close:
                lines.append(
                    f"{each.__name__}.{name} has no effect: nothing calls or reads it (nearest:"
                    f" {near[close[0]]!r})"
                )
    return lines


def _folder(module: str) -> Path | None:
    """The folder of a module's file; None if it has no file or is a package."""
    file = Path(getattr(sys.modules[module], "__file__", None) or "__init__.py")
    return None if file.stem == "__init__" else file.parent


def load(name: str, base: Path | None = None) -> type[Strategy]:
    """Return the class of a catalog name, a dotted name or a path. UserError if there is none.

    ``base``: the folder that a relative path starts from.
    """
    if ":" in name:
        loaded: type[Strategy] = load_dotted(name, base)
        _check_class(f"strategy {name!r}", loaded, Strategy)
        _check_class(f"strategy {name!r}: Options", loaded.Options, StrategyOptions)
        _check_class(f"strategy {name!r}: rule", loaded.rule, LocalRule)
        return loaded
    if name.endswith(".py"):
        raise UserError(f"strategy {name!r}: the class is missing: expected {name + ':MyAlgo'!r}")
    if name not in strategy_names():
        near = nearest(name, [*strategy_names(), *entries(STRATEGIES)])
        raise UserError(f"unknown strategy {name!r}{near}; one of your own: {FORMS}")
    module = importlib.import_module(f"edgefl.strategies.{file_stem(name)}")
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    found = {each.__name__.lower(): each for each in classes if issubclass(each, Strategy)}
    if (own := name.replace("-", "")) not in found:
        raise TypeError(
            f"edgefl/strategies/{file_stem(name)}.py defines no {name}: expected a subclass of"
            " Strategy with this name; shared code belongs in edgefl/strategies/base"
        )
    return found[own]


def _check_class(what: str, found: Any, kind: type) -> None:
    """UserError unless ``found`` is a subclass of ``kind``."""
    if not (isinstance(found, type) and issubclass(found, kind)):
        named = (
            f"the class {found.__name__}"
            if isinstance(found, type)
            else f"a {type(found).__name__}"
        )
        raise UserError(f"{what}: expected a subclass of edgefl.api.{kind.__name__}, found {named}")
