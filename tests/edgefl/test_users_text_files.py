"""All text files of users: UTF-8 with or without a byte order mark, with any ends of lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefl import catalog
from edgefl.clocks.wall import keys
from edgefl.config import file as config_file
from edgefl.data import leaf, shakespeare, text_tables, words
from edgefl.data.words import TextOptions
from edgefl.errors import UserError
from edgefl.plugins.flower.flower_app import app_folder
from edgefl.plugins.launch import inventory
from emulator import plain_text
from emulator.availability import recorded_presence
from emulator.capacity.trace import read_trace
from emulator.compute import read_device_table
from emulator.errors import BadValue
from emulator.lab.topology import read_topology
from emulator.traces.formats import converted, format_of

CONFIG = '# café\nname = "a"\nstop = { versions = 2 }\n[[strategies]]\nstrategy = "fedavg"\n'
ROWS = '{"text": "café", "label": "pos"}\n{"text": "no", "label": "neg"}\n'
IRISH = "Timestamp,DL_bitrate,UL_bitrate,x\n2019.1.1_10.00.00,72,1,a\n2019.1.1_10.00.01,9,1,a\n"
LEAF = json.dumps(
    {
        "users": ["a"],
        "num_samples": [1],
        "user_data": {"a": {"x": [[0.0, 1.0, 1.0, 0.0]], "y": [1]}},
    }
)
OWN = 'from edgefl.api import Strategy\n\n\nclass Café(Strategy):\n    """Mine."""\n'
APP = '[tool.flwr.app]\n[tool.flwr.app.components]\nclientapp = "app:café"\n'


def _leaf(path: Path) -> Any:
    (path.parent / "leaf" / "test").mkdir(parents=True, exist_ok=True)
    (path.parent / "leaf" / "train").mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        (path.parent / "leaf" / part / "all.json").write_bytes(path.read_bytes())
    return leaf.load(path.parent, leaf.Options()).train_x.tolist()


def _allowed(path: Path) -> Any:
    folder = path.parent / "keys"
    keys.new(folder, ["a"])
    (folder / "allowed.json").write_bytes(path.read_bytes())
    (folder / "allowed.json").chmod(0o600)
    return keys.load_server(folder).allowed


def _shakespeare(path: Path) -> Any:
    options = shakespeare.Options(length=2, stride=1, test_share=0.3)
    return shakespeare.load(path.parent, options).train_x.tolist()


def _vocabulary(path: Path) -> Any:
    return words.from_file(path.parent, TextOptions(vocabulary=9, vocabulary_file=path.name))


def _own_class(path: Path) -> Any:
    name = f"{path}:Café"
    return catalog.find("edgefl.strategies", name, "Strategy", path.parent, "strategy").__doc__


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "config.toml": (CONFIG, lambda path: config_file.load(path).name),
    "hosts.toml": ('[[hosts]]\nhost = "a"\nedges = 2\n', lambda path: _hosts(path)),
    "pyproject.toml": (APP, lambda path: str(app_folder(f"flower:{path.parent}", [Path()]).client)),
    "allowed.json": ("{}\n", _allowed),
    "input.txt": ("A:\ncafé, all of it\n\nB:\nno, not a bit\n", _shakespeare),
    "own.py": (OWN, _own_class),
    "words.txt": ("yes\nno\n", _vocabulary),
    "rows.jsonl": (ROWS, lambda path: text_tables.table(path, ["text", "label"])),
    "rows.json": (f"[{ROWS.strip().replace(chr(10), ',')}]\n", lambda path: _table(path)),
    "rows.csv": ("text,label\ncafé,pos\nno,neg\n", lambda path: _table(path)),
    "rows.tsv": ("text\tlabel\ncafé\tpos\nno\tneg\n", lambda path: _table(path)),
    "labelled.jsonl": (ROWS, lambda path: _labelled(path)),
    "labelled.csv": ("text,label\ncafé,pos\nno,neg\n", lambda path: _labelled(path)),
    "leaf.json": (f"{LEAF}\n", _leaf),
    "devices.csv": ("device,score\ncafé,10\nb,20\n", lambda path: read_device_table(path, "score")),
    "away.csv": ("edge,begin_s,end_s\na,0,10\n", lambda path: str(recorded_presence(path))),
    "away.json": (
        '{"a": {"active": [0], "inactive": [5], "finish_time": 10}}\n',
        lambda path: str(recorded_presence(path)),
    ),
    "trace.csv": ("seconds,bit_s\n0,8000\n1,9000\n", lambda path: read_trace(path).mean_bit_s),
    "trace.txt": ("1\n3\n5\n", lambda path: read_trace(path).mean_bit_s),
    "irish.csv": (IRISH, lambda path: (format_of(path), converted(path, "irish-5g").steps)),
    "topology.toml": ('[[hosts]]\nname = "a"\n', lambda path: read_topology(path).hosts),
}


def _hosts(path: Path) -> Any:
    return [(host.name, host.edges) for host in inventory.load_inventory(path).hosts]


def _table(path: Path) -> Any:
    return text_tables.table(path, ["text"], labels=["label"])


def _labelled(path: Path) -> Any:
    texts, labels, _ = text_tables.from_file(path, {"neg": 0, "pos": 1}, "film")
    return texts, labels.tolist()


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_crlf_and_a_blank_last_line_change_nothing(
    name: str, tmp_path: Path
) -> None:
    text, read = READERS[name]
    (tmp_path / "plain").mkdir()
    (tmp_path / "windows").mkdir()
    plain, windows = tmp_path / "plain" / name, tmp_path / "windows" / name
    plain.write_bytes(text.encode())
    windows.write_bytes(b"\xef\xbb\xbf" + f"{text}\n".replace("\n", "\r\n").encode())
    assert read(windows) == read(plain)


@pytest.mark.parametrize("name", [name for name in READERS if name != "own.py"])
@pytest.mark.parametrize(
    ("encoding", "wrong"), [("utf-16", "byte 0 is 0xff, as in UTF-16"), ("latin-1", "")]
)
def test_another_encoding_is_one_line_with_the_byte(
    name: str, encoding: str, wrong: str, tmp_path: Path
) -> None:
    text, read = READERS[name]
    changed = text.rstrip("\n") + "ä\n"
    (tmp_path / name).write_bytes(changed.encode(encoding))
    wrong = wrong or f"byte {len(changed.encode('latin-1')) - 2} is 0xe4, as in Latin-1"
    if encoding == "latin-1" and "é" in text:
        wrong = f"byte {text.index('é')} is 0xe9, as in Latin-1"
    with pytest.raises((UserError, BadValue)) as caught:
        read(tmp_path / name)
    message = str(caught.value)
    named = {"leaf.json": "all.json"}.get(name, name)
    assert f"{named}: is not UTF-8 text ({wrong}): save it as UTF-8" in message
    assert "\n" not in message


def test_text_as_utf_16_without_a_mark_is_told_by_its_nul_bytes() -> None:
    with pytest.raises(BadValue, match="x: is not UTF-8 text .byte 1 is 0x00, as in UTF-16"):
        plain_text.decoded("ab".encode("utf-16-le"), "x")


def test_only_line_feeds_and_carriage_returns_end_a_line() -> None:
    """U+2028 is part of a text; the byte of a wrong line counts from the start of the file."""
    raw = ["\ufeffa\u2028b\n".encode(), b"c\rd\r\n", b"\n"]
    assert list(plain_text.lines(raw, "x")) == ["a\u2028b\n", "c\r", "d\r\n", "\n"]
    with pytest.raises(BadValue, match=r"x: is not UTF-8 text \(byte 5 is 0xff"):
        list(plain_text.lines([b"abc\n", b"d\xff"], "x"))
