"""An entry of the papers as the contents of an artifact, and verdicts as its checker reads them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from paths import ROOT
from reproduction import artifact, registry
from reproduction.book import Book

from edgefl.errors import UserError
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.contents import Contents

NAME = "seed1-table1"


@pytest.fixture(scope="module")
def contents() -> Contents:
    return artifact.contents(NAME)


def test_an_entry_brings_its_programs_configs_and_one_command(contents: Contents) -> None:
    assert {"scripts/studies/reproduce.py", "scripts/studies/reproduction/papers/tdma.toml"} <= set(
        contents.files
    )
    assert any(name.startswith("configs/tdma/") for name in contents.files)
    assert f"expected/data/{NAME}.csv" in contents.files
    (line,) = contents.commands
    assert f"--entry {NAME} --scale paper" in line and "--verdicts results/verdicts.csv" in line
    (study,) = contents.studies
    assert study.name == f"{NAME}-main" and study.config["edges"]["count"] == 20


def test_the_committed_results_pass_its_claims(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(ROOT / "docs" / "results" / "data")
    entry = registry.find(NAME)
    Book([entry], ROOT / "docs" / "results" / "data").write_verdicts(
        tmp_path / "verdicts.csv", [entry]
    )
    rows = list(csv.DictReader((tmp_path / "verdicts.csv").open()))
    assert len(rows) == len(entry.claims) and {row["entry"] for row in rows} == {NAME}
    found = [check.check(claim, tmp_path, True) for claim in contents.claims]
    assert len(found) > len(rows) and all(each.passed for each in found), check.report(found, True)
    assert not any(claim["exact"] for claim in contents.claims), "another commit made the runs"


def test_an_unknown_entry_and_one_without_runs_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no such directory, and no entry .nearest: 'seed1-table1'"):
        artifact.contents("seed1-tabel1")
    monkeypatch.setattr(artifact, "DATA", tmp_path)
    with pytest.raises(UserError, match="seed1-table1: has no runs yet"):
        artifact.contents(NAME)
