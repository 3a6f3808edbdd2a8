"""What is there when a command writes its own files stays beside them, and is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.commands.aside import kept_aside


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("report.html", "report.1.html", "report.2.html"),
        ("trace.json.gz", "trace.1.json.gz", "trace.2.json.gz"),
        ("my.runs.png", "my.runs.1.png", "my.runs.2.png"),
    ],
)
def test_a_file_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, first: str, second: str
) -> None:
    path = tmp_path / name
    for text in ("one", "two", "three"):
        with kept_aside([path], overwrite=False):
            path.write_text(text)
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {name: "three", first: "one", second: "two"}
    said = "".join(capsys.readouterr().out.split())
    assert said == "".join(
        f"{path}:theearlieroneisnow{tmp_path / each}" for each in (first, second)
    ).replace(" ", "")


def test_nothing_is_kept_with_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    path.write_text("one")
    with kept_aside([path], overwrite=True):
        path.write_text("two")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert capsys.readouterr().out == ""


def test_a_folder_is_kept_whole(tmp_path: Path) -> None:
    folder = tmp_path / "parquet"
    folder.mkdir()
    with kept_aside([folder], overwrite=False):
        (folder / "events.parquet").write_text("one")
    assert [each.name for each in tmp_path.iterdir()] == ["parquet"], "it was empty"
    with kept_aside([folder], overwrite=False):
        folder.mkdir()
    assert not any(folder.iterdir())
    assert (tmp_path / "parquet.1" / "events.parquet").read_text() == "one"


@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_leaves_all_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: bool
) -> None:
    path = tmp_path / "out"
    if folder:
        path.mkdir()
    inner = path / "file" if folder else path
    inner.write_text("one")
    with pytest.raises(ValueError), kept_aside([path], overwrite=False):
        raise ValueError
    assert inner.read_text() == "one" and [each.name for each in tmp_path.iterdir()] == ["out"]
    assert capsys.readouterr().out == ""
