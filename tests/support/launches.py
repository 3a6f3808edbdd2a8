"""Launches on hosts of this machine, and what must be left of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from agents import lives
from processes import PATIENCE_S, start, wait_for

LOCAL = """
[defaults]
via = "local"
python = "{python}"
folder = "{folder}"
[[hosts]]
host = "box-1"
edges = 2
[[hosts]]
host = "box-2"
"""


def inventory(folder: Path, text: str = LOCAL) -> Path:
    """Write an inventory of hosts whose work folders are in ``folder``/work."""
    path = folder / "lab.toml"
    path.write_text(text.format(python=sys.executable, folder=folder / "work"))
    return path


def launch(
    started: list[subprocess.Popen[str]], *words: str, config: str = "small.toml"
) -> subprocess.Popen[str]:
    return start(started, "launch", "lab.toml", config, *words)


def agents(folder: Path) -> list[psutil.Process]:
    """The agents of hosts whose work folders are in ``folder``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "edgefl.plugins.launch.agent" in words and words[-1].startswith(str(folder)):
            found.append(process)
    return [each for each in found if not _is_edge(each)]


def _is_edge(process: psutil.Process) -> bool:
    """Whether it is a fork of an agent; also for a process that has just ended."""
    try:
        parent = process.parent()
        return parent is not None and parent.cmdline() == process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return not lives(process.pid)


def agent(folder: Path, host: str) -> psutil.Process:
    """Wait for the agent of one host."""
    (found,) = wait_for(
        lambda: [each for each in agents(folder) if f"/{host}/" in each.cmdline()[-1]]
    )
    return found


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs that are left on the hosts."""
    return list((folder / "work").glob("*/launched/*"))


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """After the block, agents and edges end, and their folders are removed."""
    yield
    wait_for(lambda: not agents(folder) and not run_folders(folder))


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err
