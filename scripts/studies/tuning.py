"""Tuning in a study: one short run for each point of each method, on a separate seed.

The best point has the highest mean of the last ten accuracies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trials import Study, Trial, tell

from edgefl.sweep.choice import Tried, best_of
from edgefl.sweep.metrics import metric
from edgefl.sweep.settings import Setting

METRIC, POINT = metric("convergence_accuracy"), "point"
SEED = 11  # used in no table
COLUMNS = ("method", "point", "accuracy", "final_accuracy", "versions", "best")

Points = Mapping[str, Mapping[str, Any]]  # name of a point -> its options


@dataclass(frozen=True, slots=True)
class Tuning:
    """A trial of all points; ``methods``: label -> (entry of the config, points)."""

    name: str
    base: Path
    methods: Mapping[str, tuple[Mapping[str, Any], Points]]
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trial(self) -> Trial:
        """All points in one trial, so that each worker does whole runs."""
        entries = [
            {**entry, **options, "label": run_name(label, point)}
            for label, (entry, points) in self.methods.items()
            for point, options in points.items()
        ]
        return Trial(self.name, self.base, entries, self.changes)

    def best(self, ours: Study, title: str) -> tuple[bool, dict[str, str]]:
        """Run what is missing and show the table.

        Return (whether all runs succeeded, best point of each method with a result).
        """
        trial, alone = self.trial, replace(ours, seeds=(SEED,))
        whole = alone.do([trial])
        best: dict[str, str] = {}
        rows: list[tuple[Any, ...]] = []
        for label, (_, points) in self.methods.items():
            found = {
                point: each
                for point in points
                for each in alone.results(trial, run_name(label, point))
            }
            reached = {point: each.convergence_accuracy for point, each in found.items()}
            tried = [Tried(Setting(((POINT, name),)), value) for name, value in reached.items()]
            top = best_of(tried, METRIC)
            if top is not None:
                best[label] = top.setting[POINT]
            stars = {point: "*" if best.get(label) == point else None for point in found}
            rows += [
                (label, point, reached[point], each.final_accuracy, each.versions, stars[point])
                for point, each in found.items()
            ]
        tell(f"{title}, seed {SEED}", COLUMNS, rows, ours.folder / f"{self.name}.csv")
        return whole, best


def run_name(label: str, point: str) -> str:
    """Return the name of a point's run."""
    return f"{label}-at-{point}"
