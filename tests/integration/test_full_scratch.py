"""No room for temporary files, for the cache, or for an agent: one clear line each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import start
from terminals import end

pytestmark = pytest.mark.processes

PAGE = 4096


@pytest.fixture
def scratch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of temporary files with little room, and room for few files."""
    disk = folder / "scratch"
    disk.mkdir()
    command = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={6 * PAGE},nr_inodes=16",
        "edgefl-test",
        str(disk),
    ]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small file system")
    monkeypatch.setenv("TMPDIR", str(disk))
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_run_without_room_for_temporary_files_is_refused_with_a_line(
    scratch: Path, started: list[subprocess.Popen[str]]
) -> None:
    # 64 -> 64 -> 10: 20 kB, and its layout does not fit any more
    status, _, err = end(start(started, "run", "small.toml", "model.hidden=[64]"))
    line = "cannot be written (No space left on device); $TMPDIR may name another folder for"
    assert status == 2 and err.count("\n") == 1 and line in err, err
    assert not list(scratch.glob("edgefl-*")) and not Path("runs").exists()


def test_a_machine_without_any_room_for_temporary_files_is_a_line(
    scratch: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has no usable folder then. Here its candidates are missing."""
    program = (
        "import sys, tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere'];"
        "from edgefl.cli import main; main()"
    )
    words = ["run", "small.toml", "--clock", "wall"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    line = (
        "a temporary file cannot be written (No usable temporary directory found in ['/nowhere'])"
    )
    assert line in done.stderr


def test_an_agent_without_room_for_its_folder_says_so(scratch: Path) -> None:
    with suppress(OSError):
        for number in range(100):
            (scratch / f"filler-{number}").touch()
    argv = [
        sys.executable,
        "-m",
        "edgefl.plugins.launch.agent",
        str(scratch / "launched" / "run-1"),
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    line = f"{scratch}/launched/run-1: cannot be written (No space left on device)\n"
    assert done.stderr == line
