"""scripts/launch.sh: set-up, installation and launch, with the exit status of the launch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = [pytest.mark.rest, pytest.mark.processes]
NOTES = 'echo "$(basename "$0") $*" >>"$NOTES"\n'


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose programs only note how they were called; `edgefl launch` exits with 3."""
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    for name, text in {
        "scripts/setup_env.sh": NOTES,
        ".venv/bin/edgefl": NOTES + '[ "$1" != launch ] || exit 3\n',
        "scripts/launch.sh": (ROOT / "scripts" / "launch.sh").read_text().partition("\n")[2],
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}")
        path.chmod(0o755)
    return tmp_path


def called(checkout: Path, *words: str, **env: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [checkout / "scripts" / "launch.sh", *words], env=os.environ | env, capture_output=True
    )
    notes = checkout / "notes"
    return done.returncode, notes.read_text().splitlines() if notes.exists() else []


def test_it_sets_up_installs_and_launches(checkout: Path) -> None:
    assert called(checkout, "a lab.toml", "c.toml", "seed=2", "--partial") == (
        3,
        [
            "setup_env.sh ",
            "edgefl hosts install a lab.toml",
            "edgefl launch a lab.toml c.toml seed=2 --partial",
        ],
    )


def test_wheels_and_hosts_that_have_edgefl(checkout: Path) -> None:
    _, notes = called(checkout, "lab.toml", "c.toml", WHEELS="my wheels")
    assert notes[1] == "edgefl hosts install lab.toml --wheels my wheels"
    (checkout / "notes").unlink()
    _, notes = called(checkout, "lab.toml", "c.toml", INSTALL="no")
    assert notes == ["setup_env.sh ", "edgefl launch lab.toml c.toml"]


def test_too_few_words(checkout: Path) -> None:
    assert called(checkout, "lab.toml") == (2, [])
