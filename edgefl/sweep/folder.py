"""The folder of a sweep: sweep.toml, where the runs are, and the lock while a command writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgefl import __version__
from edgefl.config.experiment import Experiment
from edgefl.config.toml import parsed
from edgefl.errors import UserError, listed, undamaged
from edgefl.hosts.setup.resumption import MOST_DIFFERENCES, RunFolder, differences, digests
from edgefl.hosts.setup.rundir import writable
from edgefl.loading.file import FACTS, dump
from edgefl.record.files import EVENTS, EXPERIMENT, SWEEP
from edgefl.results.compare import replace_file
from edgefl.results.rundirs import seed_name
from edgefl.sweep.settings import GridAxis

REPEATED = ("seed", "seeds", FACTS)  # keys that may differ from an earlier command's


class SweepFolder:
    """The folder ``path`` of sweeps of one config.

    ``path``/SCHEME/seedN has the runs of the table. Runs that only choose the best setting are in
    ``path``/choice,seedN, so that no comparison of the folder shows them.
    """

    def __init__(self, path: Path, experiment: Experiment, base: Path) -> None:
        self.path, self.experiment, self.base = path, experiment, base

    def directory(self, scheme: str, seed: int, chooses: bool) -> Path:
        """Return the directory of a run."""
        above = self.path / f"choice,{seed_name(seed, True)}" if chooses else self.path
        return above / scheme / seed_name(seed, True)

    def check(self, axes: Sequence[GridAxis]) -> None:
        """Raise UserError if the folder is not that of a sweep of this config.

        Keys of ``axes`` may differ, because each setting has its own.
        """
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UserError(f"--out {self.path}: is no directory")
        if not (self.path / SWEEP).is_file():
            self._check_foreign()
            return
        with undamaged(self.path / SWEEP):
            then = parsed((self.path / SWEEP).read_text(encoding="utf-8"))
            facts = then[FACTS]
            version, own = str(facts["edgefl"]), dict(facts["digests"])
        if version != __version__:
            raise UserError(
                f"{self.path}: was made by edgefl {version}, and this is edgefl {__version__}:"
                " expected another --out"
            )
        changed = [name for name, digest in self._digests().items() if own.get(name) != digest]
        if changed:
            raise UserError(
                f"{self.path}: {listed(changed)} has changed since the sweep began: expected"
                " another --out"
            )
        now = _by_name(self.experiment.model_dump(exclude_none=True))
        but = (*REPEATED, *(_key_by_name(axis.key, self.experiment) for axis in axes))
        found = differences(now, _common(_by_name(then), now), but)
        if found:
            raise UserError(
                f"--out {self.path}: is a sweep of another config, choose another --out:"
                f" {listed(found, MOST_DIFFERENCES)}"
            )

    def _check_foreign(self) -> None:
        """Raise UserError if the folder has results of something else."""
        taken = [self.path / EXPERIMENT, *self.path.glob(f"*/{EVENTS}")]
        there = next((path for path in taken if path.is_file()), None)
        if there is not None:
            raise UserError(
                f"--out {self.path}: has runs and no {SWEEP}, so it is no sweep's folder: expected"
                " another --out"
            )

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make and lock the folder, and write sweep.toml.

        UserError if another command writes to the folder.
        """
        with locked(self.path):
            facts = {
                "command": "sweep",
                "base": str(self.base.resolve()),
                "edgefl": __version__,
                "digests": self._digests(),
            }
            replace_file(self.path / SWEEP, dump(self.experiment, {FACTS: facts}).encode())
            yield

    def _digests(self) -> dict[str, str]:
        return digests(self.experiment, self.base)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make ``folder`` and lock it. UserError if another command writes to it."""
    with writable(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    lock = RunFolder(folder)
    lock.lock()
    try:
        yield
    finally:
        lock.release()


def _by_name(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a config with its strategies by name, so that their order is free."""
    entries = {
        entry.get("label") or entry["strategy"]: entry for entry in tables.get("strategies", [])
    }
    return {**tables, "strategies": entries}


def _common(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``then`` with exactly the strategies of ``now``: others may come and go."""
    entries = {
        name: then["strategies"].get(name, entry) for name, entry in now["strategies"].items()
    }
    return {**then, "strategies": entries}


def _key_by_name(key: str, experiment: Experiment) -> str:
    """Return "strategies.NAME.mu" for "strategies.0.mu"; NAME as in ``_by_name``."""
    table, _, rest = key.partition(".")
    place, dot, option = rest.partition(".")
    if table != "strategies" or not rest:
        return key
    for number, entry in enumerate(experiment.strategies):
        if place in (str(number), entry.name):
            return f"strategies.{entry.label or entry.strategy}{dot}{option}"
    return key
