"""The runs of a report: what their files say about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.toml import parsed
from edgefl.loading.file import FACTS
from edgefl.record.files import EXPERIMENT
from edgefl.results.compare import Row
from edgefl.results.comparison import Comparison
from edgefl.results.figures.base import RunFiles, open_runs


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run. ``name``: of its scheme, ``title``: with the seed if there are several.

    ``summary`` is {} if the run has not ended in order, ``config`` is {} if it is damaged.
    """

    name: str
    title: str
    directory: Path
    row: Row
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the run in its config: clock, commit, host."""
        found = self.config.get(FACTS)
        return found if isinstance(found, dict) else {}


def of_comparison(found: Comparison, paths: Sequence[Path]) -> list[ReportedRun]:
    """Return the runs of a comparison of ``paths``."""
    runs = open_runs(paths)
    return [
        _run(scheme.name, files, row, several=len(scheme.rows) > 1)
        for scheme in found.schemes
        for files, row in zip(runs[scheme.name], scheme.rows)
    ]


def _run(name: str, files: RunFiles, row: Row, several: bool) -> ReportedRun:
    return ReportedRun(
        name=name,
        title=f"{name} seed {row.seed}" if several else name,
        directory=files.path,
        row=row,
        summary=files.summary,
        config=files.config,
    )


def experiments(runs: Iterable[ReportedRun]) -> dict[Path, list[ReportedRun]]:
    """Return the runs by the folder of their experiment, the one that has experiment.toml.

    A run without such a folder, for example one that was copied alone, is by itself.
    """
    found: dict[Path, list[ReportedRun]] = {}
    for run in runs:
        whole = run.directory.resolve()
        above = (folder for folder in whole.parents[:2] if (folder / EXPERIMENT).is_file())
        found.setdefault(next(above, whole), []).append(run)
    return found


def asked(folder: Path) -> dict[str, Any]:
    """Return the tables of an experiment.toml; {} if it is missing or damaged."""
    try:
        return parsed((folder / EXPERIMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
