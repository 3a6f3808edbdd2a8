"""A run on the wall clock: ``edgefl run`` with one method and one seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from edgefl.loading.file import FACTS, dump
from edgefl.results.compare import replace_file
from reproduction.plans import PlannedRun


def do(run: PlannedRun) -> float:
    """Do a run over real sockets, as far as it goes; return its CPU seconds.

    ``--force``: a machine that cannot keep up leaves a strained run, which the page marks.
    """
    before_s = _ended_s()
    folder = run.run.directory.parent
    words = ["run", str(_config(run, folder)), "--force", "--overwrite"]
    words += ["--out", str(folder.parent)]
    subprocess.run([sys.executable, "-m", "edgefl.cli", *words], check=False)
    return _ended_s() - before_s


def _config(run: PlannedRun, folder: Path) -> Path:
    """Write the config of one run, whose results are to be in ``folder``."""
    experiment = run.run.experiment.model_copy(update={"name": folder.name})
    path = folder.with_name(f"{folder.name}.toml")
    replace_file(path, dump(experiment, {FACTS: {"base": str(run.run.base.resolve())}}).encode())
    return path


def _ended_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system
