"""The folder of an experiment: how its runs began, who writes to it, and how they are resumed.

``Origin`` is experiment.toml, which says what the command that began the runs was given; a run is
resumed from it. The config.toml of each run has what was found out later: the chosen speed, the
port, the digest of the data. ``RunFolder`` lets only one command write at a time, and moves aside
what earlier runs have left. ``Resumption`` says which runs are finished, broken off or not begun.
The last part says which files are those of a run, and deletes them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as with_values
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import orjson
from msgspec import convert, to_builtins
from msgspec.structs import replace

from edgefl import __version__
from edgefl.catalog import MAIN, main_file, source_of
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.clocks.setup.network import with_patterns
from edgefl.config.experiment import Experiment, Stop, availability_file, traces
from edgefl.config.file import FACTS, dump, kind_of, load, own_names, server_code, with_stop
from edgefl.config.section import Source, validated
from edgefl.config.toml import parsed
from edgefl.disk import Disk, OwnDisk, free_name
from edgefl.errors import UserError, listed, undamaged
from edgefl.record import files
from edgefl.record.files import CHECKPOINTS, CONFIG, EVENTS, EXPERIMENT, LINKS, SUMMARY, SWEEP
from edgefl.record.journal import segments
from edgefl.record.record import TABLES as TABLE_COLUMNS
from edgefl.record.tables import parts
from edgefl.results import families
from edgefl.results.read import read_csv, read_events
from edgefl.results.run_files import read_config, read_summary, runs_of, seed_name, title
from edgefl.results.summary import BROKEN_OFF, LENGTHENED, counters
from edgefl_testbed import NAME


class Origin(msgspec.Struct, frozen=True):
    """How the runs in a folder were begun.

    ``command``: of RUN, COORDINATOR, LAUNCH. ``clock``: WALL or VIRTUAL. ``base``: the folder of
    the user's code and traces. ``options``: words of the command line that a resumption needs, too.
    ``inventory``: of a launch. ``keys``: the folder of CURVE keys. ``place``: the host of a
    coordinator elsewhere, and the folder of its results there. ``launched``: the name of the
    launch's folders on its hosts. ``digests``: of the files of the user's code and traces, by name.
    """

    command: str
    clock: str
    base: Path
    options: tuple[str, ...] = ()
    inventory: Path | None = None
    keys: Path | None = None
    place: str = ""
    launched: str = ""
    digests: dict[str, str] = {}
    edgefl: str = __version__

    def resumed_by(self, folder: Path) -> str:
        """Return the command that resumes the runs in ``folder``."""
        words = ["edgefl", self.command]
        if self.inventory is not None:
            here = Path.cwd()  # the path as a user would type it here
            inside = self.inventory.is_relative_to(here)
            words.append(str(self.inventory.relative_to(here) if inside else self.inventory))
        return shlex.join([*words, "--resume", str(folder), *self.options])

    def text(self, experiment: Experiment) -> str:
        """Return experiment.toml."""
        origin = replace(
            self,
            base=self.base.resolve(),
            inventory=self.inventory and self.inventory.resolve(),
            keys=self.keys and self.keys.resolve(),
            digests=self.digests or digests(experiment, self.base),
        )
        facts = to_builtins(origin, enc_hook=str)
        return dump(
            experiment, {FACTS: {key: value for key, value in facts.items() if value != ""}}
        )


def origin_of(folder: Path) -> Origin:
    """Read the facts of an experiment.toml. UserError if it is damaged."""
    path = folder / EXPERIMENT
    with undamaged(path):
        facts = parsed(path.read_text(encoding="utf-8"))[FACTS]
        return convert(facts, Origin, dec_hook=lambda kind, value: kind(value))


def digests(experiment: Experiment, base: Path) -> dict[str, str]:
    """Return a digest of each file of the user's code, and of each trace, by its name.

    "" if there is no such file now. Files that the code imports are not followed; of a task of a
    plug-in's kind, such as a Flower app, all its files count. A script that runs experiments itself
    has none: it changes from run to run.
    """
    files: dict[str, Path | None] = {}
    of_kinds: dict[str, str] = {}
    for name in (*own_names(experiment), *server_code(experiment)):
        kind = kind_of(name)
        place = name.rpartition(":")[0]
        if kind is None:
            source = source_of(name, base)
            if place != MAIN and (source is None or source != main_file()):
                files[place] = source
        else:
            of_kinds[name] = kind.digest(name, (base, Path.cwd()))
    for name in (*traces(experiment), *availability_file(experiment)):
        files[name] = base / Path(name).expanduser()
    return {name: file_digest(path) for name, path in files.items()} | of_kinds


def file_digest(path: Path | None) -> str:
    """Return the digest of a file, as experiment.toml has it; "" if there is none."""
    if path is None or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


ENDS_S = 10.0  # patience with processes of a killed command, which end by themselves
POLL_S = 0.1


class RunFolder:
    """The folder DIR/NAME, which holds the runs of an experiment.

    A new run gets a folder without results of other runs: they would be compared with its own. So
    the old folder is moved to DIR/NAME.1, as a whole, or to the next free number. With
    ``overwrite`` finished runs are deleted; a folder with a run that can go on is moved all the
    same. If the new run does not begin, the old folder is moved back.

    The lock is a system lock (flock) on the folder. The system releases it when the last process
    that holds ``fd`` ends, for whatever reason.
    """

    def __init__(
        self,
        folder: Path,
        text: str = "",
        resume: bool = False,
        overwrite: bool = False,
        base: Path | None = None,
    ) -> None:
        """``text``: experiment.toml; "": none is written. ``resume``: go on with the runs there.

        ``base``: the folder of the config, which the run needs where it is.
        """
        self.folder, self.text, self.resume, self.overwrite = folder, text, resume, overwrite
        self.base = base
        self.fd: int | None = None
        self._made: list[Path] = []  # folders that ``claim`` has made, outer ones first
        self._moved: tuple[Path, Path] | None = None  # the old folder: from, to
        self.begun = False  # what is in the folder is of these runs

    def refuse_if_in_use(self) -> None:
        """Raise UserError if another command writes to the folder now."""
        if self.folder.is_dir():
            self.lock()
            self.release()

    def claim(self) -> None:
        """Lock the folder until ``release``, and move what earlier runs have left there.

        UserError if another command writes to the folder, or if it cannot be written.
        """
        if self.resume:
            self.lock(ENDS_S)
            return
        with writable(self.folder, "made"):
            if self.folder.is_dir():
                self.lock()
                keeps = unfinished if self.overwrite else holds_results
                if keeps(self.folder):
                    try:
                        self._move_aside()
                    finally:
                        self.release()
            if self.fd is None:
                self._make()
                self.lock()

    def lock(self, patience_s: float = 0.0) -> None:
        """Only lock the folder, which must exist. UserError if another command writes to it."""
        self.fd = self._lock(patience_s)

    def begin(self, but: Path | None = None) -> list[str]:
        """Delete what is left of earlier runs, and write experiment.toml.

        Call it when no check can fail any more. From now on the runs can be resumed. ``but``: a
        directory that is being written. Returns messages for the user.
        """
        self.begun = True
        if self.resume:
            return []
        messages = [] if self._moved is None else [self._move_message()]
        replaced = clear(self.folder, but)
        if replaced and self.overwrite:
            messages.append(f"{self.folder}: replaced the earlier runs: {', '.join(replaced)}")
        self.write()
        return messages

    def write(self) -> None:
        """Write experiment.toml."""
        if self.resume or not self.text:
            return
        with writable(self.folder):
            if not self.folder.exists():  # the removal of earlier runs has left it empty
                self.release()
                self._make()
                self.fd = self._lock()
            disk = OwnDisk()  # durable, once: without it the runs cannot be resumed
            disk.replace(self.folder / EXPERIMENT, self.text.encode(), durable=True)
            for made in self._made:
                disk.sync_folder(made.parent)

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def undo(self) -> list[str]:
        """Remove experiment.toml if there is no run, and empty folders that ``claim`` has made.

        If no run has begun, the old folder is moved back. Returns messages for the user.
        """
        with suppress(OSError):
            if [path.name for path in self.folder.iterdir()] == [EXPERIMENT]:
                (self.folder / EXPERIMENT).unlink()
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()
        if self._moved is None or self.begun:
            return []
        place, aside = self._moved
        if os.path.lexists(place):  # something was written there: both are kept
            return [self._move_message()]
        aside.rename(place)
        self._moved = None
        return []

    def _lock(self, patience_s: float = 0.0) -> int | None:
        """Return the descriptor that holds the lock; None if the file system has no locks."""
        import fcntl  # the command line imports this file in Windows, too, where only edges run

        fd, until_s = os.open(self.folder, os.O_RDONLY), time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() < until_s:
                    time.sleep(POLL_S)
                    continue
                os.close(fd)
                raise UserError(
                    f"{self.folder}: another run writes to it; wait for its end, or choose --out"
                    " DIR"
                ) from None
            except OSError:
                os.close(fd)
                return None

    def _move_aside(self) -> None:
        place = self.folder.resolve()  # a symbolic link stays where it is
        for needed in (self.base, Path.cwd()):
            if needed is not None and needed.resolve().is_relative_to(place):
                expected = "another --out" if self.overwrite else "--overwrite, or another --out"
                raise UserError(
                    f"{self.folder}: holds an earlier run, and is not moved aside, because"
                    f" {needed} is needed where it is: expected {expected}"
                )
        aside = free_name(place)
        place.rename(aside)
        self._moved = place, aside

    def _move_message(self) -> str:
        assert self._moved is not None
        aside = self._moved[1]
        if not self.folder.is_symlink():  # the path in the form that the user gave
            aside = self.folder.with_name(aside.name)
        if not unfinished(aside):
            return f"{self.folder} held an earlier run: moved to {aside}"
        moved = f"{self.folder} held an unfinished run: moved to {aside}"
        try:
            return f"{moved}; to go on with it: {origin_of(aside).resumed_by(aside)}"
        except (UserError, OSError):  # an older run, which cannot be resumed
            return moved

    def _make(self) -> None:
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        place = self.folder.resolve() if self.folder.is_symlink() else self.folder
        place.mkdir(parents=True, exist_ok=True)
        self._made = missing[::-1]


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
    ``speed = "auto"``. ``lengthening``: the runs get other stop keys, which the experiments have.
    """

    folder: Path
    asked: Experiment
    experiment: Experiment
    origin: Origin
    runs: tuple[RunPart, ...]
    speed_auto: bool = False
    lengthening: Lengthening | None = None

    @property
    def file(self) -> Path:
        return self.folder / EXPERIMENT

    @property
    def command(self) -> str:
        """What the user types to resume it."""
        return self.origin.resumed_by(self.folder)

    def of(self, *stages: RunStage) -> list[RunPart]:
        return [run for run in self.runs if run.stage in stages]

    def keys(self) -> Path | None:
        """The folder of the run's keys; None if it has none. UserError if it is not there now."""
        keys = self.origin.keys
        if keys is not None and not keys.is_dir():
            raise UserError(
                f"{self.folder}: its keys were in {keys}, which is no directory now: expected"
                " --keys DIR"
            )
        return keys

    def stop(self) -> Stop:
        """The stop keys: of a lengthening that was broken off before it was written everywhere."""
        for run in self.of(RunStage.broken_off, RunStage.finished):  # the first gets them first
            source = Source(str(run.directory / CONFIG))
            return validated(Stop, run.config["stop"], source, ("stop",))
        return self.asked.stop

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
        longer = "" if self.lengthening is None else f"lengthened ({self.lengthening.told()}): "
        return f"resuming {self.folder}: {longer}{'; '.join(said)}{self._other_code()}"

    def _other_code(self) -> str:
        """Say that another commit began runs of the folder; "" if none did, or if all is done."""
        if all(run.stage is RunStage.finished for run in self.runs):
            return ""
        now, unknown = git_commit(), {"unknown", None}
        begun = {run.config.get(FACTS, {}).get("git_commit") for run in self.runs}
        others = sorted(begun - unknown - {now}) if now not in unknown else []
        if not others:
            return ""
        return (
            f"; begun by commit {listed(others)}, this is {now}: expected the same code. What an"
            " older one has kept may not suit this one: if it fails, run the config anew"
        )


@dataclass(frozen=True, slots=True)
class Lengthening:
    """Other stop keys for the runs in a folder. ``runs``: those that go on because of them, and
    what each has reached. ``anew``: they begin again, because what they have measured so far
    counts for a stop key that changes.
    """

    folder: Path
    before: Experiment
    after: Experiment
    runs: Mapping[Path, Mapping[str, float]]
    anew: bool

    @property
    def keys(self) -> list[str]:
        """The stop keys that change."""
        return changed_keys(self.before.stop, self.after.stop)

    def told(self) -> str:
        then, now = (
            dict(_flat(each.stop.model_dump(exclude_none=True)))
            for each in (self.before, self.after)
        )
        return ", ".join(
            f"stop.{key} from {_value(then.get(key))} to {_value(now.get(key))}"
            for key in dict.fromkeys((*then, *now))
            if then.get(key) != now.get(key)
        )

    def apply(self) -> None:
        """Write the keys into the configs. The runs that go on are no longer finished.

        experiment.toml is the last: if this is broken off, it is done again, as ``Resumption.stop``
        says. The caller holds the lock of the folder.
        """
        for run in runs_in(self.folder, self.before):
            if run.stage is RunStage.not_begun:
                continue
            if run.directory in self.runs:
                self._not_finished(run.directory)
            self._write(run.directory / CONFIG, run.directory)
        self._write(self.folder / EXPERIMENT, self.folder)

    def _not_finished(self, directory: Path) -> None:
        disk, path = OwnDisk(), directory / SUMMARY
        if self.anew:
            Checkpoints(disk, directory / CHECKPOINTS).clear()
        if summary := read_summary(directory):
            text = orjson.dumps(summary | {"finished": LENGTHENED}, option=orjson.OPT_INDENT_2)
            disk.replace(path, text, durable=True)

    def _write(self, path: Path, of: Path) -> None:
        then, now = (each.stop.model_dump(exclude_none=True) for each in (self.before, self.after))
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            **({"at_s": self.runs[of]["emulated_s"]} if of in self.runs else {}),
            "before": {key: then[key] for key in self.keys if key in then},
            "after": {key: now[key] for key in self.keys if key in now},
        }
        with undamaged(path):
            text = with_stop(path.read_text(encoding="utf-8"), self.before, self.after, entry)
        OwnDisk().replace(path, text.encode(), durable=True)


def changed_keys(before: Stop, after: Stop) -> list[str]:
    """The stop keys that differ."""
    return [key for key in Stop.model_fields if getattr(before, key) != getattr(after, key)]


def _value(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def run_stage(directory: Path) -> RunStage:
    """Return how far the run in ``directory`` got. An interrupted run is broken off."""
    reason = finished(directory)
    if reason is not None and reason not in BROKEN_OFF:
        return RunStage.finished
    # config.toml is the first file: a run without a whole one was killed before it began
    return RunStage.broken_off if read_config(directory) else RunStage.not_begun


# folders of a checkout that decide the numbers of a run, or of a study
CODE = ("edgefl", "emulator", "scripts/studies")


def git_commit(folder: Path = Path(__file__).parent) -> str:
    """The commit of the edgefl checkout that ``folder`` is in, with "+" if its code was changed.

    "unknown" outside such a checkout.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    try:  # an installed package may lie inside another repository
        name = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "name"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        name = ""
    commit = _git(top, "rev-parse", "--short=12", "HEAD") if name == NAME else ""
    told = _git(top, "status", "--porcelain", "--branch", "--", *CODE) if commit else "#"
    unchanged = told.startswith("#") and "\n" not in told  # the branch alone
    return commit + "+" * (not unchanged) or "unknown"


def _git(folder: Path, *arguments: str) -> str:
    """The output of a git command; "" if it fails or git is not installed."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


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
    if origin.command != RUN and isinstance(port, int):
        changes["network"] = experiment.network.model_copy(update={"port": port})
    return experiment.model_copy(update=changes), experiment.speed == "auto"


# ---------------------------------------------------------------------- longer runs
LIMITS = ("versions", "updates", "emulated_s", "target_joules", "no_progress_s")
BY_SCORE = ("target", "no_progress_s")


def lengthened(found: Resumption, stop: Stop) -> Resumption:
    """Return the resumption with these stop keys. UserError if the runs cannot go on with them.

    A finished run goes on if the key that has ended it changes. So do all that were broken off.
    """
    before, keys = found.asked, changed_keys(found.asked.stop, stop)
    virtual = found.origin.clock == VIRTUAL
    for key in keys:
        _check_longer(key, before, before.model_copy(update={"stop": stop}), virtual)
    reached: dict[Path, Mapping[str, float]] = {}
    for run in found.runs:
        ended = finished(run.directory)
        if run.stage is RunStage.broken_off or ended in keys:
            reached[run.directory] = _reached(run, before.stop, stop)
        if run.stage is RunStage.finished and ended in keys and not virtual:
            _check_kept(run)
    if not reached and all(run.stage is RunStage.finished for run in found.runs):
        ends = sorted({str(finished(run.directory)) for run in found.runs})
        raise UserError(
            f"{found.folder}: nothing to lengthen: its runs have ended by {listed(ends)}, and"
            f" {listed([f'stop.{key}' for key in keys])} changes"
        )
    after, chosen = (each.model_copy(update={"stop": stop}) for each in (before, found.experiment))
    anew = virtual and bool({*keys} & {*BY_SCORE})
    runs = tuple(
        with_values(run, stage=RunStage.broken_off) if run.directory in reached else run
        for run in found.runs
    )
    return with_values(
        found,
        asked=after,
        experiment=chosen,
        runs=runs,
        lengthening=Lengthening(found.folder, before, after, reached, anew),
    )


def _check_longer(key: str, before: Experiment, after: Experiment, virtual: bool) -> None:
    then, now = getattr(before.stop, key), getattr(after.stop, key)
    if key in LIMITS and then is not None and now is not None and now < then:
        raise UserError(
            f"stop.{key}: a run can only be lengthened: expected more than {_value(then)}, found"
            f" {_value(now)}"
        )
    if virtual or key not in BY_SCORE or now is None:
        return
    if then is None:
        raise UserError(
            f"stop.{key}: expected none, because the runs have begun without it on the wall clock:"
            " their scores so far were not counted for it"
        )
    if key == "target" and not _is_harder(before, after):
        raise UserError(
            "stop.target: expected a harder target of the same metric, because on the wall clock"
            " the scores so far were counted for the earlier one"
        )


def _is_harder(before: Experiment, after: Experiment) -> bool:
    old, new = before.stop_value, after.stop_value
    assert old is not None and new is not None  # checked with the experiments
    assert before.stop.target is not None and after.stop.target is not None
    return (
        before.stop_score == after.stop_score
        and before.stop_score.reaches(new, old)
        and after.stop.target.for_evaluations >= before.stop.target.for_evaluations
    )


def _reached(run: RunPart, before: Stop, after: Stop) -> Mapping[str, float]:
    """How far the run is. UserError if it is already beyond a new limit."""
    facts: Mapping[str, Any] = read_summary(run.directory)
    if not facts:
        facts = counters(read_events(run.directory / EVENTS), read_csv(run.directory / LINKS))
    discarded = sum(facts.get("updates_discarded", {}).values())
    reached = {
        "versions": facts.get("versions", 0),
        "updates": facts.get("updates_received", 0) - discarded,
        "emulated_s": facts.get("emulated_s", 0.0),
        "target_joules": facts.get("energy", {}).get("joules", 0.0),
    }
    for key, value in reached.items():
        limit = getattr(after, key)
        if limit is not None and getattr(before, key) != limit and limit <= value:
            raise UserError(
                f"stop.{key}: {run.name} has reached {_value(value)}: expected more, found"
                f" {_value(limit)}"
            )
    return reached


def _check_kept(run: RunPart) -> None:
    """UserError if a finished run on the wall clock has nothing to go on with."""
    if not segments(run.directory / "journal", OwnDisk()):
        raise UserError(
            f"{run.directory}: cannot be lengthened, because its journal was deleted at its end:"
            " on the wall clock expected a run with record.keep_state = true"
        )


# ---------------------------------------------------------------------- what must be the same
def _check_digests(folder: Path, experiment: Experiment, origin: Origin) -> None:
    now = digests(experiment, origin.base)
    changed = [name for name, digest in now.items() if origin.digests.get(name, digest) != digest]
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
    now = experiment.model_dump(exclude_none=True)
    found = differences(now, run.config, CHOSEN)
    if found and differences(now, {**run.config, "stop": _stop_before(run.config)}, CHOSEN):
        raise UserError(
            f"{run.directory / CONFIG}: is of another config than {EXPERIMENT} above it:"
            f" {listed(found, MOST_DIFFERENCES)}"
        )


def _stop_before(config: Mapping[str, Any]) -> dict[str, Any]:
    """The stop keys of a run before it was lengthened last."""
    stop = dict(config.get("stop", {}))
    for entry in config.get(FACTS, {}).get("lengthened", ())[-1:]:
        stop = {key: stop[key] for key in stop if key not in entry["after"]} | entry["before"]
    return stop


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


# ---------------------------------------------------------------------- files of runs
# Regular expressions, like those that follow.
AT_THE_END = tuple(map(re.escape, (files.SUMMARY, files.MODEL, files.LAYOUT)))
JOURNAL = r"journal/journal(-\d+)?\.(jsonl|bin)"
CHECKPOINT = rf"{files.CHECKPOINTS}/checkpoint-\d+\.(json|safetensors)(\.part)?"
TABLES = "|".join(path.partition(".")[0] for path in (files.EVENTS, *TABLE_COLUMNS))
PART = rf"({TABLES})-\d{{6,}}\.(jsonl|csv)(\.gz)?(\.part)?"
# Files that not every run writes, or not at its start.
LATE = (
    *AT_THE_END,
    JOURNAL,
    CHECKPOINT,
    PART,
    r"journal/(initial\.safetensors|layout\.json)",
    *map(re.escape, (files.SLOTS, files.MEASURED, files.LABELS, files.EDGES, files.HOSTS)),
    *map(re.escape, (files.CLIENTS, files.ENERGY)),
    r"vocabulary\.txt",
)
ALL = (*map(re.escape, (files.CONFIG, files.EVENTS, files.LINKS, files.METRICS)), *LATE)
FOLDERS = ("journal", files.CHECKPOINTS)


def written(directory: Path, disk: Disk, patterns: Collection[str] = ALL) -> list[str]:
    """The names of the files in ``directory`` that a run writes; of all or of some sorts."""
    names = [*disk.names(directory)]
    names += [f"{each}/{name}" for each in FOLDERS for name in disk.names(directory / each)]
    return [name for name in names if any(re.fullmatch(each, name) for each in patterns)]


OUT = "expected --out DIR that can be written"
FIRST_BYTES = b'{"t":'  # of events.jsonl


@contextmanager
def writable(directory: Path, to_be: str = "written", resumed: bool = False) -> Iterator[None]:
    """Turn an OSError while writing to ``directory`` into a UserError of one line.

    ``resumed``: the run cannot go on in another directory.
    """
    try:
        yield
    except OSError as error:
        place = error.filename or directory
        what = f"{place}: cannot be {to_be} ({error.strerror})"
        instead = "make it writable, for a run goes on in its own directory" if resumed else OUT
        raise UserError(f"{what}; {instead}") from error


def clear(folder: Path, but: Path | None = None) -> list[str]:
    """Delete the files of earlier runs in ``folder``, and their comparison.

    This covers all strategies and seeds. Only files that a run writes are deleted, and only in
    directories of runs. Other files stay, and so does the directory ``but``, which is being
    written. Returns the names of the strategies whose runs are deleted. UserError if a file cannot
    be deleted.
    """
    with writable(folder):
        runs = [
            run
            for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
            for run in _ours(path)
            if run != but
        ]
        for directory in runs:
            remove_run(directory)
            if directory.parent != folder:
                with suppress(OSError):  # not empty: other seeds, or the user's files
                    directory.parent.rmdir()
        if runs:
            remove(folder, families.files())
    return sorted({run.relative_to(folder).parts[0] for run in runs})


def remove_run(directory: Path) -> None:
    """Delete the files that a run has written to ``directory``; other files stay."""
    with writable(directory):
        if _is_ours(directory):
            remove(directory, written(directory, OwnDisk()))


def unfinished(folder: Path) -> bool:
    """Whether ``folder`` holds a run that has begun and was broken off: killed, or interrupted."""
    return any(
        _has_rows(run) and finished(run) in (None, *BROKEN_OFF)
        for path in folder.iterdir()
        for run in _ours(path)
    )


def holds_results(folder: Path) -> bool:
    """Whether ``folder`` holds rows or a summary of a run, a comparison or a sweep.

    This covers directories that are links, and files that no run has written.
    """
    if any((folder / name).exists() for name in (files.SWEEP, *families.files())):
        return True
    return any(
        _has_rows(run) or any((run / name).exists() for name in (files.SUMMARY, files.METRICS))
        for path in folder.iterdir()
        for run in (path, *path.glob("seed*"))
    )


def _has_rows(run: Path) -> bool:
    events = run / files.EVENTS
    return bool(parts(events)) or (events.is_file() and events.stat().st_size > 0)


def finished(run: Path) -> str | None:
    """Why the run ended; None if it has no summary, or a damaged one."""
    try:
        summary = orjson.loads((run / files.SUMMARY).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    reason = summary.get("finished") if isinstance(summary, dict) else None
    return None if reason is None else str(reason)


def _ours(directory: Path) -> list[Path]:
    """The directories of runs in a strategy's directory: itself, and one per seed.

    Symbolic links are skipped, so that nothing outside the folder is deleted.
    """
    if directory.is_symlink() or not directory.is_dir():
        return []
    return [path for path in (directory, *sorted(directory.glob("seed*"))) if _is_ours(path)]


def _is_ours(directory: Path) -> bool:
    """Whether a run has written this directory. False for symbolic links."""
    events = directory / files.EVENTS
    if directory.is_symlink() or not events.is_file():
        return False
    try:
        with events.open("rb") as file:
            # b"": the run ended before its first event
            return file.read(len(FIRST_BYTES)) in (b"", FIRST_BYTES)
    except OSError:
        return False


def remove(directory: Path, names: Collection[str]) -> None:
    """Delete these files, and the folders that are then empty."""
    for name in names:
        (directory / name).unlink(missing_ok=True)
    folders = {directory, *(directory / each for each in FOLDERS)}
    folders |= {(directory / name).parent for name in names}
    for folder in sorted(folders, reverse=True):  # the inner ones first
        with suppress(OSError):  # not empty, or missing
            folder.rmdir()
