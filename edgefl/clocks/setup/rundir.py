"""A run directory: open it with the resolved config, close it with the summary, remove its files,
replay it.

Both clocks use it.
"""

from __future__ import annotations

import re
import subprocess
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save

from edgefl.checkpoints.codec import CannotDecode
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.setup.network import absent_times, latencies
from edgefl.clocks.setup.plan import packing, strategy, task_limits
from edgefl.compression.packing import Packing
from edgefl.config.experiment import Evaluation, Experiment, availability_file, traces
from edgefl.config.experiment import parts as groups
from edgefl.config.file import FACTS, dump, load
from edgefl.config.names import kind_of, own_names, server_code
from edgefl.config.toml import parsed
from edgefl.coordinator.coordinator import Coordinator
from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError, undamaged
from edgefl.record import files
from edgefl.record.counters import Counters
from edgefl.record.energy import EnergyBook
from edgefl.record.files import METRICS, SUMMARY
from edgefl.record.journal import Journal
from edgefl.record.record import TABLES as TABLE_COLUMNS
from edgefl.record.record import Record, journal_sizes
from edgefl.record.tables import Later, Rotation, at_once, parts, write_whole
from edgefl.results import families
from edgefl.results.energy import MEASURED, joules_to_target
from edgefl.results.read import read_csv
from edgefl.results.run_files import read_config
from edgefl.results.summary import BROKEN_OFF, outcome, scores_not_finite, warnings
from edgefl.vectors import Layout, aligned_copy
from edgefl_testbed import NAME
from emulator.energy.power import EdgePower
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S

if TYPE_CHECKING:
    from edgefl.record.replay import Replay

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


def write_summary(
    directory: Path,
    head: dict[str, Any],
    counters: Counters,
    evaluation: Evaluation,
    fidelity: dict[str, Any],
    hosts: Sequence[Mapping[str, Any]] = (),
    disk: Disk | None = None,
    durable: bool = False,
    energy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write and return the summary of a run whose other files are complete and closed.

    ``head``: the caller's facts about the run, "emulated_s" among them. ``fidelity``: the verdict.
    ``hosts``: one entry for each host that has told about itself. ``energy``: its section, without
    the joules to the target.
    """
    rows = read_csv(directory / METRICS)
    not_finite = scores_not_finite(rows)
    found = outcome(rows, evaluation.goal, evaluation.score, head["emulated_s"])
    summary = {
        **head,
        **counters.of_updates(),
        **found,
        **counters.of_run(),
        **({"scores_not_finite": not_finite} if not_finite else {}),
        **_energy(energy, joules_to_target(rows, found["time_to_target_s"]), hosts),
        **families.sections(directory, counters.marks, head["emulated_s"]),
        **({"hosts": list(hosts)} if hosts else {}),
    }
    summary |= {"warnings": warnings({**summary, "fidelity": fidelity}), "fidelity": fidelity}
    write_whole(
        directory / SUMMARY, orjson.dumps(summary, option=orjson.OPT_INDENT_2), disk, durable
    )
    return summary


def _energy(
    section: Mapping[str, Any] | None,
    to_target: float | None,
    hosts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The section about energy: modelled, measured by the hosts' meters, or both."""
    metered = [host["joules"] for host in hosts if "joules" in host]
    measured = {"measured_joules": sum(metered)} if metered else {}
    if section is None:
        whole = {"kind": MEASURED, "joules": sum(metered), **measured}
        return {"energy": whole} if metered else {}
    return {"energy": {**section, "joules_to_target": to_target, **measured}}


def energy_book(experiment: Experiment) -> EnergyBook | None:
    """The energy book of a new run; None if no edge of it has [devices.energy] or [links.radio]."""
    found: dict[str, EdgePower] = {}
    latency_ns = latencies(experiment)
    for part in groups(experiment):
        device, radio = part.devices.energy, part.links.radio
        if device is None and radio is None:
            continue
        board = None if device is None else device.power(part.devices.profile)
        air = None if radio is None else radio.power(part.links.profile)
        kinds = {ns: EdgePower.of(board, air, ns) for ns in {latency_ns[e] for e in part.ids}}
        found |= {edge: kinds[latency_ns[edge]] for edge in part.ids}
    return EnergyBook.of(found, experiment.stop.target_joules) if found else None


def compression_section(packed: Packing | None, counters: Counters) -> dict[str, Any]:
    """Return the section "compression" of summary.json: the bytes without it, such as "raw" in
    tables; {} if nothing is packed.
    """
    if packed is None:
        return {}
    return {
        "compression": {
            "raw_bytes_up": counters.bytes_up + packed.saved_up,
            "raw_bytes_down": counters.bytes_down + packed.saved_down,
        }
    }


FLUSH_S = 0.5
OUT = "expected --out DIR that can be written"
FIRST_BYTES = b'{"t":'  # of events.jsonl


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """How far the files of a run are that goes on: ``Record.sizes()``, and the wall seconds."""

    sizes: Mapping[str, int]
    wall_s: float

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> RunSoFar:
        """Return what a checkpoint says about the files. CannotDecode if it is damaged."""
        sizes, wall_s = meta.get("sizes"), meta.get("wall_s")
        if (
            not isinstance(sizes, dict)
            or not all(type(size) is int and size >= 0 for size in sizes.values())
            or not isinstance(wall_s, (int, float))
        ):
            raise CannotDecode("does not say how large the files were")
        return cls(sizes, wall_s)


class OpenRun:
    """One strategy's run directory with its record, and the coordinator that writes to it."""

    def __init__(
        self,
        experiment: Experiment,
        index: int,
        directory: Path,
        base: Path | None,
        weights: np.ndarray,
        layout: Layout,
        shares: Mapping[str, int] | None = None,
        disk: Disk | None = None,
        done: RunSoFar | None = None,
        inputs: bool = False,
        later: Later = at_once,
    ) -> None:
        """``shares``: samples by edge, where the split is known. ``disk``: for all files.

        ``inputs``: keep a journal of the coordinator's inputs, if ``record.durability`` says so. If
        the run goes on, the caller first calls the journal's ``replay``. ``later``: see
        ``Rotation``. ``done``: the run goes on there; what the files have beyond it is dropped.
        """
        self.disk = disk or OwnDisk()
        self.experiment, self.entry = experiment, experiment.strategies[index]
        self.directory, self.base = directory, base
        self._flushed_s = time.monotonic()
        self._started_s = self._flushed_s - (0.0 if done is None else done.wall_s)
        # before anything is written: it may raise UserError
        made = strategy(experiment, self.entry, base, weights, layout)
        section, kind = experiment.record, kind_of(experiment.task)
        by_client = kind is not None and kind.clients_evaluate
        keep = None if section.keep == "all" else section.keep
        with writable(directory, "made", done is not None):
            self.disk.make_folder(directory)
        with writable(directory, resumed=done is not None):
            book = energy_book(experiment)
            for name in written(directory, self.disk, LATE if done is None else AT_THE_END):
                self.disk.remove(directory / name)
            self.record = Record(
                directory,
                lambda: time.monotonic() - self._started_s,
                self._journal(weights, layout, inputs, done),
                self.disk,
                None if done is None else done.sizes,
                Rotation(keep=keep, later=later, durable=inputs and section.durability == "power"),
                joules=book is not None,
                further=experiment.evaluation.further,
                clients=experiment.edges.ids() if by_client else (),
            )
        limits = task_limits(experiment, self.entry, base, shares or {})
        away = absent_times(experiment, base)
        packed = packing(experiment, index, layout, base)
        self.coordinator = Coordinator(
            made, experiment, self.record, shares, limits, book, away, packed
        )

    def begin(
        self, clock: str, fidelity: Fidelity, more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Write config.toml: the experiment, which code and host run it, and ``more`` facts."""
        self._started_s = time.monotonic()
        facts: dict[str, Any] = {
            "strategy": self.entry.name,
            "clock": clock,
            "git_commit": git_commit(),
            "host": fidelity.host,
            **more,
        }
        experiment = self.experiment
        own = *own_names(experiment), *server_code(experiment)
        named = own, traces(experiment), availability_file(experiment)
        if self.base is not None and any(named):
            facts["base"] = str(self.base.resolve())  # the folder of that code or trace
        if self.coordinator.strategy.reconstructed:
            facts["reconstructed"] = True  # displays show this next to the name
        with writable(self.directory):
            text = dump(self.experiment, {FACTS: facts})
            # durable, once per run: without it the run cannot be resumed
            self.disk.replace(self.directory / files.CONFIG, text.encode(), durable=True)

    def end(
        self,
        clock: str,
        emulated_ns: int,
        wall_s: float,
        fidelity: dict[str, Any],
        more: Mapping[str, Any] | None = None,
        hosts: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Write the remaining files and return the summary.

        ``more``: what the clock's host adds, such as the wall clock's speed. ``hosts``: what the
        edges have told about their hosts.
        """
        head = {
            "strategy": self.entry.strategy,
            "label": self.entry.name,
            "clock": clock,
            "seed": self.experiment.seed,
            "finished": self.coordinator.finished,
            "versions": self.coordinator.version,
            **({"stopped": stopped} if (stopped := self.coordinator.stopped) else {}),
            "emulated_s": emulated_ns / NS_PER_S,
            "wall_s": round(wall_s, 3),
            **(more or {}),
            **({"parts_deleted": deleted} if (deleted := self.record.parts_deleted()) else {}),
            **({} if self.experiment.unlabelled is None else {"unlabelled": self._unlabelled()}),
            **compression_section(self.coordinator.packing, self.counters),
            **lengthenings(self.directory),
        }
        book = self.coordinator.record.energy
        durable = clock == "wall" and self.experiment.record.durability == "power"
        with writable(self.directory, resumed=self.record.journal is not None):
            self.record.close(self.coordinator.weights, durable)
            layout = orjson.dumps(self.coordinator.strategy.layout.to_json())
            write_whole(self.directory / files.LAYOUT, layout, self.disk, durable)
            summary = write_summary(
                self.directory,
                head,
                self.counters,
                self.experiment.evaluation,
                fidelity,
                hosts,
                self.disk,
                durable,
                None if book is None else book.section(emulated_ns),
            )
        if not self.goes_on:
            self.record.drop_journal()
            Checkpoints(self.disk, self.directory / files.CHECKPOINTS).clear()
        for name in FOLDERS:
            with suppress(OSError):  # not empty, or missing
                (self.directory / name).rmdir()
        return summary

    def _unlabelled(self) -> dict[str, Any]:
        """Facts about the unlabelled samples for summary.json.

        Samples of the devices' own domain make distillation easier. A reader of the accuracy must
        know that.
        """
        section = self.experiment.unlabelled
        assert section is not None
        return {
            "data": section.data,
            "size": section.size,
            "in_domain": section.data in ("held_out", self.experiment.data.name),
        }

    def undo(self) -> None:
        """Delete the files of a run that did not begin, and the directories that are then empty.

        The experiment's directory stays.
        """
        _remove(self.directory, written(self.directory, self.disk))
        with suppress(OSError):  # not empty, or missing
            self.directory.parent.rmdir()

    @property
    def goes_on(self) -> bool:
        """Whether the run, which has ended, may go on later: its state stays."""
        kept = self.experiment.record.keep_state
        return kept or self.coordinator.finished in BROKEN_OFF

    @property
    def counters(self) -> Counters:
        return self.coordinator.record.counters

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._started_s

    def flush_now_and_then(self) -> None:
        """Flush the files if FLUSH_S seconds have passed since the last flush. Call this often."""
        if time.monotonic() - self._flushed_s >= FLUSH_S:
            self._flushed_s = time.monotonic()
            self.record.flush()

    def _journal(
        self, weights: np.ndarray, layout: Layout, inputs: bool, done: RunSoFar | None
    ) -> Journal | None:
        section, folder = self.experiment.record, self.directory / "journal"
        inputs = inputs and section.durability != "off"
        if not section.payloads and not inputs:
            return None
        journal = Journal(
            folder,
            self.disk,
            inputs=inputs,
            payloads=section.payloads,
            power=section.durability == "power",
            resumed=done is not None and inputs,
            sizes=None if done is None or inputs else journal_sizes(done.sizes),
        )
        if section.payloads and done is None:
            write_whole(folder / "initial.safetensors", save({"weights": weights}), self.disk)
            write_whole(folder / "layout.json", orjson.dumps(layout.to_json()), self.disk)
        return journal


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
            _remove(folder, families.files())
    return sorted({run.relative_to(folder).parts[0] for run in runs})


def remove_run(directory: Path) -> None:
    """Delete the files that a run has written to ``directory``; other files stay."""
    with writable(directory):
        if _is_ours(directory):
            _remove(directory, written(directory, OwnDisk()))


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


def lengthenings(run: Path) -> dict[str, Any]:
    """Return {"lengthened": how often the run was lengthened, and how}; {} if it never was."""
    found = read_config(run).get(FACTS, {}).get("lengthened")
    return {"lengthened": found} if found else {}


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


def _remove(directory: Path, names: Collection[str]) -> None:
    """Delete these files, and the folders that are then empty."""
    for name in names:
        (directory / name).unlink(missing_ok=True)
    folders = {directory, *(directory / each for each in FOLDERS)}
    folders |= {(directory / name).parent for name in names}
    for folder in sorted(folders, reverse=True):  # the inner ones first
        with suppress(OSError):  # not empty, or missing
            folder.rmdir()


def git_commit(folder: Path = Path(__file__).parent) -> str:
    """The commit of the edgefl checkout that ``folder`` is in, with "+" if it has changes.

    "unknown" outside such a checkout.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    try:  # an installed package may lie inside another repository
        name = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "name"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        name = ""
    return (
        name == NAME and _git(folder, "describe", "--always", "--dirty=+", "--abbrev=12")
    ) or "unknown"


def _git(folder: Path, *arguments: str) -> str:
    """The output of a git command; "" if it fails or git is not installed."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def externals(run: OpenRun) -> dict[str, object]:
    """What the process has built for the coordinator of ``run``, by name."""
    strategy = run.coordinator.strategy
    found: dict[str, object] = {
        "strategy": strategy,
        "options": strategy.options,
        "layout": strategy.layout,
        "experiment": run.experiment,
        "recorder": run.record,
    }
    limits = run.coordinator.deadlines.limits
    return found if limits is None else {**found, "limits": limits}


def replay_run(
    run: Path, say: Callable[[str], None] = lambda line: None, until: int | None = None
) -> Replay:
    """Replay the run, or its part before the version after ``until``.

    ``say`` gets a line if the end of its journal is torn. UserError if a file is missing, a
    decision differs, or the last weights differ from model.safetensors.
    """
    from edgefl.record.replay import replay  # only this command needs it

    journal = run / "journal"
    for path in (run / "config.toml", journal / "initial.safetensors", journal / "layout.json"):
        if not path.exists():
            raise UserError(
                f"{path}: no such file; a run can be replayed if it was recorded with"
                " record.payloads=true"
            )
    experiment = load(run / "config.toml")
    with undamaged(run / "config.toml"):
        facts = parsed((run / "config.toml").read_text(encoding="utf-8"))["run"]
        entries = {entry.name: entry for entry in experiment.strategies}
        entry = entries[facts["strategy"]]
    with undamaged(journal / "layout.json"):
        layout = Layout.from_json(orjson.loads((journal / "layout.json").read_bytes()))
    weights = _weights(journal / "initial.safetensors")
    base = Path(facts["base"]) if "base" in facts else None
    packed = packing(experiment, experiment.strategies.index(entry), layout, base)
    made = strategy(experiment, entry, base, weights, layout)
    received = {} if packed is None else {"received": packed.received}
    result = replay(journal, made, say, until=until, **received)
    assert result.weights is not None
    kept = run / "model.safetensors"
    if (
        until is None
        and kept.exists()
        and not np.array_equal(_weights(kept).view(np.uint32), result.weights.view(np.uint32))
    ):
        raise UserError(f"{kept}: the replay ends with other weights")
    return result


def _weights(path: Path) -> np.ndarray:
    with undamaged(path):
        return aligned_copy(load_arrays(path.read_bytes())["weights"])
