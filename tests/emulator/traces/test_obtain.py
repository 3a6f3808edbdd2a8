"""``emulator traces``: copies are checked and converted, or one line says what is wrong."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from trace_texts import HSDPA, IRISH, METS, STARLINK

from emulator.capacity.trace import read_trace
from emulator.cli import run
from emulator.commands import traces as command
from emulator.traces.obtain import digest
from emulator.traces.published import PUBLISHED, PublishedTrace
from emulator.traces.read_file import FORMATS

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
        ("nyu-mets-bus", ["nyu-mets-bus.csv"]),
        ("irish-5g-static", ["irish-5g-static.down.csv"]),
        ("hsdpa-bus", ["hsdpa-bus.down.csv"]),
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


def test_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pooch, requests = pytest.importorskip("pooch"), pytest.importorskip("requests")

    def refuse(*arguments: object, **options: object) -> None:
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    said = told(["get", "nyu-mets-bus", "--to", str(tmp_path)], 2, capsys)
    assert "bus57.csv: cannot be reached (its page: https://github.com/NYU-METS/Main;" in said


def test_a_download_is_checked_and_removed_if_it_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pooch = pytest.importorskip("pooch")

    def retrieve(url: str, known_hash: None, fname: str, path: Path) -> str:
        (path / fname).write_text(METS)
        return str(path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    words = ["get", "nyu-mets-bus", "--to", str(tmp_path)]
    assert "differs from the published" in told(words, 2, capsys)
    assert not (tmp_path / "raw" / "bus57.csv").exists()


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
        ("drive.csv --outage 0bit", "expected at least 1 bit/s"),
        ("drive.csv --format hspda", "format 'hspda' does not exist: did you mean hsdpa"),
        ("drive.csv --figure a.gif", "--figure a.gif: expected a name that ends in .png"),
        ("drive.csv --figure no/a.png", "--figure no/a.png: expected a file in a folder that"),
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
