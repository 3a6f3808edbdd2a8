"""Speeds from a table of devices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emulator import BadValue
from emulator.compute import read_device_table, table_speeds

TABLE = """Model, AI Score ,Latency ms
Pixel 3,100,40
"Galaxy, S9",400,10
Moto G,50.5,1e2

"""


def table(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "phones.csv"
    path.write_text(text)
    return path


def test_a_column_is_read(tmp_path: Path) -> None:
    assert read_device_table(table(tmp_path), "AI Score") == [100, 400, 50.5]
    assert read_device_table(table(tmp_path, "\ufeff" + TABLE), "Latency ms") == [40, 10, 100]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        (TABLE, "AI Scor", "column 'AI Scor' does not exist: did you mean AI Score?"),
        ("", "AI Score", "column 'AI Score' does not exist"),
        (TABLE.replace("400", "fast"), "AI Score", r"line 3 \(Galaxy, S9\): AI Score: .* 'fast'"),
        (TABLE.replace("400", "0"), "AI Score", "line 3 .* a number above 0, found '0'"),
        (TABLE.replace("400", "-4"), "AI Score", "line 3 .* a number above 0, found '-4'"),
        (TABLE.replace("400", "inf"), "AI Score", "line 3 .* a number above 0, found 'inf'"),
        (TABLE.replace("400", "nan"), "AI Score", "line 3 .* a number above 0, found 'nan'"),
        (TABLE.replace(",1e2", ""), "Latency ms", r"line 4 \(Moto G\): .* found ''"),
        ("Model,AI Score\n", "AI Score", "expected 1 to 10000 devices, found 0"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, text: str, column: str, said: str) -> None:
    with pytest.raises(BadValue, match=said) as raised:
        read_device_table(table(tmp_path, text), column)
    assert "phones.csv" in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="none.csv: cannot be read"):
        read_device_table(tmp_path / "none.csv", "AI Score")
    (tmp_path / "phones.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadValue, match="is not UTF-8 text"):
        read_device_table(tmp_path / "phones.csv", "AI Score")


def test_speeds_are_in_proportion_and_each_device_is_as_likely() -> None:
    """Of 1, 2 and 4 the middle is 2: scores give a half, one and two; times the reverse."""
    for measure, double in (("score", 4.0), ("time", 1.0)):
        rng = np.random.default_rng(7)
        speeds = table_speeds(3000, 10.0, [1.0, 2.0, 4.0], measure, rng)
        places = np.random.default_rng(7).integers(3, size=3000)
        counted = Counter(speeds)
        assert counted.keys() == {5.0, 10.0, 20.0}
        assert all(abs(count - 1000) < 150 for count in counted.values())  # 5.8 deviations
        drawn = [[1.0, 2.0, 4.0][place] for place in places]
        assert [speed == 20 for speed in speeds] == [value == double for value in drawn]
    with pytest.raises(BadValue, match="devices 0"):
        table_speeds(0, 10.0, [1.0], "score", np.random.default_rng())
