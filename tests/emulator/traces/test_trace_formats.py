"""Each published format on small files made by hand from its description; refused input."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_texts import FCC, HSDPA, IRISH, METS, STARLINK, TEXTS

from emulator.capacity.trace import read_trace
from emulator.errors import BadValue
from emulator.traces.read_file import FORMATS, any_trace, converted, format_of
from emulator.traces.recording import Recording, held
from emulator.units import NS_PER_S

S = NS_PER_S


def read(
    format_name: str, text: str, folder: Path, way: str | None = None, series: str | None = None
) -> Recording:
    path = folder / "recorded.txt"
    path.write_text(text)
    return converted(path, format_name, way, series)


def test_every_format_is_tried_here_and_known_by_its_first_line(tmp_path: Path) -> None:
    assert TEXTS.keys() == FORMATS.keys()
    for name, text in TEXTS.items():
        path = tmp_path / "recorded.csv"
        path.write_text(text)
        assert format_of(path) == name
    (tmp_path / "fcc.csv").write_text(FCC.partition("\n")[2])  # the old files have no header
    assert format_of(tmp_path / "fcc.csv") == "fcc-webget"
    (tmp_path / "a.trace").write_text("1\n3\n")
    (tmp_path / "a.csv").write_text("0,1\n3,1\n")
    assert [format_of(tmp_path / name) for name in ("a.trace", "a.csv")] == ["mahimahi", "csv"]


def test_hsdpa_is_bytes_over_ms(tmp_path: Path) -> None:
    steps = read("hsdpa", HSDPA, tmp_path).steps
    assert steps == [
        (round(248069 * 8000 / 1008), 1_008_000_000),
        (round(191698 * 8000 / 1080), 1_080_000_000),
        (round(280579 * 8000 / 1001), 1_001_000_000),
    ]
    empty = "1289406402 552893 59.85 10.78 0 0\n"
    assert read("hsdpa", HSDPA + empty, tmp_path) == Recording(
        steps, ("1 lines of 0 ms are left out",)
    )


def test_nyu_mets_has_a_unit_in_each_row(tmp_path: Path) -> None:
    assert read("nyu-mets", METS, tmp_path).steps == [(3_970_000, S), (375_000, S), (0, S)]


def test_starlink_has_both_ways_and_its_pauses_are_cut_out(tmp_path: Path) -> None:
    down, up = (read("starlink-road", STARLINK, tmp_path, way) for way in ("down", "up"))
    assert down.steps == [(101_856_000, S), (67_160_000, S), (0, S)]
    assert down.remarks == ("1 pauses between measurements are cut out, 0.0114 h in all",)
    assert up.steps == [(7_448_000, S), (12_718_000, S)]  # the row without an uplink is left out


def test_irish_rows_of_one_second_share_it_and_the_uplink_is_refused(tmp_path: Path) -> None:
    down = read("irish-5g", IRISH, tmp_path)
    assert down.steps == [(72_000, S), (0, S), (9_000_000, S), (250_000_000, S)]
    assert "UL_bitrate is not a capacity" in down.remarks[-1]
    with pytest.raises(BadValue, match="UL_bitrate is not a capacity: nothing was uploaded"):
        read("irish-5g", IRISH, tmp_path, "up")


def test_fcc_downloads_of_one_home_follow_each_other(tmp_path: Path) -> None:
    longest = read("fcc-webget", FCC, tmp_path)
    assert longest.steps == [(8_000, 5 * S), (24_000, 5 * S)]
    assert longest.remarks[0] == "series 7/example.org, 2 downloads, one of 2 series"
    assert read("fcc-webget", FCC, tmp_path, series="8/example.org").steps == [(40_000, 5 * S)]
    with pytest.raises(BadValue, match="no series '9': expected UNIT/TARGET, such as 7/example"):
        read("fcc-webget", FCC, tmp_path, series="9")


def test_a_rate_holds_until_the_next_row() -> None:
    rows = [(10, 1), (12, 2), (12, 3), (13, 4), (40, 5)]
    assert held(rows, "t", longest_s=5).steps == [
        (1, 2 * S),
        (2, S // 2),
        (3, S // 2),
        (4, S),  # 26 s without a row are cut out
        (5, S),
    ]
    assert sum(length for _, length in held(rows, "t", longest_s=100).steps) == 31 * S


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_written_is_a_trace_with_the_same_steps(name: str, tmp_path: Path) -> None:
    recording = read(name, TEXTS[name], tmp_path)
    (tmp_path / "written.csv").write_text(recording.csv())
    trace = read_trace(tmp_path / "written.csv")
    assert trace.period_ns == sum(length for _, length in recording.steps)
    at_ns = 0
    for rate_bit_s, length_ns in recording.steps:
        assert {trace.segment(at_ns)[0], trace.segment(at_ns + length_ns - 1)[0]} == {rate_bit_s}
        at_ns += length_ns


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("hsdpa", "", "empty"),
        ("hsdpa", HSDPA + "1 2 3\n", "line 4: expected 6 columns"),
        ("hsdpa", HSDPA + HSDPA, "line 4: its time is 2.081 s before that of the row above"),
        ("nyu-mets", "", "empty"),
        ("nyu-mets", "3.97,Mbits/sec\n4,Mbytes/sec\n", "line 2: expected a rate and its unit"),
        ("nyu-mets", "-1,Mbits/sec\n", "line 1: expected a rate and its unit"),
        ("starlink-road", "", "expected columns timestamp_start"),
        ("starlink-road", STARLINK.splitlines()[0], "empty"),
        ("starlink-road", STARLINK.replace("10:07:22", "10:06:01"), "its time is 39 s before"),
        ("starlink-road", STARLINK.replace("67160000", "fast"), "line 3: expected a time and"),
        ("irish-5g", "a,b\n", "expected columns Timestamp, DL_bitrate"),
        ("irish-5g", IRISH.replace("13.40.07", "13.39.59"), "line 5: its time is 6 s before"),
        ("irish-5g", IRISH.replace(",9000,", ",-,"), "line 4: expected a time and a rate"),
        ("fcc-webget", "", "empty"),
        ("fcc-webget", FCC + "9,2016-06-01 01:00:00\n", "line 5: expected unit_id,dtime"),
    ],
)
def test_bad_files_are_one_line_with_the_place(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadValue) as caught:
        read(name, text, tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "recorded.txt") in message and words in message and "\n" not in message


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadValue, match="format 'hspda' does not exist: did you mean hsdpa"):
        converted(tmp_path / "binary.csv", "hspda")
    with pytest.raises(BadValue, match="is not UTF-8 text"):
        converted(tmp_path / "binary.csv", "hsdpa")
    with pytest.raises(BadValue, match="is not UTF-8 text"):
        format_of(tmp_path / "binary.csv")
    with pytest.raises(BadValue, match=r"cannot be read \(No such file"):
        converted(tmp_path / "nothing", "hsdpa")
    (tmp_path / "a.log").write_text(HSDPA)
    with pytest.raises(BadValue, match="direction 'up': expected down"):
        converted(tmp_path / "a.log", "hsdpa", "up")
    (tmp_path / "a.trace").write_text("1\n3\n")
    with pytest.raises(BadValue, match="--direction is not for the format mahimahi"):
        any_trace(tmp_path / "a.trace", None, "up", None)
    with pytest.raises(BadValue, match=r"expected a name that ends in \.csv"):
        any_trace(tmp_path / "a.trace", "csv", None, None)
