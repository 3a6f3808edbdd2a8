"""What the folder of an experiment says about a resumption: which runs are finished, broken off
or not begun, and why they cannot be resumed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from edgefl import __version__
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, listed
from edgefl.hosts.clock_names import VIRTUAL
from edgefl.hosts.setup import origin as origins
from edgefl.hosts.setup.interruptions import with_patterns
from edgefl.hosts.setup.origin import Origin, digests, origin_of
from edgefl.hosts.setup.run_folder import RunFolder
from edgefl.loading.file import FACTS, load
from edgefl.record.files import CONFIG, EVENTS, EXPERIMENT, SUMMARY, SWEEP
from edgefl.results.rundirs import read_config, runs_of, seed_name, title
from edgefl.results.summary import BROKEN_OFF

MOST_NEAR = 5  # folders in an error line
MOST_DIFFERENCES = 3
MOST_NAMED = 6  # runs in a line
# keys of a run's config.toml that the command has chosen, so that they may differ
CHOSEN = ("seed", "seeds", "speed", "network.host", "network.port", "run")


class RunStage(StrEnum):
    finished = "finished"
    broken_off = "broken off"
    not_begun = "not begun"


@dataclass(frozen=True, slots=True)
class RunPart:
    """One strategy with one seed; ``config``: the tables of its config.toml."""

    index: int
    seed: int
    directory: Path
    stage: RunStage
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        return title(self.directory)


@dataclass(frozen=True, slots=True)
class Resumption:
    """The experiment in a folder, and its runs in the order in which they are done.

    ``asked`` is the experiment of the file. ``experiment`` has the speed that the run has chosen,
    and its port if edges elsewhere know it. ``speed_auto``: that speed was chosen for
    ``speed = "auto"``.
    """

    folder: Path
    asked: Experiment
    experiment: Experiment
    origin: Origin
    runs: tuple[RunPart, ...]
    speed_auto: bool = False

    @property
    def file(self) -> Path:
        return self.folder / EXPERIMENT

    @property
    def command(self) -> str:
        """What the user types to resume it."""
        return self.origin.resumed_by(self.folder)

    def of(self, stage: RunStage) -> list[RunPart]:
        return [run for run in self.runs if run.stage is stage]

    def keys(self) -> Path | None:
        """The folder of the run's keys; None if it has none. UserError if it is not there now."""
        keys = self.origin.keys
        if keys is not None and not keys.is_dir():
            raise UserError(
                f"{self.folder}: its keys were in {keys}, which is no directory now: expected"
                " --keys DIR"
            )
        return keys

    def told(self) -> str:
        """Say in one line what is done and what was done before."""
        parts = {
            "going on with": self.of(RunStage.broken_off),
            "finished before:": self.of(RunStage.finished),
            "still to run:": self.of(RunStage.not_begun),
        }
        said = [
            f"{word} {listed([run.name for run in runs], MOST_NAMED)}"
            for word, runs in parts.items()
            if runs
        ]
        return f"resuming {self.folder}: {'; '.join(said)}"


def run_stage(directory: Path) -> RunStage:
    """Return how far the run in ``directory`` got. An interrupted run is broken off."""
    try:
        summary = orjson.loads((directory / SUMMARY).read_bytes())
        reason = summary.get("finished") if isinstance(summary, dict) else None
    except (OSError, orjson.JSONDecodeError):
        reason = None
    if reason is not None and reason not in BROKEN_OFF:
        return RunStage.finished
    # config.toml is the first file: a run without a whole one was killed before it began
    return RunStage.broken_off if read_config(directory) else RunStage.not_begun


# ---------------------------------------------------------------------- reading a folder
def read_resumption(given: Path) -> Resumption:
    """Read the folder of an experiment, or of one of its runs.

    UserError if it is no run, if a command writes to it now, if its runs are of another version of
    edgefl or of another config, or if own code or a trace has changed.
    """
    folder = experiment_folder(given)
    origin = origin_of(folder)
    if origin.edgefl != __version__:
        raise UserError(
            f"{folder}: was begun by edgefl {origin.edgefl}, and this is edgefl {__version__}:"
            " expected the same version to resume it"
        )
    experiment = load(folder / EXPERIMENT)
    RunFolder(folder, resume=True).refuse_if_in_use()
    _check_digests(folder, experiment, origin)
    runs = runs_in(folder, experiment)
    for run in runs:
        _check_same(experiment, run, origin.base)
    chosen, speed_auto = _chosen(experiment, origin, runs)
    return Resumption(folder, experiment, chosen, origin, runs, speed_auto)


def runs_in(folder: Path, experiment: Experiment) -> tuple[RunPart, ...]:
    """Return the runs of the experiment, in the order in which they are done."""
    several = len(experiment.by_seed()) > 1
    return tuple(
        RunPart(index, one.seed, directory, run_stage(directory), read_config(directory))
        for one in experiment.by_seed()
        for index, entry in enumerate(experiment.strategies)
        for directory in [folder / entry.name / seed_name(one.seed, several)]
    )


def experiment_folder(given: Path) -> Path:
    """Return the folder with experiment.toml: ``given``, or the one that ``given`` is a run of.

    UserError if there is none; it names the nearest folders that can be resumed.
    """
    try:
        whole = given.resolve()
        for up, folder in enumerate((whole, *whole.parents[:2])):
            if (folder / EXPERIMENT).is_file():
                return given if up == 0 else Path(os.path.normpath(given / Path(*[".."] * up)))
        if not given.exists():
            raise UserError(f"--resume {given}: no such directory{_near(given)}")
        if not given.is_dir():
            raise UserError(f"--resume {given}: is no directory{_near(given)}")
        if any((folder / SWEEP).is_file() for folder in (whole, *whole.parents[:3])):
            raise UserError(
                f"--resume {given}: is of a sweep: give the edgefl sweep command again; it skips"
                " finished runs and goes on with broken ones"
            )
        if runs_of(given) or any(runs_of(child) for child in given.iterdir()):
            raise UserError(
                f"--resume {given}: has no {EXPERIMENT}, from which runs are resumed: it was"
                " removed, or an older edgefl began them"
            )
    except OSError as error:
        raise UserError(f"--resume {given}: cannot be read ({error.strerror})") from error
    raise UserError(
        f"--resume {given}: is no run: expected the directory of an experiment, such as runs/NAME,"
        f" or of one of its runs{_near(given)}"
    )


def _near(given: Path) -> str:
    """ " (nearest: runs/quick)": folders near ``given`` that can be resumed; "" if none."""
    places = dict.fromkeys((given, given.parent, given.parent.parent, Path("runs")))
    found = {child.name: child for place in places for child in _resumable_in(place)}
    close = get_close_matches(given.name, found, n=1)
    if close:
        return f" (nearest: {found[close[0]]})"
    newest = sorted(found.values(), key=lambda path: -(path / EXPERIMENT).stat().st_mtime)
    return f" (there: {listed([*map(str, newest)], MOST_NEAR)})" if newest else ""


def _resumable_in(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (child for child in sorted(place.iterdir()) if (child / EXPERIMENT).is_file())


def _chosen(
    experiment: Experiment, origin: Origin, runs: Sequence[RunPart]
) -> tuple[Experiment, bool]:
    """The experiment with speed and port of its latest run; whether the speed was chosen."""
    begun = [run for run in runs if run.stage is not RunStage.not_begun]
    if not begun or origin.clock == VIRTUAL:
        return experiment, False
    changes: dict[str, Any] = {}
    latest = begun[-1].config
    if experiment.speed == "auto":
        speed = latest.get("speed")
        if not isinstance(speed, float):
            file = begun[-1].directory / CONFIG
            raise UserError(
                f"{file}: speed: expected the number that the run has chosen, found {speed!r}"
            )
        changes["speed"] = speed
    port = latest.get(FACTS, {}).get("port")
    if origin.command != origins.RUN and isinstance(port, int):
        changes["network"] = experiment.network.model_copy(update={"port": port})
    return experiment.model_copy(update=changes), experiment.speed == "auto"


# ---------------------------------------------------------------------- what must be the same
def _check_digests(folder: Path, experiment: Experiment, origin: Origin) -> None:
    now = digests(experiment, origin.base)
    changed = [name for name, digest in now.items() if origin.digests.get(name) != digest]
    if changed:
        gone = [name for name in changed if not now[name]]
        what = f"{listed(gone)} is missing" if gone else f"{listed(changed)} has changed"
        raise UserError(
            f"{folder}: {what} in {origin.base} since the run began: expected the same code and"
            " traces to resume it"
        )


def _check_same(experiment: Experiment, run: RunPart, base: Path) -> None:
    if run.stage is RunStage.not_begun:
        _check_begun(run.directory)
        return
    if run.config.get("edges", {}).get("availability", {}).get("patterns") is not None:
        # with edges on other machines, the run's config has the times in place of the file
        experiment = with_patterns(experiment.model_copy(update={"seed": run.seed}), base)
    found = differences(experiment.model_dump(exclude_none=True), run.config, CHOSEN)
    if found:
        raise UserError(
            f"{run.directory / CONFIG}: is of another config than {EXPERIMENT} above it:"
            f" {listed(found, MOST_DIFFERENCES)}"
        )


def _check_begun(directory: Path) -> None:
    """Raise UserError if a run without a whole config.toml has rows: they would be removed."""
    rows = directory / EVENTS
    if rows.is_file() and rows.stat().st_size:
        raise UserError(
            f"{directory / CONFIG}: is missing or damaged, but the run has begun: bring the file"
            f" back, or remove {directory}, and it runs anew"
        )


def differences(
    now: Mapping[str, Any], then: Mapping[str, Any], but: Sequence[str] = ("run",)
) -> list[str]:
    """Return what differs, except in the keys ``but``: "training.epochs is 2, the run has 1"."""
    flat_now, flat_then = dict(_flat(now)), dict(_flat(then))
    keys = dict.fromkeys((*flat_now, *flat_then))
    return [
        f"{key} is {_said(flat_now, key)}, the run has {_said(flat_then, key)}"
        for key in keys
        if flat_now.get(key) != flat_then.get(key)
        and not any(key == each or key.startswith(f"{each}.") for each in but)
    ]


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, (list, tuple)) and any(isinstance(each, Mapping) for each in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{key}[{number}]")
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def _said(values: Mapping[str, Any], key: str) -> str:
    return str(values[key]) if key in values else "not given"


def digest_facts(data: str, frozen: str) -> dict[str, str]:
    """Return the facts of a run that ``check_data`` compares with those of its resumption."""
    return {"data_digest": data, **({"frozen_digest": frozen} if frozen else {})}


def check_data(directory: Path, digest: str, frozen_digest: str = "") -> None:
    """Raise UserError if the run in ``directory`` had other data, other shares of them, or other
    frozen weights.
    """
    facts = read_config(directory).get(FACTS, {})
    then, frozen = facts.get("data_digest"), facts.get("frozen_digest", "")
    if frozen != frozen_digest:
        raise UserError(
            f"{directory}: the frozen weights in model.path have changed since the run began"
            f" (digest {frozen or 'none'}, now {frozen_digest or 'none'}): expected the same files"
            " to resume it"
        )
    if then is not None and then != digest:
        raise UserError(
            f"{directory}: the data have changed since the run began (digest {then}, now {digest}):"
            " expected the same data to resume it"
        )
