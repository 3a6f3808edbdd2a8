"""The logs of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.plugins.launch import host_session
from edgefl.plugins.launch.host_session import HostLogs


def read(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in (folder / "hosts").iterdir()}


def test_lines_before_the_folder_is_ours_are_kept(tmp_path: Path) -> None:
    logs = HostLogs(lambda: 1.5)
    logs.add("pi-1", "", "early")
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / "old.log").write_text("of an earlier run\n")
    (tmp_path / "hosts" / "notes.txt").write_text("mine\n")
    logs.open(tmp_path)
    logs.add("pi-1", "pi-1-2", "pi-1-2: training\x1b[31m\nred")
    logs.add("pi-2", "pi-2", "late")
    assert read(tmp_path) == {
        "notes.txt": ["mine"],
        "pi-1.log": ["     1.500 -: early", "     1.500 pi-1-2: training\\x1b[31m red"],
        "pi-2.log": ["     1.500 pi-2: late"],
    }


def test_a_host_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_session, "MOST_LOG_BYTES", 100)
    logs = HostLogs(lambda: 0.0)
    logs.open(tmp_path)
    for _ in range(50):
        logs.add("pi-1", "", "x" * 20)
    logs.add("pi-2", "", "a short one")
    found = read(tmp_path)
    assert len(found["pi-1.log"]) == 3 and found["pi-1.log"][-1].startswith("the log ends here")
    assert len(found["pi-2.log"]) == 1
