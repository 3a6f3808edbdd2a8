"""Fixtures for tests of whole commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import SMALL


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which holds a small experiment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path
