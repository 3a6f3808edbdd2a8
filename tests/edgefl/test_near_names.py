"""Messages that name what was meant: bytes and bits, tables, files in the place of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.results.run_files import find
from emulator.compute import read_device_table
from emulator.errors import BadValue
from emulator.units import parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1MB", "expected bits: 8mbit"),
        ("1MB/s", "expected bits: 8mbit"),
        ("125kB", "expected bits: 1mbit"),
        ("1MiB", "expected bits: 8.388608mbit"),
        ("2Mbps", "expected 2mbit or 16mbit"),
        ("2mbt", "did you mean mbit?"),
    ],
)
def test_a_rate_in_bytes_is_named_in_bits(text: str, expected: str) -> None:
    with pytest.raises(BadValue, match=expected.replace("?", r"\?")):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("8mbit", "bytes: 1MB"), ("2Mb", "expected 250kB or 2MB")]
)
def test_a_size_in_bits_is_named_in_bytes(text: str, expected: str) -> None:
    with pytest.raises(BadValue, match=expected):
        parse_size(text)


def test_a_file_is_no_directory_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("a,b\n")
    with pytest.raises(UserError, match=r"table\.csv: is a file, expected the directory of a run"):
        find([file])


def test_a_device_table_in_json(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text('[{"device": "a"}]')
    with pytest.raises(BadValue, match="is JSON, expected CSV"):
        read_device_table(file, "score")
