"""Scripts of this project, started like a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT

PATIENCE_S = 300.0  # far more than needed, because a busy machine may be slow


def ran(script: Path, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
