"""The house rules of the design as a test: sizes, annotations, who may import whom, what is
banned where. Failures list file:line.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest
from paths import ROOT

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_LINE_CHARS = 400, 50, 100
Finding = tuple[int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Rooms that may read clocks, sleep, open sockets, start threads and draw from the system's
# randomness.
COMMAND_LINE = ("edgefl/cli", "edgefl/commands/", "emulator/cli")
FREE = (
    "edgefl/hosts/",
    *COMMAND_LINE,
    "emulator/clock.py",
    "emulator/proxy/",
    "emulator/kernel/",
    "emulator/calibrate.py",
)
BANNED_MODULES = {
    "time",
    "sched",
    "threading",
    "_thread",
    "concurrent",
    "multiprocessing",
    "asyncio",
    "socket",
    "socketserver",
    "select",
    "selectors",
    "random",
    "secrets",
    "uuid",
}
CLOCK_CALLS = {"now", "utcnow", "today"}  # of datetime, date
NUMPY_RANDOM = {
    "Generator",
    "BitGenerator",
    "PCG64",
    "Philox",
    "SeedSequence",
}  # own state; everything else is shared or unseeded
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
TORCH_ROOMS = ("edgefl/edges/trainer.py", "edgefl/models/", "edgefl/data/", "edgefl/hosts/")
# Room -> what no line of it may import, inside functions neither.
OUTER = ("edgefl.hosts", "edgefl.cli", "edgefl.commands")
NEVER = {
    "emulator/": ("edgefl", "torch", "zmq"),
    "edgefl/strategies/": (
        "zmq",
        "time",
        "emulator",
        "edgefl.coordinator",
        "edgefl.edges",
        "edgefl.protocol",
        "edgefl.models",
        "edgefl.data",
        "edgefl.results",
        *OUTER,
    ),
    "edgefl/coordinator/": ("torch", "zmq", "time", "edgefl.edges", "edgefl.models", *OUTER),
    "edgefl/edges/edge.py": (
        "torch",
        "zmq",
        "time",
        "edgefl.edges.trainer",
        "edgefl.models",
        *OUTER,
    ),
    "edgefl/protocol/": ("torch", "zmq", *OUTER),
    "edgefl/results/": ("torch", "zmq", *OUTER),
}
EVERYWHERE = "emulator.units"  # plain arithmetic


@dataclass(frozen=True)
class Import:
    """One imported name: ``a.b`` for "import a.b", also ``a.b.c`` for "from a.b import c"."""

    line: int
    names: tuple[str, ...]
    in_function: bool
    typing_only: bool

    def of(self, *modules: str) -> bool:
        return any(
            name == module or name.startswith(module + ".")
            for name in self.names
            for module in modules
        )


@dataclass(frozen=True)
class Source:
    """A file of the tree, by its path from the root ("edgefl/vectors.py")."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, False, False))

    def within(self, *rooms: str) -> bool:
        return self.path.startswith(rooms)

    def _imports(self, node: ast.AST, in_function: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (
                    Import(child.lineno, (alias.name,), in_function, typing_only)
                    for alias in child.names
                )
            elif isinstance(child, ast.ImportFrom):
                base = self._absolute(child)
                yield from (
                    Import(child.lineno, (base, f"{base}.{alias.name}"), in_function, typing_only)
                    for alias in child.names
                )
            elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                yield from self._imports(ast.Module(child.body, []), in_function, True)
                yield from self._imports(ast.Module(child.orelse, []), in_function, typing_only)
            else:
                yield from self._imports(
                    child, in_function or isinstance(child, (Function, ast.Lambda)), typing_only
                )

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = (
            self.module.split(".")
            if self.path.endswith("__init__.py")
            else self.module.split(".")[:-1]
        )
        return ".".join(
            [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
        )


def file_size(source: Source) -> Iterator[Finding]:
    lines = source.text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield len(lines), f"{len(lines)} lines, at most {MAX_FILE_LINES}"
    yield from (
        (number, f"{len(line)} characters, at most {MAX_LINE_CHARS}")
        for number, line in enumerate(lines, 1)
        if len(line) > MAX_LINE_CHARS
    )


def function_size(source: Source) -> Iterator[Finding]:
    for node in source.functions:
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield node.lineno, f"{node.name}: {length} lines, at most {MAX_FUNCTION_LINES}"


def annotations(source: Source) -> Iterator[Finding]:
    if source.functions and not any(
        imported.of("__future__.annotations") for imported in source.imports
    ):
        yield 1, "no 'from __future__ import annotations'"
    for node in source.functions:
        if node.returns is None:
            yield node.lineno, f"{node.name}: no return annotation"
        arguments = [
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            node.args.vararg,
            node.args.kwarg,
        ]
        bare = [
            a.arg
            for a in arguments
            if a is not None and a.annotation is None and a.arg not in ("self", "cls")
        ]
        if bare:
            yield node.lineno, f"{node.name}: no annotation of {', '.join(bare)}"


def rooms(source: Source) -> Iterator[Finding]:
    for imported in source.imports:
        name = imported.names[-1]
        for room, forbidden in NEVER.items():
            if (
                source.within(room)
                and not imported.typing_only
                and imported.of(*forbidden)
                and not imported.of(EVERYWHERE)
            ):
                yield imported.line, f"{room} must not import {name}"
        if (
            imported.of("torch")
            and not imported.in_function
            and not imported.typing_only
            and not source.within(*TORCH_ROOMS)
        ):
            yield (
                imported.line,
                "torch at module level only in edges/trainer.py, models, data and hosts",
            )
        if imported.of("zmq") and not source.within("edgefl/hosts/"):
            yield imported.line, "zmq only in edgefl/hosts"
        if (
            imported.of("edgefl.hosts")
            and not imported.typing_only
            and not source.within("edgefl/hosts/", *COMMAND_LINE)
        ):
            yield imported.line, "only the command line wires hosts"


def bans(source: Source) -> Iterator[Finding]:
    """Clocks, sleep, sockets, threads, shared or unseeded random state; they have their own
    rooms (FREE).
    """
    if source.within(*FREE):
        return
    for imported in source.imports:
        if imported.of(*BANNED_MODULES):
            yield (
                imported.line,
                f"{imported.names[-1]} is banned here: time is an argument, hosts do the rest",
            )
        if (
            imported.of("numpy.random")
            and imported.names[-1].rpartition(".")[2] not in NUMPY_RANDOM
        ):
            yield imported.line, "random numbers come from edgefl.streams"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("np.random", "numpy.random") and node.attr not in NUMPY_RANDOM:
                yield node.lineno, f"{owner}.{node.attr}: random numbers come from edgefl.streams"
            if (
                node.attr in CLOCK_CALLS
                and owner.rpartition(".")[2] in ("datetime", "date")
                or f"{owner}.{node.attr}" == "os.urandom"
            ):
                yield (
                    node.lineno,
                    f"{owner}.{node.attr} is banned here: time and seeds are arguments",
                )


def honesty(source: Source) -> Iterator[Finding]:
    """Nothing is unpickled, no branch asks whether the run is real, nothing is left for later."""
    for imported in source.imports:
        if imported.of(*PICKLES):
            yield imported.line, f"{imported.names[-1]}: nothing here is ever unpickled"
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ):
            yield node.value.lineno, "allow_pickle: nothing here is ever unpickled"
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            names = {
                part.id if isinstance(part, ast.Name) else part.attr
                for part in ast.walk(node.test)
                if isinstance(part, (ast.Name, ast.Attribute))
            }
            yield from (
                (node.lineno, f"a branch on {name}: hosts differ, code does not")
                for name in sorted(names)
                if "simulat" in name.lower()
            )
        if (
            isinstance(node, ast.Raise)
            and node.exc is not None
            and "NotImplementedError" in ast.unparse(node.exc)
        ):
            yield node.lineno, "NotImplementedError: a stub"
    yield from (
        (number, "left for later")
        for number, line in enumerate(source.text.splitlines(), 1)
        if re.search(r"#.*\b(TODO|FIXME|XXX|HACK)\b", line)
    )


def import_cycles(sources: list[Source]) -> list[str]:
    """Each cycle of module-level imports once, as "a -> b -> a"."""
    modules = {source.module for source in sources}
    graph: dict[str, list[str]] = {}
    for source in sources:
        wanted = [
            imported.names
            for imported in source.imports
            if not imported.in_function and not imported.typing_only
        ]
        # "from a import b" needs a.b if that is a module, else a.
        nearest = (
            next((name for name in reversed(names) if name in modules), None) for names in wanted
        )
        graph[source.module] = sorted({name for name in nearest if name and name != source.module})
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


RULES: list[Callable[[Source], Iterator[Finding]]] = [
    file_size,
    function_size,
    annotations,
    rooms,
    bans,
    honesty,
]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    files = sorted(file for tree in ("edgefl", "emulator") for file in (ROOT / tree).rglob("*.py"))
    return [
        Source(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
        for file in files
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Source], Iterator[Finding]], sources: list[Source]) -> None:
    findings = [f"{source.path}:{line} {what}" for source in sources for line, what in rule(source)]
    assert not findings, "\n" + "\n".join(findings)


def test_no_import_cycle(sources: list[Source]) -> None:
    cycles = import_cycles(sources)
    assert not cycles, "\n" + "\n".join(cycles)


IMPORT_ALL = """
import importlib, pkgutil, sys
wanted, forbidden = sys.argv[1].split(","), set(sys.argv[2].split(","))
for name in wanted:
    path = getattr(importlib.import_module(name), "__path__", ())
    wanted += [module.name for module in pkgutil.iter_modules(path, name + ".")]
    if forbidden & set(sys.modules):
        sys.exit(f"{name} brings in {', '.join(sorted(forbidden & set(sys.modules)))}")
"""


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (
            "edgefl.coordinator,edgefl.strategies,edgefl.protocol,edgefl.results,edgefl.edges.edge,edgefl.loading.file",
            "torch,zmq",
        ),
        ("emulator", "torch,zmq,edgefl"),
    ],
)
def test_importing_brings_in_nothing_heavy(modules: str, forbidden: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, modules, forbidden],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def check(rule: Callable[[Source], Iterator[Finding]], path: str, text: str) -> list[int]:
    return [line for line, _ in rule(Source(path, text))]


@pytest.mark.parametrize(
    ("rule", "path", "text", "lines"),
    [
        (file_size, "edgefl/a.py", "x = 1\n" * 401 + "y" * 101, [402, 402]),
        (function_size, "edgefl/a.py", "def f():\n" + "    x = 1\n" * 50, [1]),
        (
            annotations,
            "edgefl/a.py",
            "from __future__ import annotations\nclass A:\n    def f(self, x, *, y: int): ...\n",
            [3, 3],
        ),
        (annotations, "edgefl/a.py", "def f() -> None: ...\n", [1]),
        (
            rooms,
            "emulator/links/link.py",
            "import edgefl.vectors\nfrom edgefl import vectors\n",
            [1, 2],
        ),
        (
            rooms,
            "edgefl/strategies/a.py",
            "def f() -> None:\n    import torch\n    import zmq.green\n",
            [3, 3],
        ),
        (
            rooms,
            "edgefl/strategies/a.py",
            "import torch.nn\nfrom ..hosts import virtual\n",
            [1, 2, 2],
        ),
        (rooms, "edgefl/coordinator/a.py", "def f() -> None:\n    from torch import nn\n", [2]),
        (
            rooms,
            "edgefl/edges/edge.py",
            "if TYPE_CHECKING:\n    import torch\nelse:\n    import torch\n",
            [4, 4],
        ),
        (rooms, "edgefl/edges/trainer.py", "import torch\n", []),
        (
            bans,
            "edgefl/vectors.py",
            (
                "from time import monotonic\nimport numpy as"
                " np\nnp.random.seed(1)\nnp.random.default_rng()\nnp.random.Generator\n"
            ),
            [1, 3, 4],
        ),
        (
            bans,
            "edgefl/vectors.py",
            (
                "import numpy.random\nimport"
                " datetime\ndatetime.datetime.now()\nself.now\nclock.now()\n"
            ),
            [1, 3],
        ),
        (bans, "edgefl/hosts/a.py", "import time, threading\n", []),
        (
            honesty,
            "edgefl/a.py",
            "import pickle\nif self.is_simulated: ...\nraise NotImplementedError()\nx = 1  # TO"
            + "DO\n",
            [1, 2, 3, 4],
        ),
        (
            honesty,
            "edgefl/a.py",
            "np.load(f, allow_pickle=False)\nnp.load(f, allow_pickle=True)\n",
            [2],
        ),
    ],
)
def test_the_rules_find_what_they_should(
    rule: Callable[[Source], Iterator[Finding]], path: str, text: str, lines: list[int]
) -> None:
    assert check(rule, path, text) == lines


def test_import_cycles_are_found() -> None:
    texts = {
        "edgefl/__init__.py": "",
        "edgefl/a.py": "from edgefl.b import x\n",
        "edgefl/b.py": "from . import c\n",
        "edgefl/c.py": "import edgefl.a\n",
    }
    assert import_cycles([Source(path, text) for path, text in texts.items()]) == [
        "edgefl.a -> edgefl.b -> edgefl.c -> edgefl.a"
    ]
    lazy = texts | {"edgefl/c.py": "def f() -> None:\n    import edgefl.a\n"}
    typing = texts | {"edgefl/c.py": "if TYPE_CHECKING:\n    import edgefl.a\n"}
    assert (
        import_cycles([Source(*item) for item in lazy.items()])
        == import_cycles([Source(*item) for item in typing.items()])
        == []
    )
