"""A small run on disk, its files damaged in many ways, and the commands that read it."""

from __future__ import annotations

import io
import json
import random
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

import orjson
import tomli_w

from edgefl.cli import main
from edgefl.clocks.virtual.run import SavedRun
from edgefl.errors import UserError
from edgefl.plugins.live.feeds import Feeds
from edgefl.plugins.live.run_model import Seen

CONFIG: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [4]},
    "edges": {"count": 3},
    "training": {"epochs": 1},
    "links": {"up_mbit_s": 1.0, "down_mbit_s": 1.0},
    "stop": {"versions": 3},
    "record": {"payloads": True},
    "strategies": [{"strategy": "fedavg"}, {"strategy": "fedasync"}],
}
NUMBERS = (-1, 0, 1e400, float("nan"), 10**30, 1.5, -(2**63))
OTHERS: tuple[Any, ...] = (None, True, "x", "", [], {}, [[]], {"a": 1}, ["x"], "\0", *NUMBERS)


def command(*words: Any) -> tuple[int, str]:
    """Run an edgefl command in this process; its exit status and what it wrote to stderr."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["edgefl", *map(str, words)]), redirect_stderr(err):
        try:
            with redirect_stdout(out):
                main()
        except SystemExit as end:
            return (end.code if isinstance(end.code, int) else 0), err.getvalue()
    return 0, err.getvalue()


def make(folder: Path) -> tuple[Path, Path]:
    """A finished experiment, and one that was broken off with checkpoints."""
    config = folder / "small.toml"
    config.write_text(tomli_w.dumps(CONFIG))
    words = ("run", config, "--clock", "virtual", "--out")
    assert command(*words, folder / "whole")[0] == 0
    steps = 0

    def saved(self: SavedRun, host: Any) -> None:
        nonlocal steps
        steps += 1
        if steps % 5 == 0:
            self.save(host)
        if steps == 12:
            raise RuntimeError("broken off")

    with patch.object(SavedRun, "now_and_then", saved), suppress(RuntimeError):
        command(*words, folder / "broken", "--workers", "1")
    return folder / "whole" / "small", folder / "broken" / "small"


# ---------------------------------------------------------------------- damages
def _raw(path: Path, chance: random.Random) -> str:
    data = path.read_bytes()
    at = chance.randrange(len(data) + 1)
    match chance.randrange(9):
        case 0:
            path.unlink()
            return "missing"
        case 1:
            path.write_bytes(b"")
            return "empty"
        case 2:
            path.write_bytes(data[:at])
            return f"cut at {at}"
        case 3:
            path.unlink()
            path.mkdir()
            return "a folder"
        case 4:
            path.unlink()
            path.symlink_to(path.name)
            return "a link to itself"
        case 5:
            piece = chance.choice([b"\0", b"\r", b"\xff\xfe", b"\n\n", b'"', b"\xef\xbb\xbf", b","])
            path.write_bytes(data[:at] + piece + data[at:])
            return f"{piece!r} at {at}"
        case 6:
            path.write_bytes(b"[" * 5000 if chance.randrange(2) else b'{"a":' * 5000)
            return "deeply nested"
        case 7:
            path.write_bytes(
                chance.choice([b"[]\n", b"1\n", b"{}\n", b"null\n", b'"x"\n', b"a,b\n"])
            )
            return "another content"
        case _:
            path.write_bytes(bytes(chance.randrange(256) for _ in range(200)))
            return "random bytes"


def _other(value: Any, chance: random.Random) -> tuple[Any, str]:
    """``value`` with a part of it removed or replaced by one of another type, and where."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.2:
            return {name: each for name, each in value.items() if name != key}, f"{key} removed"
        found, where = _other(value[key], chance)
        return value | {key: found}, f"{key}.{where}"
    if isinstance(value, list) and value and chance.random() < 0.9:
        number = chance.randrange(len(value))
        found, where = _other(value[number], chance)
        return [*value[:number], found, *value[number + 1 :]], f"{number}.{where}"
    other = chance.choice(OTHERS)
    return other, f"= {other!r}"


def _json(value: Any) -> bytes:
    # orjson has no infinity and no large numbers
    return json.dumps(value).encode()


def _content(path: Path, chance: random.Random) -> str:
    data = path.read_bytes()
    if path.suffix == ".json" and not path.name.startswith("checkpoint-"):
        value, where = _other(orjson.loads(data), chance)
        path.write_bytes(_json(value))
        return where
    if path.suffix == ".jsonl":
        lines = data.splitlines()
        number = chance.randrange(len(lines))
        head, line = b"", lines[number]
        if path.parent.name == "journal":
            line = line.partition(b" ")[2]
        value, where = _other(orjson.loads(line), chance)
        line = _json(value)
        if path.parent.name == "journal":
            head = b"%08x " % crc32(line)
        lines[number] = head + line
        path.write_bytes(b"\n".join(lines) + b"\n")
        return f"line {number + 1}: {where}"
    if path.suffix == ".csv":
        rows = [line.split(b",") for line in data.splitlines()]
        number, column = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
        match chance.randrange(4):
            case 0:  # a column twice
                rows[0][column] = rows[0][column - 1]
            case 1:
                rows = [row[:column] + row[column + 1 :] for row in rows]
                return _rows(path, rows, f"without column {column + 1}")
            case _:
                rows[number][column] = str(chance.choice(OTHERS)).encode()
        return _rows(path, rows, f"row {number + 1}, column {column + 1}")
    if path.suffix == ".toml":
        value, where = _other(tomllib.loads(data.decode()), chance)
        try:
            path.write_text(tomli_w.dumps(value))
        except (TypeError, AttributeError):  # TOML has no null
            return _raw(path, chance)
        return where
    return _raw(path, chance)


def _rows(path: Path, rows: list[list[bytes]], told: str) -> str:
    path.write_bytes(b"\r\n".join(map(b",".join, rows)) + b"\r\n")
    return told


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one file below ``folder``; return what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sort = chance.choice(sorted({path.name for path in files}))
    path = chance.choice([path for path in files if path.name == sort])
    told = (_raw if chance.random() < 0.4 else _content)(path, chance)
    return f"{path.relative_to(folder)}: {told}"


# ---------------------------------------------------------------------- commands
def seen(folder: Path) -> None:
    """What `edgefl view` does with the folder before the page asks for anything."""
    feeds = Feeds([folder])
    for name in feeds.ids():
        feed = feeds.get(name)
        assert feed is not None
        for _ in range(3):
            feed.read(1e9)
        feed.look(1e9)
        with suppress(UserError):
            orjson.dumps(feed.news(Seen(), 1e9))
            feed.window(0.0, 1e9, 100)


def view(folder: Path) -> tuple[int, str]:
    seen(folder)
    return 0, ""


def _words(*words: str, below: str = "") -> Callable[[Path], tuple[int, str]]:
    return lambda folder: command(
        *(str(folder.parent / word[1:]) if word.startswith("@") else word for word in words),
        folder / below,
    )


COMMANDS: dict[str, Callable[[Path], tuple[int, str]]] = {
    "compare": _words("compare", "--target", "0.3"),
    "ages": _words("compare", "--age"),
    "report": _words("report", "--out", "@r.html"),
    "plot": _words("plot", "--out", "@a.svg"),
    "plot staleness": _words("plot", "--kind", "staleness", "--out", "@a.svg"),
    "plot timeline": _words("plot", "--kind", "timeline", "--out", "@a.svg", below="fedasync"),
    "parquet": _words("export", "--to", "parquet", "--out", "@p"),
    "perfetto": _words("export", "--to", "perfetto", "--out", "@t.json", below="fedasync"),
    "tensorboard": _words("export", "--to", "tensorboard", "--out", "@b"),
    "replay": _words("replay", below="fedasync"),
    "view": view,
}
RESUME = {"resume": _words("run", "--resume")}
