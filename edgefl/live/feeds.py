"""The runs that the page can show: those in the given folders, also ones that appear later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError
from edgefl.live.link_bins import CapacityAt
from edgefl.live.run_feed import RunFeed
from edgefl.live.run_model import metric_points
from edgefl.live.series import ThinnedItems
from edgefl.record.files import CONFIG, METRICS, SUMMARY
from edgefl.results import rundirs
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

MOST_RUNS = 200  # served, and offered
MOST_OF_SEED = 1000  # evaluations of a seed in a band
DEPTH = 3  # folders below a given one in which a run may be: NAME/STRATEGY/SEED


class Feeds:
    """A feed for each run in ``paths`` or below, with ids r1, r2, ... in order.

    ``capacity_of``: see ``RunFeed``.
    """

    def __init__(self, paths: Sequence[Path], capacity_of: Callable[[Path], CapacityAt]) -> None:
        self.paths = [path.absolute() for path in paths]
        self._given = {path.absolute(): path for path in paths}
        self._capacity_of = capacity_of
        self._feeds: dict[Path, RunFeed] = {}
        self._ids: dict[str, Path] = {}
        self.look()

    def look(self) -> bool:
        """Look for runs in the folders; whether a new one is there."""
        before = len(self._feeds)
        for path in self.paths:
            for run in runs_below(path):
                if run not in self._feeds and len(self._feeds) < MOST_RUNS:
                    self._feeds[run] = RunFeed(run, self._capacity_of)
                    self._ids[f"r{len(self._ids) + 1}"] = run
        return len(self._feeds) > before

    def add(self, text: str) -> None:
        """Serve the runs of one more folder. UserError if it holds none, or is no folder."""
        path = Path(text).expanduser()
        check(path)
        if path.absolute() not in self.paths:
            self.paths.append(path.absolute())
            self._given[path.absolute()] = path
        self.look()

    def get(self, name: str) -> RunFeed | None:
        """Return the feed with this id, or None."""
        run = self._ids.get(name)
        return None if run is None else self._feeds[run]

    def ids(self) -> list[str]:
        return list(self._ids)

    def told(self, clock_s: float) -> list[dict[str, Any]]:
        """Return a row about each run, for the page. ``clock_s``: Unix time."""
        names = self._names()
        for feed in self._feeds.values():
            feed.look(clock_s)
        return [
            {
                "id": name,
                "name": names[run],
                "path": str(self._shown(run)),
                "experiment": (facts := self._feeds[run].model.facts).experiment,
                "strategy": facts.strategy,
                "seed": facts.seed,
                "clock": facts.clock,
                "state": self._feeds[run].state,
            }
            for name, run in self._ids.items()
            if run.is_dir()  # else a new run has taken the place of earlier ones
        ]

    def seeds(self, name: str) -> list[dict[str, Any]]:
        """Return the evaluations of all seeds of a run's strategy; [] if it has one seed.

        A row per seed: its id, ``metrics`` as the page gets them, in order of emulated time, and
        ``end_s``, the emulated second at which it has ended; None while it runs.
        """
        run = self._ids.get(name)
        if run is None or not rundirs.SEED.fullmatch(run.name):
            return []
        group = [each for each, its in self._ids.items() if its.parent == self._ids[name].parent]
        if len(group) == 1:
            return []
        score = self._feeds[run].model.facts.score
        found = []
        for each in group:
            kept: ThinnedItems[list[float | None]] = ThinnedItems(MOST_OF_SEED)
            rows = read_csv(self._ids[each] / METRICS)
            for point in sorted(metric_points(rows, score), key=lambda point: point[1] or 0.0):
                kept.add(point)
            found.append({"id": each, "metrics": kept.since(0), "end_s": _end_s(self._ids[each])})
        return found

    def nearby(self) -> list[str]:
        """Return folders with other runs: of the same experiments, and of those next to them."""
        experiments: dict[Path, None] = {}
        for path in self.paths:
            beside = path.parent.parent if rundirs.runs_of(path) else path.parent
            if beside != beside.parent:  # not all of the file system
                experiments |= dict.fromkeys(_folders_in(beside))
        schemes = (scheme for folder in experiments for scheme in _folders_in(folder))
        others = (
            str(scheme)
            for scheme in schemes
            if (runs := rundirs.runs_of(scheme)) and not any(run in self._feeds for run in runs)
        )
        return list(islice(others, MOST_RUNS))

    def _names(self) -> dict[Path, str]:
        """The shortest names that tell the runs apart."""
        names: dict[Path, str] = {}
        for run in self._feeds:
            same = [each for each in self._feeds if rundirs.title(each) == rundirs.title(run)]
            names[run] = rundirs.title(run) if len(same) == 1 else _longer(run)
        return names

    def _shown(self, run: Path) -> Path:
        """The path of a run in the form that the user gave."""
        for path, given in self._given.items():
            if run.is_relative_to(path):
                return given / run.relative_to(path)
        return run


def check(path: Path) -> None:
    """UserError if ``path`` is no folder with a run in it."""
    if not path.is_dir():
        raise rundirs.missing(path)
    if not any(True for _ in runs_below(path.absolute())):
        raise UserError(
            f"{path}: no run in it: expected the directory of a run, such as"
            " runs/quickstart/fedasync, or a folder with such directories"
        )


def runs_below(folder: Path, depth: int = DEPTH) -> Iterable[Path]:
    """Yield the run directories in a folder, in order of names; also those that have only begun."""
    if rundirs.is_run(folder) or (folder / CONFIG).is_file():
        yield folder
        return
    if depth == 0:
        return
    for each in _folders_in(folder):
        yield from runs_below(each, depth - 1)


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, in order of names; [] if it cannot be read."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
    except OSError:  # no permission, or removed
        return []


def _end_s(run: Path) -> float | None:
    """The emulated second at which a run has ended; None as long as it has no summary."""
    try:
        return number(orjson.loads((run / SUMMARY).read_bytes()).get("emulated_s"))
    except (OSError, ValueError, AttributeError):  # not written yet, or damaged
        return None


def _longer(run: Path) -> str:
    """ "quickstart/fedavg seed 3": the name with the experiment's folder."""
    above = run.parents[1] if rundirs.SEED.fullmatch(run.name) else run.parent
    return f"{above.name}/{rundirs.title(run)}"
