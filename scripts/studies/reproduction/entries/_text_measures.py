"""Numbers of a run on texts: the majority class, F1, and what one update carries."""

from __future__ import annotations

from pathlib import Path

from edgefl.record.files import LABELS, METRICS
from edgefl.results.summary import number
from edgefl.results.tail import read_csv
from edgefl.sweep.metrics import facts_of

MB = 1e6


def majority(run: Path) -> float | None:
    """Return the share of the larger of two labels in the test set, from the run's own files.

    The accuracy is p a1 + (1 - p) a0, where a0 and a1 are the accuracies of the labels and p is the
    share of label 1; p is read where a0 and a1 differ most. None without ``evaluation.by_label``,
    or if they never differ.
    """
    accuracies = {row["version"]: number(row["accuracy"]) for row in read_csv(run / METRICS)}
    found = []
    for row in read_csv(run / LABELS):
        a0, a1, accuracy = (
            number(row["label_0"]),
            number(row["label_1"]),
            accuracies[row["version"]],
        )
        if a0 is not None and a1 is not None and accuracy is not None and a0 != a1:
            found.append((abs(a1 - a0), (accuracy - a0) / (a1 - a0)))
    share = max(found)[1] if found else None
    return None if share is None else max(share, 1.0 - share)


def above_majority(run: Path) -> float | None:
    """Return the final accuracy minus the majority class's."""
    share, accuracy = majority(run), facts_of(run).get("final_accuracy")
    return None if share is None or accuracy is None else float(accuracy) - share


def f1(run: Path) -> float | None:
    """Return the F1 of the last evaluation; None if it was not measured."""
    rows = read_csv(run / METRICS)
    return number(rows[-1].get("f1")) if rows else None


def update_mb(run: Path) -> float | None:
    """Return the megabytes that went up per received update, with all that travels with it."""
    facts = facts_of(run)
    updates = facts["updates_received"]
    return float(facts["bytes_up"]) / updates / MB if updates else None
