"""The commands, started like a user does in several terminals."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import psutil
from processes import PATIENCE_S, start, wait_for


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    """Wait until all processes have ended; a zombie counts as ended."""
    return wait_for(
        lambda: all(
            not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            for process in processes
        )
    )


class Terminals:
    """A coordinator without a fleet, and edges that connect to it."""

    def __init__(self, started: list[subprocess.Popen[str]], config: str, *words: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.started = started
        self.coordinator = start(
            started, "coordinator", config, f"network.port={self.port}", *words
        )
        wait_for(lambda: list(Path.cwd().glob("runs/*/*/config.toml")))

    def edge(self, name: str, *words: str, cold: bool = False) -> subprocess.Popen[str]:
        address = f"tcp://127.0.0.1:{self.port}"
        words = ("edge", "--connect", address, "--id", name, *words)
        return start(self.started, *words, cold=cold)
