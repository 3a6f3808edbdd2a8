"""How large the house is, and how far an update walks through it.

    python scripts/benchmarks/house.py [--json FILE] [--tree DIR] [--rooms] [--no-walks] [--suite]

Lines and files of each room, the share of comments and docstrings, modules with exactly one
importer, and circles of imports (those inside functions count, too). The walks run FedAsync with
one edge on each clock, with a profiler hook: the source files whose functions are called between
two updates, and the calls from one file into another; what runs while a module is imported does not
count. Further walks: from the experiment file to the first link, and from a row of metrics to a
curve. ``--suite`` also times scripts/test.sh.
CONTRIBUTING.md has a log of these numbers by date: what a change adds stands against what it gives.
"""

from __future__ import annotations

import ast
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path

import tomli_w
from table import Row, arguments, host_line, report, run, say

from edgefl.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES, TREES = ("edgefl", "emulator"), ("edgefl", "emulator", "scripts", "tests")
WALL, VIRTUAL = "wall", "virtual"
EXPERIMENT = {
    "name": "walk",
    "model": {"name": "mlp", "hidden": [4]},
    "edges": {"count": 1},
    "links": {"up_mbit_s": 10.0, "down_mbit_s": 10.0},
    "devices": {"samples_per_s": 20000.0},
    "stop": {"versions": 12},
    "evaluation": {"every_versions": 1},
    "strategies": [{"strategy": "fedasync", "concurrency": 1}],
}
# Walks: words of a command; the function that opens the window, and the one that closes it. Where
# both are the same, the window lies between two calls late enough for everything to be warm.
UPDATE = {"strategies/fedasync.py:apply": 8, "edges/:begin": 8}
HOOK = """
import os, sys, threading
ROOT, OUT = os.environ["HOUSE_ROOT"] + "/", os.environ["HOUSE_OUT"]
OPENS, CLOSES, SKIP = os.environ["HOUSE_OPENS"].split(), os.environ["HOUSE_CLOSES"], 0
own, counts, window = {}, {}, None

def place(code):  # the file of a function; modules and bodies of classes are none
    name = own.get(code)
    if name is None:
        path = code.co_filename
        inside = code.co_flags & 1 and path.startswith((ROOT + "edgefl/", ROOT + "emulator/"))
        name = own[code] = path[len(ROOT):] if inside else ""
    return name

def is_import(frame):  # whether a module is being imported: its body runs, and what it calls
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
            return frame.f_code.co_filename.startswith(ROOT)
        frame = frame.f_back
    return False

def is_at(mark, name, function):
    file, _, wanted = mark.partition(":")
    return file in name and wanted == function

def write():
    with open(f"{OUT}/{os.getpid()}", "w") as file:
        file.write("\\n".join([str(window[1]), *sorted(window[0])]))

def hook(frame, event, arg):
    global window
    if event != "call":
        return
    name = place(frame.f_code)
    if not name or window is False:
        return
    function = frame.f_code.co_name
    for mark in OPENS:
        mark, _, count = mark.partition("=")
        if is_at(mark, name, function):
            counts[mark] = counts.get(mark, 0) + 1
            if counts[mark] == int(count or 1) and window is None:
                window = (set(), [0])
            elif count and counts[mark] == int(count) + 1 and window:
                write()
                window = False
                return
    if not window or is_import(frame):
        return
    window[0].add(name)
    above = frame.f_back
    while above is not None and not place(above.f_code):
        above = above.f_back
    window[1][0] += above is not None and place(above.f_code) != name
    if CLOSES and is_at(CLOSES, name, function):
        write()
        window = False

sys.setprofile(hook)
threading.setprofile(hook)
"""


def sources(tree: Path, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (tree / folder).rglob("*.py"))


def explained(text: str) -> int:
    """Return how many lines hold a comment or belong to a docstring."""
    lines = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for part in body:
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                    lines |= set(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return len(lines)


# ------------------------------------------------------------------ imports
def imports(tree: Path) -> dict[str, set[str]]:
    """Return the modules of the packages that each module imports, also inside functions."""
    files = {
        ".".join(path.relative_to(tree).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources(tree, *PACKAGES)
    }
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found = set[str]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {
                    full if (full := f"{node.module}.{alias.name}") in files else node.module
                    for alias in node.names
                }
        graph[name] = (found & files.keys()) - {name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


# ------------------------------------------------------------------ walks
def walk(tree: Path, words: list[str], opens: str, closes: str, folder: Path) -> tuple[int, int]:
    """Run a command with the hook; return (files that its window crossed, calls between files)."""
    with tempfile.TemporaryDirectory(prefix="house-") as out:
        (folder / "sitecustomize.py").write_text(HOOK)
        environment = os.environ | {
            "PYTHONPATH": f"{folder}:{tree}",
            "HOUSE_ROOT": str(tree),
            "HOUSE_OUT": out,
            "HOUSE_OPENS": opens,
            "HOUSE_CLOSES": closes,
        }
        command = [sys.executable, "-m", "edgefl.cli", *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        texts = [path.read_text().splitlines() for path in Path(out).iterdir()]
    if done.returncode or not texts:
        raise UserError(f"edgefl {' '.join(words)}: no walk: {(done.stdout + done.stderr)[-300:]}")
    files = {file for _, *found in texts for file in found}
    say("\n".join(["", f"edgefl {' '.join(words)}", *(f"  {file}" for file in sorted(files))]))
    return len(files), sum(int(text[0].strip("[]")) for text in texts)


def walks(tree: Path) -> Iterator[Row]:
    update = " ".join(f"{mark}={count}" for mark, count in UPDATE.items())
    server = update.split()[0]
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        folder = Path(name)
        (folder / "walk.toml").write_text(tomli_w.dumps(EXPERIMENT))
        base = ["run", "walk.toml", "--force", "--clock"]
        files, hops = walk(tree, [*base, VIRTUAL], server, "", folder)
        yield Row("an update, virtual clock: files", files)
        yield Row("an update, virtual clock: calls between files", hops)
        files, hops = walk(tree, [*base, WALL], update, "", folder)
        yield Row("an update, wall clock, both processes: files", files)
        start = "edgefl/cli.py:main"
        words = [*base, VIRTUAL, "--out", "first"]  # no former runs are there
        files, _ = walk(tree, words, start, "emulator/links/link.py:__init__", folder)
        yield Row("from the experiment file to the first link: files", files)
        plot = ["plot", "runs/walk", "--kind", "accuracy", "--overwrite"]
        files, _ = walk(tree, plot, start, "results/figures/curves.py:draw_line", folder)
        yield Row("from a row to a curve: files", files)


# ------------------------------------------------------------------ the rows
def sizes(tree: Path, rooms: bool) -> Iterator[Row]:
    for top in TREES:
        texts = {path: path.read_text(encoding="utf-8") for path in sources(tree, top)}
        lines = sum(text.count("\n") for text in texts.values())
        yield Row(f"{top}: lines", lines)
        yield Row(f"{top}: files", len(texts))
        if top in PACKAGES:
            share = 100 * sum(map(explained, texts.values())) / lines
            yield Row(f"{top}: lines with a comment or a docstring", share, "%")
        if rooms:
            for room in sorted({path.relative_to(tree / top).parts[0] for path in texts}):
                inside = [
                    text
                    for path, text in texts.items()
                    if path.relative_to(tree / top).parts[0] == room
                ]
                count = sum(text.count("\n") for text in inside)
                yield Row(f"  {top}/{room}", f"{count:,} lines, {len(inside)} files")


def links(tree: Path) -> Iterator[Row]:
    graph = imports(tree)
    importers = {name: [other for other in graph if name in graph[other]] for name in graph}
    single = [name for name, others in importers.items() if len(others) == 1]
    yield Row("modules with one importer", len(single))
    found = circles(graph)
    yield Row("circles of imports", len(found))
    for group in found:
        say(f"a circle: {', '.join(group)}")


def suite(tree: Path) -> Iterator[Row]:
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["scripts/test.sh"], cwd=tree)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield Row("scripts/test.sh: exit status", done.returncode)
    yield Row("scripts/test.sh: wall clock", (time.monotonic() - began_s) / 60, "min")
    yield Row("scripts/test.sh: CPU", used_s / 60, "min")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="another checkout")
    parser.add_argument("--rooms", action="store_true", help="also each room")
    parser.add_argument("--no-walks", action="store_true", help="leave the walks out")
    parser.add_argument("--suite", action="store_true", help="also time scripts/test.sh")
    options, host = parser.parse_args(), host_line()
    tree = options.tree.resolve()
    if not (tree / "edgefl" / "cli.py").is_file():
        raise UserError(f"--tree {options.tree}: expected a checkout of edgefl")
    rows = [*sizes(tree, options.rooms), *links(tree)]
    rows += [] if options.no_walks else walks(tree)
    rows += suite(tree) if options.suite else []
    report("The house", host, rows, options.json)


if __name__ == "__main__":
    run(main)
