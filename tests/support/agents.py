"""An agent of a host as a process of the test."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import psutil
from builders import experiment
from paths import ROOT

from edgefl.clocks.processes import ONE_THREAD
from edgefl.config.experiment import Experiment
from edgefl.config.file import to_json
from edgefl.plugins.launch.agent_messages import (
    AgentReady,
    EdgesPrepared,
    EdgeStarted,
    PrepareEdges,
    StartEdges,
    from_line,
    to_line,
)

PATIENCE_S = 60.0
NOWHERE = "tcp://127.0.0.1:1"  # nothing listens there, so edges look for their coordinator
Report = TypeVar("Report")


class AgentProcess:
    """Speaks with an agent in ``folder`` like the launcher."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgefl.plugins.launch.agent", str(folder), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": str(ROOT)},
        )
        self.heard: list[Any] = []
        self._reports: queue.Queue[Any] = queue.Queue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._reports.put(from_line(line.rstrip(b"\n")))
        self._reports.put(None)

    def say(self, order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(to_line(order))
        self.process.stdin.flush()

    def hear(self, kind: type[Report]) -> Report:
        """Return the next report of this kind."""
        while (report := self._reports.get(timeout=PATIENCE_S)) is not None:
            self.heard.append(report)
            if isinstance(report, kind):
                return report
        raise AssertionError(f"no {kind.__name__} came, but {self.heard}")

    def start(self, *edges: str, restarts: int = 0, address: str = NOWHERE) -> list[int]:
        """Start edges, and return their pids."""
        self.hear(AgentReady)
        self.say(prepared(*edges, restarts=restarts))
        assert self.hear(EdgesPrepared).problem == ""
        self.say(StartEdges(address))
        return [self.hear(EdgeStarted).pid for _ in edges]

    def hang_up(self) -> None:
        """Lose the connection."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> int:
        """Wait for its end, and return its exit status."""
        return self.process.wait(PATIENCE_S)


def prepared(*edges: str, restarts: int = 0, of: Experiment | None = None) -> PrepareEdges:
    whole = of or experiment(edges={"names": edges})
    config = to_json(whole, whole.strategies[0])
    return PrepareEdges(edges, config, None, None, None, (), restarts, 0)


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
