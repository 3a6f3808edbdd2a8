"""A run directory: open it with the resolved config, close it with the summary, replay it.

Both clocks use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from edgefl.clocks.setup.resumption import (
    AT_THE_END,
    FOLDERS,
    LATE,
    git_commit,
    remove,
    writable,
    written,
)
from edgefl.compression.packing import Packing
from edgefl.config.experiment import Evaluation, Experiment, availability_file, traces
from edgefl.config.experiment import parts as groups
from edgefl.config.file import FACTS, dump, kind_of, load, own_names, server_code
from edgefl.config.toml import parsed
from edgefl.coordinator.coordinator import Coordinator
from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError, listed, undamaged
from edgefl.record import files
from edgefl.record.counters import Counters
from edgefl.record.energy import EnergyBook
from edgefl.record.files import METRICS, SUMMARY
from edgefl.record.journal import Journal
from edgefl.record.record import Record, journal_sizes
from edgefl.record.tables import Later, Rotation, at_once, write_whole
from edgefl.results import families
from edgefl.results.energy import MEASURED, joules_to_target
from edgefl.results.read import read_csv
from edgefl.results.run_files import find, is_run, read_config
from edgefl.results.summary import BROKEN_OFF, outcome, scores_not_finite, warnings
from edgefl.vectors import Layout, aligned_copy
from emulator.energy.power import EdgePower
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S

if TYPE_CHECKING:
    from edgefl.record.journal import Replay


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
    found = outcome(rows, evaluation.goal, evaluation.score, head["emulated_s"], counters.version_s)
    summary = {
        **head,
        **counters.of_updates(),
        **found,
        **counters.of_run(),
        **({"scores_not_finite": not_finite} if not_finite else {}),
        **_energy(energy, joules_to_target(rows, evaluation.goal, evaluation.score), hosts),
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
            self.disk.sync_folder(self.directory.parent)

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
        remove(self.directory, written(self.directory, self.disk))
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


def lengthenings(run: Path) -> dict[str, Any]:
    """Return {"lengthened": how often the run was lengthened, and how}; {} if it never was."""
    found = read_config(run).get(FACTS, {}).get("lengthened")
    return {"lengthened": found} if found else {}


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
    from edgefl.record.journal import replay  # only this command needs it

    if not is_run(run):  # find says if there is nothing
        runs = [str(each) for of_strategy in find([run]).values() for each in of_strategy]
        raise UserError(f"{run}: is no run itself: name one of its runs: {listed(runs)}")
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
