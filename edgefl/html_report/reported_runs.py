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
from edgefl.results.figures.base import open_runs
from edgefl.results.run_files import RunFiles


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


def experiments(runs: Iterable[ReportedRun]) -> list[tuple[dict[str, Any], list[ReportedRun]]]:
    """Return the configs that ``runs`` are of, {} if one cannot be read, each with its runs.

    It is the experiment.toml above the runs. Where there is none (old runs, those of a sweep, runs
    that were copied alone), runs whose configs differ only in the seed are one experiment.
    """
    begun: dict[Path, list[ReportedRun]] = {}
    alone: list[tuple[dict[str, Any], list[ReportedRun]]] = []
    for run in runs:
        folders = run.directory.resolve().parents[:2]
        above = next((folder for folder in folders if (folder / EXPERIMENT).is_file()), None)
        if above is not None:
            begun.setdefault(above, []).append(run)
            continue
        same = next((of for config, of in alone if config == without_seed(run.config)), None)
        if same is None:
            alone.append((without_seed(run.config), same := []))
        same.append(run)
    return [
        *((_asked(folder) or of[0].config, of) for folder, of in begun.items()),
        *((_of_seeds(of), of) for _, of in alone),
    ]


def without_seed(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without its seeds and without facts about one run."""
    return {key: value for key, value in config.items() if key not in ("seed", "seeds", FACTS)}


def _of_seeds(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """Return the config of runs that differ in their seeds at most."""
    config = runs[0].config
    seeds = list(dict.fromkeys(run.config.get("seed") for run in runs))
    if len(seeds) == 1:
        return config
    return {
        "seeds" if key == "seed" else key: seeds if key == "seed" else value
        for key, value in config.items()
    }


def _asked(folder: Path) -> dict[str, Any]:
    """Return the tables of an experiment.toml; {} if it is damaged."""
    try:
        return parsed((folder / EXPERIMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
