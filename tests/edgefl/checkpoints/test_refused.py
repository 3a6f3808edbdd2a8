"""What the codec refuses: objects that it cannot save, damaged trees, and hostile ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
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

from edgefl.checkpoints.codec import CannotDecode, CannotEncode, Encoded, decode, encode


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (lambda: 1, "the root: cannot save <lambda>, which a function defines"),
        ({"strategy": Plain(model=Plain(hook=lambda: 1))}, "strategy.model.hook: cannot save "),
        ([0, {"k": {1: Lock()}}], "[1]['k'][1]: cannot save an object of _thread.lock, which is"),
        ([local_function()], "[0]: cannot save local_function.<locals>.inner, which a function"),
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
        ([OSError], "[0]: cannot save builtins:OSError, which is not of edgefl, the emulator"),
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
    with pytest.raises(CannotEncode, match="which is no class of edgefl, the emulator$"):
        encode([Plain()])
    with pytest.raises(CannotDecode, match="names checkpoint_graphs:Plain; expected a name of"):
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
    (tree(root=["function", "os:system"]), "names os:system; expected a name of edgefl, emulator"),
    (tree(root=["class", "subprocess:Popen"]), "names subprocess:Popen"),
    (tree(root=["class", "builtins:eval"]), "names builtins:eval"),
    (tree(root=["function", "edgefl.catalog:importlib.import_module"]), "no function of edgefl"),
    (tree(root=["function", "edgefl.vectors:np"]), "no function of edgefl"),
    (tree(root=["class", "edgefl.catalog:Path"]), "no class of edgefl"),
    (tree(root=["class", "edgefl.vectors:Layout.__init__.__globals__"]), "no class of edgefl"),
    (tree(root=["function", "edgefl.vectors:Layout"]), "no function of edgefl"),
    (tree(root=["class", "edgefl.nowhere:X"]), "names edgefl.nowhere:X: No module named"),
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
    (tree(["partial", None, [3], {}]), "is damaged .TypeError"),
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
    for name in ("antigravity:X", "edgefl.absent:X", "own_module:X", "checkpoint_graphs:X"):
        with pytest.raises(CannotDecode):
            decode(tree(root=["class", name]), own=(*OWN, "own_module"))
    assert called == ["edgefl.absent"]


@given(st.binary(min_size=1, max_size=60), st.integers(0, 10_000))
def test_damage_anywhere_gives_an_error_or_a_value(put: bytes, at: int) -> None:
    graph = {"a": [Point(1, Node("n")), Color.RED], "b": (np.ones(3), {1: {2}}), "c": doubled}
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
