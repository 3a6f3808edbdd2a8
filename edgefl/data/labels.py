"""Check the labels of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.errors import UserError


def checked(labels: np.ndarray, classes: int, where: Path | str) -> np.ndarray:
    """Return ``labels`` as int64. UserError unless all are 0 to ``classes`` - 1, or if empty."""
    if not len(labels):
        raise UserError(f"{where}: no samples")
    worst = labels.min() if labels.min() < 0 else labels.max()
    if not 0 <= worst < classes:
        raise UserError(f"{where}: label {worst}, expected 0 to {classes - 1}")
    return labels.astype(np.int64)
