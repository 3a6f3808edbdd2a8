"""What the codec refuses: objects that it cannot save, damaged trees, and hostile ones."""

from __future__ import annotations

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import orjson
import pytest
from checkpoint_graphs import (
    OWN,
    Color,
    Files,
    Guarded,
    Node,
    Plain,
    Point,
    doubled,
    local_class,
    local_function,
)
from hypothesis import given
from hypothesis import strategies as st

from edgefl.checkpoints.allowed import METHODS, MODULES, find_class, method_of
from edgefl.checkpoints.codec import CannotDecode, CannotEncode, Encoded, decode, encode
from emulator.clock import Agenda


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (lambda: 1, "the root: cannot save the function <lambda>"),
        ({"strategy": Plain(model=Plain(hook=lambda: 1))}, "strategy.model.hook: cannot save "),
        ([doubled], "[0]: cannot save the function doubled"),
        (partial(doubled, 8), "the root: cannot save a partial of something that is no method"),
        (defaultdict(doubled), "default_factory: cannot save the function doubled"),
        ([Agenda().add], "[0]: cannot save the method add of Agenda"),
        ([0, {"k": {1: Lock()}}], "[1]['k'][1]: cannot save an object of _thread.lock, which is"),
        ([local_function()], "[0]: cannot save the function local_function.<locals>.inner"),
        (local_class(), "the root: cannot save an object of f.<locals>.Local, a class that"),
        ({"run": generator()}, "run: cannot save an object of builtins.generator"),
        ((Files(),), "[0]: cannot save an object of Files, which derives from builtins:Exce"),
        ([math.sqrt], "[0]: cannot save an object of builtins.builtin_function_or_method"),
        ([print], "[0]: cannot save an object of builtins.builtin_function_or_method"),
        ([Path.home], "[0]: cannot save the method home of type"),
        ([np.array([{}])], "[0]: cannot save an array of object"),
        ([np.ma.array([1])], "[0]: cannot save an object of numpy.ma.MaskedArray"),
        ([np.zeros(1, "i4,i4")], "[0]: cannot save an array of [("),
        ([np.zeros(1, "i4,i4")[0]], "[0]: cannot save a numpy value of [("),
        ([np.dtype("i4,i4")], "[0]: cannot save the numpy type [("),
        ([Counter.fromkeys], "[0]: cannot save the method fromkeys of type"),
        ([OSError], "[0]: cannot save builtins:OSError, which is no class of the state of"),
        ([count(0.5)], "[0]: cannot save count(0.5)"),
        ([np.random.RandomState(1)], "[0]: cannot save an object of numpy.random.mtrand.Ran"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_saved_is_refused_with_its_path(root: object, message: str) -> None:
    with pytest.raises(CannotEncode) as caught:
        encode(root, own=OWN)
    assert str(caught.value).startswith(message)


def test_a_memory_map_is_refused(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=3)
    with pytest.raises(CannotEncode, match="cannot save an object of numpy.memmap"):
        encode({"data": mapped})


def test_a_class_of_another_module_is_refused_in_both_directions() -> None:
    with pytest.raises(CannotEncode, match="which is no class of the state of edgefl's runs$"):
        encode([Plain()])
    with pytest.raises(CannotDecode, match="names checkpoint_graphs:Plain; expected a class of"):
        decode(encode([Plain()], own=OWN))


def test_the_path_within_the_state_of_an_external_begins_with_its_name() -> None:
    guard = Guarded("g", [1, Lock()])
    with pytest.raises(CannotEncode, match=r"^strategy\.kept\[1\]: cannot save an object of"):
        encode({"deep": [[guard]]}, {"strategy": guard}, OWN)


# ---------------------------------------------------------------------- damaged and hostile
def tree(*objects: Any, root: Any = None) -> Encoded:
    values = {"format": 1, "root": [0] if root is None else root, "buffers": {"a0": 0}}
    return Encoded(values | {"objects": list(objects)}, {"a0": np.arange(4, dtype=np.uint8)})


HOSTILE = [
    (tree(root=["function", "os:system"]), "has the value .'function', 'os:system'"),
    (tree(root=["function", "edgefl.vectors:aligned"]), "has the value .'function'"),
    (tree(root=["class", "os:system"]), "names os:system; expected a class of the state of edgefl"),
    (tree(root=["class", "edgefl.vectors:aligned"]), "names edgefl.vectors:aligned, which is no"),
    (
        tree(root=["class", "edgefl.launch.agent:Agent"]),
        "names edgefl.launch.agent:Agent; expected",
    ),
    (tree(root=["class", "edgefl.catalog:Path"]), "names edgefl.catalog:Path; expected"),
    (tree(root=["class", "edgefl.__main__:X"]), "names edgefl.__main__:X; expected"),
    (tree(root=["class", "edgefl.vectors:Any"]), "names edgefl.vectors:Any, which is no class"),
    (tree(["partial", None, [["class", "builtins:int"]], {}]), "a partial of something that is no"),
    (tree(["defaultdict", None, [7]]), "a defaultdict of something that is no class"),
    (
        tree(["method", "add", [[1]]], ["object", "emulator.clock:Agenda", [], {}]),
        "names the method add of Agenda",
    ),
    (tree(["seed", None, [1, [1], 1 << 40, 0]], ["tuple", None, []]), "a pool of 1099511627776"),
    (tree(root=["fraction", "1", "0"]), "is damaged .ZeroDivisionError"),
    (tree(root=["class", "subprocess:Popen"]), "names subprocess:Popen"),
    (tree(root=["class", "builtins:eval"]), "names builtins:eval"),
    (tree(root=["class", "edgefl.vectors:Layout.__init__.__globals__"]), "no class of"),
    (tree(root=["class", "edgefl.config.nowhere:X"]), "names edgefl.config.nowhere:X: No module"),
    (tree(root=["class", "edgeflx:X"]), "names edgeflx:X; expected"),
    (tree(["object", "subprocess:Popen", [], {}]), "names subprocess:Popen"),
    (tree(["state", "edgefl.vectors:Layout", [1]]), "has edgefl.vectors:Layout as state"),
    (tree(["object", "checkpoint_graphs:Guarded", [], {}]), "Guarded as object, which it is not"),
    (tree(["object", "checkpoint_graphs:Files", [], {}]), "Files as object, which it is not"),
    (tree(["object", "checkpoint_graphs:Names", [], {}]), "Names as object, which it is not"),
    (tree(["object", "builtins:dict", [], {}]), "has builtins:dict as object, which it is not"),
    (tree(["dict", "edgefl.vectors:Layout", []]), "Layout as dict, which it is not"),
    (tree(["tuple", "checkpoint_graphs:Names", []]), "is damaged .TypeError"),
    (tree(["method", "system", [["external", "os"]]]), "needs 'os'"),
    (tree(["method", "append", [[1]]], ["list", None, []]), "names the method append of list"),
    (tree(["method", "__class__", [[1]]], ["list", None, []]), "names the method __class__"),
    (tree(["bits", "default_rng", [None, {}]]), "names the random generator default_rng"),
    (tree(["partial", None, [3], {}]), "has a partial of something that is no method"),
    (tree(root=["enum", "edgefl.vectors:Layout", "a"]), "Layout, which is no enumeration"),
    (tree(root=["enum", "checkpoint_graphs:Color", "BLUE"]), "is damaged .KeyError: 'BLUE'"),
    (tree(root=["scalar", "|O", "00" * 8]), "has a value of object"),
    (tree(["ndarray", ["a0", "|O", [1], None, 0, True], []]), "has an array of object"),
    (tree(["ndarray", ["a0", "<f4", [2], None, 0, True], []]), "is damaged .TypeError"),
    (tree(["ndarray", ["a0", "u1", [2], [9], 0, True], []]), "is damaged .ValueError"),
    (tree(["ndarray", ["a0", "u1", [2], None, -1, True], []]), "has an array at byte -1"),
    (tree(["ndarray", ["a7", "u1", [2], None, 0, True], []]), "is damaged .KeyError: 'a7'"),
    (tree(["list", None, [[7]]]), "is damaged .KeyError: 7"),
    (tree(["tuple", None, [[0]]]), "is damaged .KeyError: 0"),
    (tree(["magic", None, []]), "has an object of the kind 'magic'"),
    (tree(["set", None, [[1]]], ["list", None, []]), "is damaged .TypeError: unhashable"),
    (tree(["dict", None, [1]]), "is damaged .ValueError"),
    (tree(["object", "checkpoint_graphs:Point", [], {"z": 1}]), "is damaged .AttributeError"),
    (tree(["list"]), "is damaged .IndexError"),
    (tree(root=["what", 1]), "has the value"),
    (tree(root=["what", 1, 2]), "has the value"),
    (Encoded({"format": 2}, {}), "has the format 2; expected 1"),
    (Encoded({}, {}), "has the format None; expected 1"),
    (Encoded({"format": 1}, {}), "is damaged .KeyError: 'root'"),
]


@pytest.mark.parametrize(("hostile", "message"), HOSTILE, ids=[text for _, text in HOSTILE])
def test_a_hostile_or_damaged_tree_is_refused(hostile: Encoded, message: str) -> None:
    with pytest.raises(CannotDecode, match=message):
        decode(hostile, own=OWN)


def test_no_module_of_another_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("edgefl.checkpoints.allowed.import_module", called.append)
    for name in ("antigravity:X", "edgefl.cli:X", "edgefl.config.absent:X", "own_module:X"):
        with pytest.raises(CannotDecode):
            decode(tree(root=["class", name]), own=(*OWN, "own_module"))
    assert called == ["edgefl.config.absent"]


def test_no_function_runs_a_command(tmp_path: Path) -> None:
    """Git runs the shell command of an alias. Each of these ran one when it was called."""
    mark = tmp_path / "ran"
    words = [".", "-c", f"alias.x=!touch {mark}", "x"]
    call = ["partial", None, [["function", "edgefl.hosts.setup.rundir:_git"], *words], {}]
    call[2][1] = ["path", "."]  # type: ignore[index]  # the first argument is a folder
    for hostile in (tree(call), tree(["defaultdict", None, [[1]]], call)):
        with suppress(CannotDecode):
            found: Any = decode(hostile, own=OWN)
            found["key"] if isinstance(found, dict) else found()
    assert not mark.exists()


def test_the_listed_modules_start_no_process_and_open_no_socket() -> None:
    """What a checkpoint may name is harmless because of where it stands."""
    hands = {"subprocess", "socket", "multiprocessing", "asyncio", "zmq"}
    for name in MODULES:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None, name
        folder = Path(spec.origin)
        files = folder.parent.rglob("*.py") if spec.submodule_search_locations else [folder]
        for path in files:
            used: set[str] = set()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    used |= {each.name.partition(".")[0] for each in node.names}
                elif isinstance(node, ast.ImportFrom):
                    used.add((node.module or "").partition(".")[0])
            assert not used & hands, path


def test_the_listed_methods_exist() -> None:
    for name, methods in METHODS.items():
        found: Any = find_class(name, ())
        owner = object.__new__(found)
        assert all(method_of(owner, method, ()) for method in methods)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 10_000))
def test_damage_anywhere_gives_an_error_or_a_value(put: bytes, at: int) -> None:
    graph = {
        "a": [Point(1, Node("n")), Color.RED],
        "b": (np.ones(3), {1: {2}}),
        "c": Plain().called,
    }
    encoded = encode(graph, own=OWN)
    text = orjson.dumps(encoded.tree)
    at %= len(text)
    try:
        read = orjson.loads(text[:at] + put + text[at + len(put) :])
    except orjson.JSONDecodeError:
        return
    if isinstance(read, dict):
        with suppress(CannotDecode):
            decode(Encoded(read, encoded.arrays), own=OWN)
