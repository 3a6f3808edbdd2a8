"""The folders of runs on a host, and their locks."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edgefl.plugins.launch.run_places import claimed, clear_stale


def test_a_folder_is_its_owners_and_belongs_to_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "launched" / "run-1"
    with claimed(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(FileExistsError), claimed(folder):
            pass


def test_what_killed_agents_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    parent = tmp_path / "launched"
    assert clear_stale(parent) == []
    with claimed(parent / "lives"):
        with claimed(parent / "killed"):
            (parent / "killed" / "keys").mkdir()
        (parent / "early").mkdir()  # its agent was killed before it could lock it
        assert clear_stale(parent) == ["early", "killed"]
        assert [path.name for path in parent.iterdir()] == ["lives"]
