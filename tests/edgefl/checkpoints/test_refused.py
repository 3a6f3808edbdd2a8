"""What the codec refuses: objects that it cannot save, damaged pickles, and hostile ones."""

from __future__ import annotations

import ast
import math
import pickle
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
import pytest
from checkpoint_graphs import (
    OWN,
    Color,
    Files,
    Kept,
    Node,
    Plain,
    Point,
    doubled,
    local_class,
    local_function,
)
from hypothesis import given
from hypothesis import strategies as st

from edgefl.checkpoints import codec
from edgefl.checkpoints.codec import (
    ALLOWED,
    FORMAT,
    METHODS,
    OBJECTS,
    CannotDecode,
    CannotEncode,
    Encoded,
    decode,
    encode,
    find_class,
    method_of,
)
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
        ((Kept(),), "[0]: cannot save an object of Kept, a msgspec.Struct of one's own"),
        ((Files(),), "[0]: cannot save an object of Files, which derives from builtins:Exce"),
        ([math.sqrt], "[0]: cannot save an object of builtins.builtin_function_or_method"),
        ([print], "[0]: cannot save an object of builtins.builtin_function_or_method"),
        ([Path.home], "[0]: cannot save the method home of type"),
        ([np.array([{}])], "[0]: cannot save an array of object"),
        ([np.ma.array([1])], "[0]: cannot save an object of numpy.ma."),
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


def test_a_class_of_another_module_is_refused_in_both_directions() -> None:
    with pytest.raises(CannotEncode, match="which is no class of the state of edgefl's runs$"):
        encode([Plain()])
    with pytest.raises(CannotDecode, match="names checkpoint_graphs:Plain; expected a class of"):
        decode(encode([Plain()], own=OWN))


# ---------------------------------------------------------------------- damaged and hostile
def saved(objects: bytes, *views: list[Any]) -> Encoded:
    """A checkpoint with this pickle and these rows of arrays."""
    tree = {"format": FORMAT, "views": list(views), "buffers": {"a0": 0}}
    arrays = {"a0": np.arange(4, dtype=np.uint8), OBJECTS: np.frombuffer(objects, np.uint8)}
    return Encoded(tree, arrays)


def name(module: str, qualname: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{qualname}\n".encode()


def call(function: str, *arguments: object) -> bytes:
    """A call of a function of the codec with plain values, or with opcodes."""
    parts = [each if isinstance(each, bytes) else plain(each) for each in arguments]
    return name(codec.__name__, function) + b"(" + b"".join(parts) + b"tR"


def plain(value: object) -> bytes:
    return pickle.dumps(value, 3)[2:-1]


def new(module: str, qualname: str, state: bytes = b"") -> bytes:
    """An object without a call of __init__, with a state."""
    return name(module, qualname) + b")\x81" + (state + b"b" if state else b"")


AGENDA, METHOD = new("emulator.clock", "Agenda"), "names the method "
SYSTEM = name("os", "system")
ENDLESS = name("itertools", "count") + plain((0, 1)) + b"R"
HOSTILE = [
    (SYSTEM + plain(("true",)) + b"R", "names os:system; expected a class of the state of edgefl"),
    (name("edgefl.vectors", "aligned"), "names edgefl.vectors:aligned, which is no class of"),
    (name("edgefl.vectors", "Any"), "names edgefl.vectors:Any, which is no class"),
    (
        name("edgefl.plugins.launch.agent", "Agent"),
        "names edgefl.plugins.launch.agent:Agent; expected",
    ),
    (name("edgefl.catalog", "Path"), "names edgefl.catalog:Path; expected"),
    (name("edgefl.__main__", "X"), "names edgefl.__main__:X; expected"),
    (name("subprocess", "Popen"), "names subprocess:Popen"),
    (name("builtins", "eval"), "names builtins:eval"),
    (name("edgefl.vectors", "Layout.__init__.__globals__"), "no class of"),
    (name("edgefl.config.nowhere", "X"), "names edgefl.config.nowhere:X: No module"),
    (name("edgeflx", "X"), "names edgeflx:X; expected"),
    (name("edgefl.checkpoints.codec", "decode"), "names edgefl.checkpoints.codec:decode"),
    # a class may be named, but is never called
    (name("builtins", "dict") + b")R", "calls something of the type type"),
    (name("checkpoint_graphs", "Plain") + b")R", "calls something of the type type"),
    (b"(" + name("checkpoint_graphs", "Plain") + b"o", "has the opcode OBJ"),
    (b"(icheckpoint_graphs\nPlain\n", "has the opcode INST"),
    (name("checkpoint_graphs", "Plain") + b")}\x92", "has the opcode NEWOBJ_EX"),
    (b"\x82\x01", "has the opcode EXT1"),
    (plain("a") + b"Q", "has the opcode BINPERSID"),
    (new("subprocess", "Popen"), "names subprocess:Popen"),
    (new("checkpoint_graphs", "Kept"), "has an object of Kept, a msgspec.Struct of one's own"),
    (new("checkpoint_graphs", "Files"), "has an object of Files, which derives from builtins"),
    (new("builtins", "int"), "has an object of builtins.int, which is no class of"),
    (call("method", AGENDA, "add"), f"{METHOD}add of Agenda"),
    (call("method", [], "append"), f"{METHOD}append of list"),
    (call("method", [], "__class__"), f"{METHOD}__class__"),
    (call("external", "os"), "needs 'os', which this process does not have"),
    (call("later", name("builtins", "int"), (), {}), "has a partial of something that is no"),
    (call("member", name("edgefl.vectors", "Layout"), "a"), "Layout'>, which is no enumeration"),
    (call("member", name("checkpoint_graphs", "Color"), "BLUE"), "is damaged .KeyError: 'BLUE'"),
    (call("bits", "default_rng", None, {}), "names the random generator default_rng"),
    (call("generator", 7), "has a random generator of int"),
    (call("seed", 1, (), 1 << 40, 0), "a pool of 1099511627776"),
    (call("scalar", "|O", plain(bytes(8))), "has a value of object"),
    (call("dtype", "O"), "has a value of object"),
    (call("array", 7), "is damaged .IndexError"),
    (call("fraction", 1, 0), "is damaged .ZeroDivisionError"),
    # what would have no end
    (call("fraction", "1e999999999", 1), "has a str in place of a int"),
    (call("typed", "q", ENDLESS), "has a count in place of a bytes"),
    (call("seed", ENDLESS, (), 4, 0), "has a count in place of a int"),
    (call("seed", 1, ("a",), 4, 0), "has a str in place of a int"),
    (name("checkpoint_graphs", "Pair") + ENDLESS + b"\x85\x81", "has a count in place of a list"),
    (b"})" + b"\x85" * 200_000 + b"K\x01s", "has a key of very many parts"),
    (b"\x8f()" + b"\x85" * 200_000 + b"\x90", "has a key of very many parts"),
    (b"})" + b"\x85" * 200_000 + b"K\x01\x86K\x01s", "has a key of very many parts"),
    (b"()" + b"\x85" * 200_000 + b"\x91", "has a key of very many parts"),
    (b"})" + b"2\x86" * 40 + b"K\x01s", "has a key of very many parts"),  # 2^40 parts
    (
        name("builtins", "frozenset") + b"])" + b"\x85" * 200_000 + b"a\x85\x81",
        "has a key of very many parts",
    ),
    (call("external", b")" + b"2\x86" * 40), "has a tuple in place of a str"),
    (b")" + b"2\x86" * 40 + b")\x81", "makes an object of a tuple"),
    (call("member", b")" + b"2\x86" * 40, 1), "a member of a tuple, which is no enumeration"),
    (name("checkpoint_graphs", "Plain") + ENDLESS + b"\x81", "makes an object of a count"),
    (call("seed", 1, ENDLESS, 4, 0), "has a count in place of a tuple"),
    (new("checkpoint_graphs", "Guarded", plain((1, 2))), "is damaged .ValueError"),
    (
        name("collections", "defaultdict")
        + plain((None,))
        + b"\x81"
        + plain((None, {"default_factory": 1}))
        + b"b",
        "is damaged .AttributeError: default_factory",
    ),
    (name("collections", "defaultdict") + plain((7,)) + b"\x81", "a defaultdict of something"),
    (new("checkpoint_graphs", "Point", plain((None, {"z": 1}))), "is damaged .AttributeError: z"),
    (new("checkpoint_graphs", "Plain", plain(7)), "has a int in place of a dict"),
    (name("checkpoint_graphs", "Plain") + plain({"called": 1}) + b"b", "has a state for an object"),
    (call("external", "plain") + plain({"called": 1}) + b"b", "has a state for an object of Plain"),
    (AGENDA + plain(1) + b"a", "has items for an object of Agenda"),
    (AGENDA + plain(1) + plain(1) + b"s", "is damaged .TypeError"),
    (b"}]K\x01s", "is damaged .TypeError: unhashable"),
    (b"h\x07", "is damaged .UnpicklingError: Memo value not found"),
    (b"\x8e" + b"\xff" * 8, "is damaged .UnpicklingError: BINBYTES8 exceeds"),
    (b"", "is damaged .IndexError"),
]


@pytest.mark.parametrize(("hostile", "message"), HOSTILE, ids=[text for _, text in HOSTILE])
@pytest.mark.slow
def test_a_hostile_or_damaged_pickle_is_refused(hostile: bytes, message: str) -> None:
    with pytest.raises(CannotDecode, match=message):
        decode(saved(b"\x80\x05" + hostile + b"."), {"plain": Plain()}, OWN)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (["a0", "|O", [1], None, 0, True], "has an array of object"),
        (["a0", "<f4", [2], None, 0, True], "is damaged .TypeError"),
        (["a0", "u1", [2], [9], 0, True], "is damaged .ValueError"),
        (["a0", "u1", [2], None, -1, True], "has an array at byte -1"),
        (["a7", "u1", [2], None, 0, True], "is damaged .KeyError: 'a7'"),
    ],
)
def test_a_damaged_row_of_an_array_is_refused(view: list[Any], message: str) -> None:
    with pytest.raises(CannotDecode, match=message):
        decode(saved(b"N.", view))


def test_a_checkpoint_of_another_format_is_refused() -> None:
    for tree, message in (({"format": 1}, "has the format 1; expected 2"), ({}, "the format None")):
        with pytest.raises(CannotDecode, match=message):
            decode(Encoded(tree, {}))


def test_no_module_of_another_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr("edgefl.checkpoints.codec.import_module", called.append)
    for module in ("antigravity", "edgefl.cli", "edgefl.config.absent", "own_module"):
        with pytest.raises(CannotDecode):
            decode(saved(name(module, "X") + b"."), own=(*OWN, "own_module"))
    assert called == ["edgefl.config.absent"]


def test_no_function_runs_a_command(tmp_path: Path) -> None:
    """Git runs the shell command of an alias. Each of these ran one when it was called."""
    mark = tmp_path / "ran"
    words = (".", "-c", f"alias.x=!touch {mark}", "x")
    git = name("edgefl.clocks.setup.rundir", "_git")
    partial_of_git = name("functools", "partial") + b"(" + git + plain(words) + b"ttR"
    factory = name("collections", "defaultdict") + partial_of_git + b"\x85\x81"
    for hostile in (git + plain(words) + b"R", partial_of_git, call("later", git, words), factory):
        with pytest.raises(CannotDecode):
            decode(saved(hostile + b"."), own=OWN)
    assert not mark.exists()


@pytest.mark.slow
def test_the_listed_modules_start_no_process_and_open_no_socket() -> None:
    """What a checkpoint may name is harmless because of where it stands."""
    hands = {"subprocess", "socket", "multiprocessing", "asyncio", "zmq"}
    for name in ALLOWED:
        spec = find_spec(name.partition(":")[0])
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
        "b": (np.ones(3), {1: {2}}, bytearray(b"ab")),
        "c": Plain().called,
    }
    encoded = encode(graph, own=OWN)
    objects = bytearray(encoded.arrays[OBJECTS].tobytes())
    objects[at % len(objects) : at % len(objects) + len(put)] = put
    damaged = encoded.arrays | {OBJECTS: np.frombuffer(objects, np.uint8)}
    with suppress(CannotDecode):
        decode(Encoded(encoded.tree, damaged), own=OWN)
