"""Numbers of a run with stragglers: what the slowest devices' data gain, what the server keeps."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from edgefl.record.files import EVENTS
from edgefl.reports import by_label as labels
from edgefl.results.tail import read_events

LAST = 10  # evaluations
LONG = "long"  # the slowest runtime class; with mild delay "long (mild)"


def long_accuracy(run: Path) -> float | None:
    """Return the mean of the last accuracies on the data of the slowest class of devices.

    None without such devices, or without ``evaluation.by_label``.
    """
    slow = [points for name, points in labels.by_runtime(run).items() if name.startswith(LONG)]
    return fmean(accuracy for _, accuracy in slow[0][-LAST:]) if slow and slow[0] else None


def checkpoints(run: Path) -> float | None:
    """Return the largest number of models from which devices were training at one time."""
    return max(_reported(run, "checkpoints"), default=None)


def alpha(run: Path) -> float | None:
    """Return the mean weight of the KL divergence over the rounds."""
    found = _reported(run, "alpha")
    return fmean(found) if found else None


def _reported(run: Path, key: str) -> list[float]:
    """Return the numbers ``key`` that the strategy has reported."""
    return [
        decision["values"][key]
        for event in read_events(run / EVENTS)
        for decision in event.get("decisions", ())
        if decision["do"] == "report" and key in decision["values"]
    ]
