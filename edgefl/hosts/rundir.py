"""Opening and closing a run directory: the resolved config in front, the summary at the end; both hosts use it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import save_file

from edgefl.config import Experiment
from edgefl.config_file import dump
from edgefl.config_names import own_names
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.journal import BLOBS, LINES, Journal
from edgefl.coordinator.record import Record
from edgefl.errors import UserError
from edgefl.hosts.plan import strategy
from edgefl.vectors import Layout
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S

FLUSH_S = 0.5
WRITTEN_LATE = ("summary.json", "model.safetensors", f"journal/{LINES}", f"journal/{BLOBS}")  # or not at all: none may be left from an earlier run


class OpenRun:
    """One strategy's run directory with its record, and the coordinator that writes to it."""

    def __init__(self, experiment: Experiment, index: int, directory: Path, base: Path | None, weights: np.ndarray, layout: Layout) -> None:
        self.experiment, self.entry, self.directory, self.base = experiment, experiment.strategies[index], directory, base
        self._started_s = self._flushed_s = time.monotonic()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{directory}: cannot be made ({error.strerror}); expected --out DIR that can be written") from error
        for name in WRITTEN_LATE:
            (directory / name).unlink(missing_ok=True)
        self.record = Record(directory, lambda: time.monotonic() - self._started_s, self._journal(weights, layout))
        self.coordinator = Coordinator(strategy(experiment, self.entry, base, weights, layout), experiment, self.record)

    def start_wall(self) -> None:
        """Emulated time 0 is now: wall seconds count from here, without the joining before."""
        self._started_s = time.monotonic()

    def begin(self, clock: str, fidelity: Fidelity) -> None:
        """config.toml says what is run, by what and on what."""
        self.start_wall()
        facts = {"strategy": self.entry.name, "clock": clock, "git_commit": git_commit(), "host": fidelity.host}
        if self.base is not None and own_names(self.experiment):
            facts["base"] = str(self.base.resolve())  # where that code lies
        (self.directory / "config.toml").write_text(dump(self.experiment, {"run": facts}), encoding="utf-8")

    def end(self, clock: str, emulated_ns: int, wall_s: float, fidelity: dict[str, Any]) -> dict[str, Any]:
        """Write what is left and return the summary."""
        head = {
            "strategy": self.entry.strategy,
            "label": self.entry.name,
            "clock": clock,
            "seed": self.experiment.seed,
            "finished": self.coordinator.finished,
            "versions": self.coordinator.version,
            "emulated_s": emulated_ns / NS_PER_S,
            "wall_s": round(wall_s, 3),
            "fidelity": fidelity,
        }
        return self.record.close(head, self.coordinator.weights, self.experiment.evaluation.target_accuracy)

    @property
    def wall_s(self) -> float:
        return self.record.wall_s()

    def flush_now_and_then(self) -> None:
        """Readers see the files at most FLUSH_S late, if this is called often."""
        if time.monotonic() - self._flushed_s >= FLUSH_S:
            self._flushed_s = time.monotonic()
            self.record.flush()

    def _journal(self, weights: np.ndarray, layout: Layout) -> Journal | None:
        if not self.experiment.record.payloads:
            return None
        journal = Journal(self.directory / "journal")
        save_file({"weights": weights}, self.directory / "journal" / "initial.safetensors")
        (self.directory / "journal" / "layout.json").write_bytes(orjson.dumps(layout.to_json()))
        return journal


def git_commit() -> str:
    """The checkout's commit, with "+" if it has changes; "unknown" outside one."""
    folder = Path(__file__).parent
    try:
        text = subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=folder, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return text.stdout.strip() or "unknown"
