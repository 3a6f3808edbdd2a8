"""The house rules as a test: annotations, layers, banned modules.

Failures list file:line.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from paths import ROOT
from source_tree import Source, source_files

Finding = tuple[int, str]

# Rooms that may read clocks, sleep, open sockets, start threads and draw from the system's
# randomness.
COMMAND_LINE = ("edgefl/cli", "edgefl/commands/", "emulator/cli")
FREE = (
    "edgefl/hosts/",
    "edgefl/launch/",
    "edgefl/live/",
    *COMMAND_LINE,
    "emulator/clock.py",
    "emulator/proxy/",
    "emulator/kernel/",
    "emulator/lab/",
    "emulator/calibrate.py",
)
# Rooms that may import hosts, as the command line may.
WIRING = ("edgefl/hosts/", "edgefl/launch/", "edgefl/live/", "edgefl/sweep/")
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
    "RandomState",
}  # own state; everything else is shared or unseeded
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
TORCH_ROOMS = ("edgefl/edges/training.py", "edgefl/models/", "edgefl/data/", "edgefl/hosts/")
# Room -> modules that it must not import, not even inside functions.
OUTER = ("edgefl.hosts", "edgefl.launch", "edgefl.cli", "edgefl.commands")
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
        "edgefl.edges.training",
        "edgefl.models",
        *OUTER,
    ),
    "edgefl/protocol/": ("torch", "zmq", *OUTER),
    "edgefl/results/": ("torch", "zmq", *OUTER),
}
EVERYWHERE = "emulator.units"  # plain arithmetic


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
            and not source.within(*WIRING, *COMMAND_LINE)
        ):
            yield imported.line, "only launches, sweeps and the command line wire hosts"


def bans(source: Source) -> Iterator[Finding]:
    """Clocks, sleep, sockets, threads, shared or unseeded random state are allowed only in FREE."""
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
                node.attr in CLOCK_CALLS and owner.rpartition(".")[2] in ("datetime", "date")
            ) or f"{owner}.{node.attr}" == "os.urandom":
                yield (
                    node.lineno,
                    f"{owner}.{node.attr} is banned here: time and seeds are arguments",
                )


def honesty(source: Source) -> Iterator[Finding]:
    """No pickles, no branch on whether the run is simulated, no stubs, no TODOs."""
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


RULES: list[Callable[[Source], Iterator[Finding]]] = [
    annotations,
    rooms,
    bans,
    honesty,
]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return source_files("edgefl", "emulator")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Source], Iterator[Finding]], sources: list[Source]) -> None:
    findings = [f"{source.path}:{line} {what}" for source in sources for line, what in rule(source)]
    assert not findings, "\n" + "\n".join(findings)


IMPORT_ALL = """
import importlib, pkgutil, sys
wanted, forbidden = sys.argv[1].split(","), set(sys.argv[2].split(","))
for name in wanted:
    path = getattr(importlib.import_module(name), "__path__", ())
    wanted += [module.name for module in pkgutil.iter_modules(path, name + ".")]
    if forbidden & set(sys.modules):
        sys.exit(f"{name} brings in {', '.join(sorted(forbidden & set(sys.modules)))}")
"""


@pytest.mark.processes
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
        (rooms, "edgefl/edges/training.py", "import torch\n", []),
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
