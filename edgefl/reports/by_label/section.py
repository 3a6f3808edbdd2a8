"""Accuracy on the data of each runtime class of devices.

It is the sum over labels of (share of the class's samples with this label) x (label's accuracy).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.record.files import EDGES, LABELS
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

ALL = "all"  # devices without runtime classes

Points = list[tuple[float, float]]  # (emulated s, accuracy)


def by_runtime(run: Path) -> dict[str, Points]:
    """Return accuracy over time by runtime class of edges.csv, sorted by name.

    {} for a run without evaluation.by_label.
    """
    held: dict[str, np.ndarray] = {}
    for row in read_csv(run / EDGES):
        counts = np.array(
            [int(value) for key, value in row.items() if key.startswith("label_")], dtype=np.float64
        )
        name = row["runtime"] or ALL
        held[name] = held[name] + counts if name in held else counts
    rows = sorted(read_csv(run / LABELS), key=lambda row: float(row["emulated_s"]))
    return (
        {
            name: [(float(row["emulated_s"]), _accuracy(row, counts)) for row in rows]
            for name, counts in sorted(held.items())
        }
        if rows
        else {}
    )


def _accuracy(row: dict[str, str], counts: np.ndarray) -> float:
    """Return the weighted accuracy over the labels that the test set has."""
    known = [number(value) for key, value in row.items() if key.startswith("label_")]
    pairs = [(share, count) for share, count in zip(known, counts) if share is not None]
    return sum(share * count for share, count in pairs) / max(sum(count for _, count in pairs), 1.0)
