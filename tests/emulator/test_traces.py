"""Published traces: each format, copies that are checked and converted, and statistics."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from emulator.capacity.trace import Trace, read_trace, statistics_of
from emulator.cli import run
from emulator.commands import traces as command
from emulator.errors import BadValue
from emulator.figures import rate_figure
from emulator.traces.formats import FORMATS, Recording, any_trace, converted, format_of, held
from emulator.traces.published import PUBLISHED, PublishedTrace, digest
from emulator.units import NS_PER_S

# three of the four lines that the publisher's page shows
HSDPA = """1289406399 549692 59.851754 10.781778 248069 1008
1289406400 550772 59.851864 10.781833 191698 1080
1289406401 551773 59.851964 10.781901 280579 1001
"""
METS = "3.97,Mbits/sec\n375,Kbits/sec\n0.00,bits/sec\n"
STARLINK = """timestamp_start,timestamp_end,server,ip_protocol,transport_protocol,download,upload,\
priority,average_speed,download_mbps,upload_mbps
2024-01-11 10:06:39,2024-01-11 10:06:40,192.0.2.1,v4,UDP,101856000,7448000,1,0,101.856,7.448
2024-01-11 10:06:40,2024-01-11 10:06:41,192.0.2.1,v4,UDP,67160000,,1,0,67.16,
2024-01-11 10:07:22,2024-01-11 10:07:23,192.0.2.1,v4,UDP,0,12718000,1,0,0,12.718
"""
IRISH = """Timestamp,Longitude,Latitude,Speed,NetworkMode,CQI,RSSI,DL_bitrate,UL_bitrate,State
2019.12.16_13.40.04,-8.39,51.88,0,5G,15,-90,72,20,D
2019.12.16_13.40.05,-8.39,51.88,0,5G,15,-90,0,0,D
2019.12.16_13.40.05,-8.39,51.88,0,5G,15,-90,9000,0,D
2019.12.16_13.40.07,-8.39,51.88,0,5G,15,-90,250000,300,D
"""
FCC = """unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec,objects
7,2016-06-01 02:00:00,example.org,192.0.2.1,1000,9,3000,1
7,2016-06-01 01:00:00,example.org,192.0.2.1,1000,9,1000,1
8,2016-06-01 01:00:00,example.org,192.0.2.1,1000,9,5000,1
"""
TEXTS = {
    "hsdpa": HSDPA,
    "nyu-mets": METS,
    "starlink-road": STARLINK,
    "irish-5g": IRISH,
    "fcc-webget": FCC,
}


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


def test_hsdpa_is_bytes_over_ms_and_nyu_mets_has_a_unit_in_each_row(tmp_path: Path) -> None:
    steps = [
        (round(248069 * 8000 / 1008), 1_008_000_000),
        (round(191698 * 8000 / 1080), 1_080_000_000),
        (round(280579 * 8000 / 1001), 1_001_000_000),
    ]
    empty = "1289406402 552893 59.85 10.78 0 0\n"
    assert read("hsdpa", HSDPA + empty, tmp_path) == Recording(
        steps, ("1 lines of 0 ms are left out",)
    )
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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("hsdpa", "", "empty"),
        ("hsdpa", HSDPA + "1 2 3\n", "line 4: expected 6 columns"),
        ("hsdpa", HSDPA + HSDPA, "line 4: its time is 2.081 s before that of the row above"),
        ("hsdpa", "1 2 3 4 1e308 1e-9\n", "line 1: expected 6 columns with ms, bytes and ms"),
        ("nyu-mets", "3.97,Mbits/sec\n4,Mbytes/sec\n", "line 2: expected a rate and its unit"),
        ("nyu-mets", "1e308,Gbits/sec\n", "line 1: expected a rate and its unit"),
        ("starlink-road", "", "expected columns timestamp_start"),
        ("starlink-road", STARLINK.replace("10:07:22", "10:06:01"), "its time is 39 s before"),
        ("starlink-road", STARLINK.replace("67160000", "fast"), "line 3: expected a time and"),
        ("irish-5g", IRISH.replace(",9000,", ",-,"), "line 4: expected a time and a rate"),
        ("irish-5g", IRISH.replace(",9000,", ",1e306,"), "line 4: expected a time and a rate"),
        ("fcc-webget", FCC + "9,2016-06-01 01:00:00\n", "line 5: expected unit_id,dtime"),
        ("fcc-webget", FCC + "9" * 200_000, "is no CSV (field larger than field limit"),
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


ARCHIVE = "5G-production-dataset.zip"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small file under each name that these tests take, and their checksums."""
    folder = tmp_path / "copies"
    folder.mkdir()
    for name, text in {
        "Verizon-LTE-short.up": "1\n4\n",
        "Verizon-LTE-short.down": "2\n2\n5\n",
        "iperf.csv": STARLINK,
        "bus57.csv": METS,
        "report.2010-09-28_1407CEST.log": HSDPA,
    }.items():
        (folder / name).write_text(text)
    with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
        archive.writestr(PUBLISHED["irish-5g-static"].files[0].member, IRISH)
    catalog = {name: _small(entry, folder) for name, entry in PUBLISHED.items()}
    monkeypatch.setattr(command, "PUBLISHED", catalog)
    return folder


def _small(entry: PublishedTrace, folder: Path) -> PublishedTrace:
    """The entry with the checksums of the small files, where it has any."""
    files = tuple(
        replace(file, checksum=sha256((folder / file.name).read_bytes()))
        if file.checksum and (folder / file.name).is_file()
        else file
        for file in entry.files
    )
    return replace(entry, files=files)


def told(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["traces", *words]) == status, words
    out, error = capsys.readouterr()
    assert status == 0 or (out, error.count("\n")) == ("", 1)
    return out + error


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("verizon-lte-short", ["verizon-lte-short.down", "verizon-lte-short.up"]),
        ("starlink-road", ["starlink-road.down.csv", "starlink-road.up.csv"]),
        ("irish-5g-static", ["irish-5g-static.down.csv"]),
    ],
)
def test_copies_become_traces_for_a_config(
    name: str, files: list[str], copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "traces"
    said = told(["get", name, "--from", str(copies), "--to", str(to)], 0, capsys)
    assert sorted(path.name for path in to.iterdir()) == sorted([*files, f"{name}.json"])
    for file in files:
        assert read_trace(to / file).period_ns > 0 and str(to / file) in said
    entry = PUBLISHED[name]
    about = json.loads((to / f"{name}.json").read_text())
    assert (about["licence"], about["citation"]) == (
        entry.collection.licence,
        entry.collection.citation,
    )
    assert all(each["checksum"] in said for each in about["files"])
    assert said.splitlines()[-1].startswith("Next: look at it: emulator traces show ")


def test_a_checksum_that_differs(
    copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copies / "bus57.csv").write_text(METS + "1,Mbits/sec\n")
    words = ["get", "nyu-mets-bus", "--from", str(copies), "--to", str(tmp_path / "to")]
    said = told(words, 2, capsys)
    assert f"{copies / 'bus57.csv'}: its checksum sha256:" in said
    assert "differs from the published, sha256:" in said
    assert (copies / "bus57.csv").exists() and not (tmp_path / "to").exists()


def test_without_a_published_checksum_the_first_get_records_it(
    copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = copies / "report.2010-09-28_1407CEST.log"
    words = ["get", "hsdpa-bus", "--from", str(copies), "--to", str(tmp_path / "to")]
    first = sha256(log.read_bytes())
    assert f"{first} (recorded now: the publisher gives none)" in told(words, 0, capsys)
    assert f"{first} (as expected)" in told(words, 0, capsys)
    log.write_text(HSDPA.splitlines()[0] + "\n")
    assert f"differs from that of the first get in {tmp_path / 'to' / 'hsdpa-bus.json'}" in told(
        words, 2, capsys
    )


@pytest.mark.processes
def test_the_id_of_git_is_a_checksum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\nb\n")
    git = subprocess.run(
        ["git", "hash-object", str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert digest(tmp_path / "file", "git-sha1") == f"git-sha1:{git.stdout.strip()}"


def test_what_is_wrong_with_a_get(
    copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin, to = ["--from", str(copies)], ["--to", str(tmp_path / "to")]
    assert "published trace 'verizon-lte-shot' does not exist: did you mean verizon-lte" in told(
        ["get", "verizon-lte-shot"], 2, capsys
    )
    assert "no file TMobile-LTE-short.up there" in told(
        ["get", "tmobile-lte-short", *origin, *to], 2, capsys
    )
    assert "fcc-webget has no address of one file: get a file curr_webget*.csv" in told(
        ["get", "fcc-webget", *to], 2, capsys
    )
    for month in ("05", "06"):
        (copies / f"curr_webget_2016_{month}.csv").write_text("")
    assert "expected one file curr_webget*.csv, found curr_webget_2016_05.csv, curr" in told(
        ["get", "fcc-webget", *origin, *to], 2, capsys
    )
    with zipfile.ZipFile(copies / ARCHIVE, "w") as archive:
        archive.writestr("else.csv", IRISH)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "hsdpa-bus.json").write_text("{}")
    assert "hsdpa-bus.json: expected the file that a get wrote; delete it" in told(
        ["get", "hsdpa-bus", *origin, *to], 2, capsys
    )


def test_the_catalog_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(["list"], 0, capsys)
    for name, entry in PUBLISHED.items():
        collection = entry.collection
        assert all(text in said for text in (name, entry.title, collection.licence))
        assert collection.format_name in (*FORMATS, "mahimahi") and collection.citation in said
        for file in entry.files:
            kind, _, value = file.checksum.partition(":")
            assert (kind, len(value)) in (("sha256", 64), ("git-sha1", 40), ("", 0))
            assert file.url.startswith("https://") or file.pattern
            # an address without a commit can change, so a checksum of it would be a guess
            assert not kind or any(len(part) == 40 for part in file.url.split("/"))
    assert "the first get records it: hsdpa-bus, fcc-webget\n" in said


def test_show_tells_numbers_draws_and_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drive.csv").write_text("0,4000000\n2,0\n3,\n")
    assert told(["show", "drive.csv"], 0, capsys).splitlines() == [
        "trace drive.csv repeats every 3 s",
        "mean rate   2.667 Mbit/s",
        "windows     3 of 1 s: p5 0 bit/s  p25 0 bit/s  p50 4 Mbit/s  p75 4 Mbit/s  p95 4 Mbit/s",
        "outage      33.3 % of windows below 100 kbit/s, the longest 1 s",
        "silent      1 s of a period (33.3 %), in 1 part, the longest: 1 s from 2 s on",
        "Next: a transfer along it: emulator transfer 1MB --trace drive.csv",
    ]
    Path("iperf.csv").write_text(STARLINK)
    said = told(["show", "iperf.csv", "--direction", "up", "--csv", "up.csv"], 0, capsys)
    assert "note        1 pauses between" in said and "no window below 100 kbit/s" in said
    assert read_trace(Path("up.csv")).segment(0)[0] == 7_448_000
    assert told(["show", "up.csv", "--figure", "up.svg"], 0, capsys).endswith("Next: open up.svg\n")
    assert Path("up.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing.csv", "trace nothing.csv: cannot be read (No such file"),
        ("drive.csv --window 0s", "--window 0s: expected more than 0"),
        ("drive.csv --format hspda", "format 'hspda' does not exist: did you mean hsdpa"),
        ("drive.csv --figure a.gif", "--figure a.gif: expected a name that ends in .png"),
        ("drive.csv --csv a.txt", "--csv a.txt: expected a name that ends in .csv"),
        ("drive.csv --csv a.csv", "drive.csv is a trace for a config as it is"),
        ("drive.csv --series 1/a", "--series is not for the format csv"),
    ],
)
def test_what_is_wrong_with_a_show(
    line: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drive.csv").write_text("0,4000000\n2,0\n3,\n")
    assert words in told(["show", *line.split()], 2, capsys)


S, MBIT = NS_PER_S, 1_000_000


def test_by_hand() -> None:
    steps = [(4 * MBIT, 2 * S), (0, 3 * S), (8 * MBIT, S), (0, S), (2 * MBIT, 3 * S)]
    numbers = statistics_of(Trace(steps), S, 100_000)
    assert numbers.rates_bit_s == [4 * MBIT] * 2 + [0] * 3 + [8 * MBIT, 0] + [2 * MBIT] * 3
    assert numbers.mean_bit_s == 2.2 * MBIT
    assert numbers.percentiles == {5: 0, 25: 0, 50: 2 * MBIT, 75: 4 * MBIT, 95: 8 * MBIT}
    assert (numbers.outage_share, numbers.longest_outage_ns) == (0.4, 3 * S)
    assert statistics_of(Trace(steps), S, 3 * MBIT).outage_share == 0.7
    assert statistics_of(Trace(steps), 2 * S, 1).rates_bit_s == [
        4 * MBIT,
        0,
        4 * MBIT,
        MBIT,
        2 * MBIT,
    ]
    # also where a window has a part of a byte
    assert statistics_of(Trace([(7, S)]), S // 1000, 5).rates_bit_s == [7] * 1000


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<")])
@pytest.mark.slow
def test_a_figure_is_the_same_bytes_twice(kind: str, begin: bytes) -> None:
    numbers = statistics_of(Trace([(4 * MBIT, 2 * S), (0, 3 * S)]), S, 100_000)
    drawn = rate_figure(numbers, "a < b", kind)
    assert drawn.startswith(begin) and drawn == rate_figure(numbers, "a < b", kind)
