"""The architecture as a test: layers, no import cycles, one name for one concept."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest
from source_tree import Source, source_files

# From the lowest room to the highest. A file imports only from its own room and lower ones. A room
# is a folder or a file; a module belongs to the longest entry that fits.
EMULATOR = (
    "errors plain_text values ranges units quantiles agenda clock host capacity delay compute"
    " faults availability links tdma fidelity traces profile_table profiles energy calibrate proxy"
    " kernel lab pytest_plugin commands cli"
)
EDGEFL = (
    "exit_status errors archives disk by_name snake_case pickles streams vectors"
    " vector_terms vector_store checkpoints jobs catalog"
    " protocol compression strategies.base actor"
    " strategies.dissemination strategies config record.files compiled.network data compiled models"
    " edges flower record coordinator results reports exports loading html_report profile"
    " hosts.clock_names"
    " hosts.ctrl_c hosts.fault_lives hosts.ipc hosts.network_addresses"
    " hosts.process_messages hosts.processes hosts.room hosts.setup hosts.exchange hosts.wall.keys"
    " hosts.wall.memory_growth hosts.wall.connections"
    " hosts.wall.wire hosts.wall.discovery hosts.wall.array_file hosts.wall.mailbox"
    " hosts.wall.sleep_watch hosts.wall.system"
    " hosts.workers hosts.virtual.pool hosts.virtual hosts.trial"
    " hosts.wall.edge hosts.wall.coordinator hosts.wall.fleet hosts.wall.speed_check"
    " hosts.wall.remote_edges hosts.wall.answers hosts.wall.run_processes hosts.wall.launcher"
    " launch.host launch.inventory launch.placement launch.connections launch live sweep"
    " commands api cli"
)
ORDER = [
    *(f"emulator.{room}" for room in EMULATOR.split()),
    "emulator",  # the public names
    *(f"edgefl.{room}" for room in EDGEFL.split()),
]
# Imports inside functions that may go up, with the reason.
LAZY_UPWARD = {
    ("edgefl.jobs", "edgefl.models"): "a worker that has torch does what a job only describes",
}
# Public class names that may stand in several files of a package, with the reason.
SHARED_CLASS_NAMES = {"Options": "how the catalogs find what a plug-in takes"}
# File names that may stand in several folders: the folder says the difference.
SHARED_FILE_NAMES = {
    "__init__",
    "calibrate",
    "catalog",
    "cli",
    "codec",
    "device",
    "devices",
    "edge",
    "energy",
    "errors",
    "faults",
    "files",
    "figures",
    "host",
    "jobs",
    "keys",
    "labels",
    "loss",
    "network",
    "options",
    "pacing",
    "probe",
    "profiles",
    "progress",
    "proxy",
    "record",
    "report",
    "run",
    "section",
    "slotted",
    "spread",
    "summary",
    "table",
    "timeline",
    "timetable",
    "transfer",
    "transfers",
}
# Names that are no longer used -> the current name.
RETIRED_NAMES = {
    "Allow": "Grant",
    "Permit": "Grant",
    "Crew": "WorkerPool",
    "Hands": "WorkerBackend",
    "Material": "EdgeData",
    "Onward": "ConcurrentRefresh",
    "Sketch": "DeferredRun",
    "Workbench": "Executor",
    "crew": "scheduler",
    "hands": "backend",
    "onward": "refresh",
    "sketch": "deferred run",
    "workbench": "executor",
}


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return source_files("edgefl", "emulator")


def room_of(module: str) -> int | None:
    """The position of a module's room in ORDER; None if no entry fits."""
    fitting = [room for room in ORDER if f"{module}.".startswith(f"{room}.")]
    return ORDER.index(max(fitting, key=len)) if fitting else None


def targets(source: Source, modules: set[str], lazy: bool) -> dict[str, int]:
    """Map each imported module to its first line; ``lazy``: with imports inside functions."""
    found: dict[str, int] = {}
    for imported in source.imports:
        # "from a import b" needs a.b if that is a module, else a.
        name = next((name for name in reversed(imported.names) if name in modules), None)
        if name and name != source.module and (lazy or not imported.in_function):
            found.setdefault(name, imported.line)
    return found


def import_cycles(sources: list[Source]) -> list[str]:
    """Each import cycle once, as "a -> b -> a". Imports for types count too."""
    modules = {source.module for source in sources}
    graph = {source.module: sorted(targets(source, modules, lazy=False)) for source in sources}
    cycles: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            cycles.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for target in graph[module]:
                visit(target, [*path, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return cycles


def upward_imports(sources: list[Source]) -> list[str]:
    """Imports from a higher room, and modules that belong to no room."""
    modules = {source.module for source in sources}
    found = []
    for source in sources:
        own = room_of(source.module)
        if own is None:
            if source.module != "edgefl" and not source.path.endswith("__init__.py"):
                found.append(f"{source.path}: no room of ORDER holds it")
            continue
        for target, line in targets(source, modules, lazy=True).items():
            other = room_of(target)
            allowed = any(
                room_of(low) == own and f"{target}.".startswith(f"{high}.")
                for low, high in LAZY_UPWARD
            )
            if other is not None and other > own and not allowed:
                found.append(f"{source.path}:{line} {ORDER[own]} must not import {target}")
    return found


def test_no_import_cycle(sources: list[Source]) -> None:
    cycles = import_cycles(sources)
    assert not cycles, "\n" + "\n".join(cycles)


def test_no_room_imports_from_a_higher_one(sources: list[Source]) -> None:
    found = upward_imports(sources)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("package", ["edgefl", "emulator"])
def test_a_public_class_name_is_defined_once(sources: list[Source], package: str) -> None:
    places = defaultdict(list)
    for source in sources:
        if source.within(f"{package}/"):
            for node in source.classes:
                places[node.name].append(f"{source.path}:{node.lineno}")
    repeated = {
        name: where
        for name, where in places.items()
        if len(where) > 1 and not name.startswith("_") and name not in SHARED_CLASS_NAMES
    }
    assert not repeated


def test_a_file_name_repeats_only_where_its_folder_says_the_difference(
    sources: list[Source],
) -> None:
    places = defaultdict(list)
    for source in sources:
        places[source.path.rpartition("/")[2].removesuffix(".py")].append(source.path)
    repeated = {name for name, where in places.items() if len(where) > 1}
    assert repeated <= SHARED_FILE_NAMES, {name: places[name] for name in repeated}
    assert repeated >= SHARED_FILE_NAMES, "an entry that is not needed any more"


def identifiers(source: Source) -> Iterator[tuple[int, str]]:
    """(line, name) of all names: classes, functions, variables, arguments, attributes."""
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name


def test_retired_names_do_not_come_back(sources: list[Source]) -> None:
    found = [
        f"{source.path}:{line} {name}: call it {RETIRED_NAMES[name.lstrip('_')]}"
        for source in sources
        for line, name in identifiers(source)
        if name.lstrip("_") in RETIRED_NAMES
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_folder_of_the_strategies_holds_strategies_alone() -> None:
    files = [s for s in source_files("edgefl/strategies") if s.path.count("/") == 2]
    without = [s.path for s in files if not s.classes and not s.path.endswith("__init__.py")]
    assert not without


def test_import_cycles_are_found() -> None:
    texts = {
        "edgefl/__init__.py": "",
        "edgefl/a.py": "from edgefl.b import x\n",
        "edgefl/b.py": "from . import c\n",
        "edgefl/c.py": "import edgefl.a\n",
    }
    circle = ["edgefl.a -> edgefl.b -> edgefl.c -> edgefl.a"]
    assert import_cycles([Source(*item) for item in texts.items()]) == circle
    typing = texts | {"edgefl/c.py": "if TYPE_CHECKING:\n    import edgefl.a\n"}
    assert import_cycles([Source(*item) for item in typing.items()]) == circle
    lazy = texts | {"edgefl/c.py": "def f() -> None:\n    import edgefl.a\n"}
    assert import_cycles([Source(*item) for item in lazy.items()]) == []


def test_upward_imports_are_found() -> None:
    texts = {
        "emulator/units.py": "def f() -> None:\n    import emulator.cli\n",
        "emulator/cli.py": "import emulator.units\n",
        "edgefl/strategies/base/strategy.py": "import edgefl.strategies.fedavg\n",
        "edgefl/strategies/fedavg.py": "import edgefl.strategies.base.strategy\n",
        "edgefl/nowhere.py": "",
    }
    assert upward_imports([Source(*item) for item in texts.items()]) == [
        "emulator/units.py:2 emulator.units must not import emulator.cli",
        "edgefl/strategies/base/strategy.py:1 edgefl.strategies.base must not import"
        " edgefl.strategies.fedavg",
        "edgefl/nowhere.py: no room of ORDER holds it",
    ]
