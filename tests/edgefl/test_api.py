"""The public interfaces edgefl.api and emulator.

Their names exist and are complete, import nothing heavy, and are all that the examples need.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from paths import EXAMPLES, ROOT

import emulator
from edgefl import api
from edgefl.strategies.base import events_and_decisions, strategy
from edgefl.strategies.base.catalog import strategy_names

APIS = {"edgefl.api": api, "emulator": emulator}
BASE = ROOT / "edgefl" / "strategies" / "base"


def public_classes(file: Path) -> dict[str, type]:
    """Map name to class, for classes defined in edgefl/strategies/base."""
    module = importlib.import_module(f"edgefl.strategies.base.{file.stem}")
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def imported(file: Path) -> set[str]:
    """The modules that a file imports from edgefl or emulator."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name for name in found if name.partition(".")[0] in ("edgefl", "emulator")}


@pytest.mark.parametrize("name", APIS)
def test_every_name_exists_once(name: str) -> None:
    names = APIS[name].__all__
    assert len(names) == len(set(names))
    assert [each for each in names if not hasattr(APIS[name], each)] == []
    assert set(names) <= set(dir(APIS[name]))


def test_edgefl_api_imports_nothing_that_it_does_not_list() -> None:
    # pytest may rewrite the module, as that of a plug-in, and adds names with an "@"
    own = {name for name in vars(api) if not name.startswith(("_", "@"))} - {"annotations"}
    assert own == set(api.__all__)


@pytest.mark.parametrize("file", sorted(BASE.glob("[!_]*.py")), ids=lambda file: file.stem)
def test_edgefl_api_has_every_base_class_event_and_decision(file: Path) -> None:
    assert (
        public_classes(file).items() <= {name: getattr(api, name) for name in api.__all__}.items()
    )


def test_edgefl_api_has_what_strategies_are_made_of() -> None:
    """A shipped strategy could be a user's own file: the interface has all that it imports.

    Exceptions: other algorithms, and the package of the dissemination strategies.
    """
    missing = {}
    for name in strategy_names():
        path = ROOT / f"{api.load_strategy(name).__module__.replace('.', '/')}.py"
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                shared = node.module.startswith(("edgefl.strategies.base", "edgefl.vector"))
                if shared or node.module in ("edgefl.jobs", "edgefl.streams", "edgefl.errors"):
                    gone = {alias.name for alias in node.names} - set(api.__all__)
                    missing |= {f"{name}: {node.module}": gone} if gone else {}
    assert missing == {}


def test_events_decisions_and_rules_are_the_same_objects() -> None:
    assert (api.Event, api.Decision) == (
        events_and_decisions.Event,
        events_and_decisions.Decision,
    )
    assert (api.Strategy, api.LocalRule) == (strategy.Strategy, strategy.LocalRule)


def test_a_strategy_by_name_can_be_derived_from() -> None:
    base = api.load_strategy("fedasync")
    assert issubclass(base, api.Asynchronous) and issubclass(type("Mine", (base,), {}), base)


def test_emulator_says_where_each_name_comes_from() -> None:
    """Three lists agree: ``__all__``, the table that loads a name, and the imports for type
    checkers.
    """
    tree = ast.parse((ROOT / "emulator" / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == emulator._MODULE_OF and set(declared) == set(emulator.__all__)
    for name, module in declared.items():
        assert getattr(emulator, name) is getattr(importlib.import_module(str(module)), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'emulator' has no attribute 'Links'"):
        emulator.Links  # noqa: B018  # the access itself fails


@pytest.mark.processes
@pytest.mark.parametrize(
    ("code", "banned"),
    [
        ("import edgefl.api", "torch zmq matplotlib"),
        ("from emulator import *", "torch zmq matplotlib edgefl pydantic typer"),
        ("import emulator.units", "numpy torch zmq matplotlib"),
    ],
)
def test_importing_brings_in_nothing_heavy(code: str, banned: str) -> None:
    say = f"{code}\nimport sys\nprint(*sorted(set({banned.split()}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", say], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples_import_the_interface_alone(file: Path) -> None:
    assert imported(file) <= {"edgefl", *APIS}
