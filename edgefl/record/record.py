"""The files of a running run: events.jsonl, links.csv, metrics.csv, slots.csv, labels.csv,
clients.csv, measured.csv, hosts.csv, energy.csv.

At the end it adds the last model.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import save

from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import HostFacts, HostReport
from edgefl.record import files
from edgefl.record.files import Row
from edgefl.record.host_table import celsius, throttling
from edgefl.record.journal import Journal
from edgefl.record.tables import (
    RotatedFile,
    Rotation,
    TextRows,
    lost_rows,
    not_written,
    remove_all,
    write_whole,
)
from edgefl.strategies.base.events_and_decisions import Decision, EdgeJoined, Event
from emulator.links.network import Completion
from emulator.units import seconds_text

TABLES: dict[str, tuple[str, ...]] = {
    files.LINKS: files.LINK_COLUMNS,
    files.METRICS: files.METRIC_COLUMNS,
    files.SLOTS: files.SLOT_COLUMNS,
    files.MEASURED: files.MEASURED_COLUMNS,
    files.LABELS: (),  # as many as the data set has labels
    files.CLIENTS: files.CLIENT_COLUMNS,
    files.HOSTS: files.HOST_COLUMNS,
    files.ENERGY: files.ENERGY_COLUMNS,
}
ALWAYS = (files.LINKS, files.METRICS)  # the others are made with their first row
MOST_AT_ONCE = 1000  # rows of events.jsonl
JOURNAL = "journal/"  # the journal's folder


def journal_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the journal's files among those of a record."""
    return {
        name.removeprefix(JOURNAL): size for name, size in sizes.items() if name.startswith(JOURNAL)
    }


class Record:
    """The files of one run in ``directory``.

    ``wall_s`` returns wall seconds since the run's start. They go into metrics.csv only, so that
    events.jsonl of a virtual run is reproducible.
    """

    def __init__(
        self,
        directory: Path,
        wall_s: Callable[[], float],
        journal: Journal | None,
        disk: Disk | None = None,
        sizes: Mapping[str, int] | None = None,
        rotation: Rotation | None = None,
        joules: bool = False,
        further: Sequence[str] = (),
        clients: Sequence[str] = (),
    ) -> None:
        """``sizes``: go on with the files of a run as they were at that moment, see ``sizes()``.

        Rows after it are dropped. Without it, the files begin empty. UserError if a file is shorter
        than it was: then nothing is changed. ``rotation``: when a file goes on in a new one.
        ``joules``: metrics.csv has a column of them. ``further``: its columns of other scores than
        the accuracy. ``clients``: the edges, if each of them evaluates the model by itself.
        """
        self.directory, self.wall_s, self.journal = directory, wall_s, journal
        self.disk = disk or OwnDisk()
        self.rotation = rotation or Rotation()
        self._joules, self._further, self._clients = joules, tuple(further), tuple(clients)
        self._sizes = sizes or {}  # of files that are not open yet
        if lost := lost_rows(directory, self.disk, self._sizes):
            raise UserError(f"{lost}, so the run cannot go on from here")
        self.disk.make_folder(directory)
        self.wall_at: dict[int, float] = {}
        self._files: dict[str, RotatedFile] = {}
        self._writers: dict[str, Any] = {}  # of the tables
        self._events = self._open(files.EVENTS)
        # an input is written into the journal after it has caused rows of events: they are held
        self._holds = journal is not None and journal.inputs
        self._held: list[bytes] = []
        for name in TABLES:
            if name in ALWAYS or name in self._sizes:
                self._add_table(name)
            else:
                remove_all(directory / name, self.disk)
        self._links = self._files[files.LINKS]

    def sizes(self) -> dict[str, int]:
        """The bytes of each file, rows that still are in memory included.

        A journal of events is included; one of inputs is not, because it is replayed.
        """
        sizes: dict[str, int] = {}
        for file in self._files.values():
            sizes |= file.sizes()
        if self.journal is not None and not self.journal.inputs:
            sizes |= {f"{JOURNAL}{name}": size for name, size in self.journal.sizes().items()}
        return sizes

    def size_of(self, name: str) -> int:
        """The bytes of one table, rows that still are in memory included."""
        return self._files[name].sizes()[name]

    def hold(self, sizes: Mapping[str, int] | None) -> None:
        """Delete no part that a run needs to go on at ``sizes``; None: the run is over."""
        for file in self._files.values():
            file.hold(sizes)

    def parts_deleted(self) -> dict[str, int]:
        """How many old parts of each file were deleted; only files with some."""
        counts = {name: file.deleted() for name, file in self._files.items()}
        return {name: count for name, count in counts.items() if count}

    def event(self, now: int, event: Event, decisions: list[Decision], row: Row) -> None:
        """Write an event and its decisions into the journal, and ``row`` into events.jsonl."""
        if self.journal is not None:
            self.journal.write(now, event, decisions)
        self.fact(now, row)

    def joined(self, now: int, events: Sequence[EdgeJoined], rows: Sequence[Row]) -> None:
        """Write joined edges on which nothing was decided, as ``event`` does each."""
        if self.journal is not None:
            for event in events:
                self.journal.write(now, event, [])
        moment = seconds_text(now).encode()
        for first in range(0, len(rows), MOST_AT_ONCE):
            chosen = [_line(moment, row) for row in rows[first : first + MOST_AT_ONCE]]
            if self._holds:
                self._held += chosen
            else:
                self._events.write_all(chosen)

    def fact(self, now: int, row: Row) -> None:
        """Write a line of events.jsonl; ``now`` is in emulated nanoseconds."""
        line = _line(seconds_text(now).encode(), row)
        if self._holds:
            self._held.append(line)
        else:
            self._events.write(line)

    def release(self) -> None:
        """Write the rows of events that are held: the journal has the inputs that caused them."""
        rows, self._held = self._held, []
        self._events.write_all(rows)

    # ------------------------------------------------------------------ tables
    def link(self, completion: Completion, finished_ns: int) -> None:
        """Write a finished transfer into links.csv, and its slots into slots.csv."""
        # not through csv.writer, which takes longer: nothing in these rows needs quotes
        transfer = completion.transfer
        self._links.write(
            f"{transfer.edge},{transfer.direction},{transfer.kind},{transfer.size},"
            f"{seconds_text(completion.offered_ns)},{seconds_text(completion.due_ns)},"
            f"{seconds_text(finished_ns)}\r\n".encode()
        )
        if completion.windows_ns:
            self._slots(completion)

    def _slots(self, completion: Completion) -> None:
        transfer = completion.transfer
        who = (transfer.edge, transfer.direction, transfer.kind)
        self._table(files.SLOTS).writerows(
            [seconds_text(begin_ns), seconds_text(end_ns), *who]
            for begin_ns, end_ns in completion.windows_ns
        )

    def measured(
        self, what: str, edge: str, number: int | None, stretch: tuple[int, int, int]
    ) -> None:
        """Write a stretch (begin, end, amount) of a native link or device into measured.csv."""
        began_ns, ended_ns, amount = stretch
        moments = (seconds_text(began_ns), seconds_text(ended_ns))
        rows = self._table(files.MEASURED)
        rows.writerow([what, edge, number, *moments, amount])

    def host(self, now: int, edge: str, facts: HostFacts, report: HostReport) -> None:
        """Write an edge's report about its host into hosts.csv."""
        permille = (report.cpu_permille, report.edge_cpu_permille)
        cpu, edge_cpu = (None if each is None else each / 10 for each in permille)
        counted = (report.ran_us, report.waited_us)
        self._table(files.HOSTS).writerow(
            [
                seconds_text(now),
                edge,
                facts.host,
                facts.machine,
                cpu,
                celsius(report.temperature_mk),
                throttling(report.throttled),
                report.sent_bytes,
                report.received_bytes,
                edge_cpu,
                report.rss_bytes,
                *(None if each is None else f"{each / 1_000_000:.6f}" for each in counted),
            ]
        )

    def energy(self, fields: Sequence[Any]) -> None:
        """Write a row of energy.csv."""
        self._table(files.ENERGY).writerow(fields)

    def snapshot(self, version: int) -> None:
        """Note the current wall time for the metrics row of ``version``."""
        self.wall_at[version] = self.wall_s()

    def metrics(
        self,
        job: Evaluate,
        train_loss: float | None,
        test_loss: float,
        accuracy: float,
        *more: float,
    ) -> None:
        """Write a finished evaluation into metrics.csv, labels.csv and clients.csv.

        ``more``: the further scores, then loss and accuracy of each client, or the accuracy of each
        label, if it was measured.
        """
        count = len(self._further)
        further, parts = more[:count], more[count:]
        by_label = () if self._clients else parts
        version = (job.version, seconds_text(job.at_ns))
        self._table(files.METRICS).writerow(
            [
                *version,
                f"{self.wall_at.pop(job.version, 0.0):.3f}",
                "" if train_loss is None else f"{train_loss:.6f}",
                f"{test_loss:.6f}",
                f"{accuracy:.6f}",
                job.bytes_up,
                job.bytes_down,
                *([job.joules] if self._joules else []),
                *(f"{value:.6f}" for value in further),
            ]
        )
        if by_label:
            self._table(files.LABELS, files.label_columns(len(by_label))).writerow(
                [*version, *("" if math.isnan(share) else f"{share:.6f}" for share in by_label)]
            )
        for each, client in enumerate(self._clients):
            loss, right = parts[2 * each : 2 * each + 2]
            row = [*version, client, f"{loss:.6f}", f"{right:.6f}"]
            self._table(files.CLIENTS).writerow(row)

    def edge_scores(self, job: Evaluate, edges: Sequence[str], scores: Sequence[Any]) -> None:
        """Write the scores of the ``edges`` into clients.csv; ``scores``: see ``jobs.Scores``.

        The fields of loss and accuracy are empty for an edge without samples.
        """
        version, table = (job.version, seconds_text(job.at_ns)), self._table(files.CLIENTS)
        for at, edge in enumerate(edges):
            loss, right, samples = scores[3 * at : 3 * at + 3]
            values = (f"{loss:.6f}", f"{right:.6f}") if samples else ("", "")
            table.writerow([*version, edge, *values, int(samples)])

    def flush(self) -> None:
        """Hand all rows to the operating system, so that readers see them."""
        with ExitStack() as each:  # flush all, even if one of them fails
            each.callback(self.flush_fates)
            for file in self._files.values():
                each.callback(file.flush)

    def flush_fates(self) -> None:
        """Hand the journal and then the events to the operating system.

        Decisions then survive a crash of this process, so they may be acknowledged. If the journal
        fails, the rows that are held are dropped: rows without entries look like a journal that was
        deleted, and then the run cannot go on. UserError if a file fails.
        """
        if self.journal is not None:
            self.journal.flush()
            # an empty journal beside rows of events is then always a damage
            if self.journal.power and not self.journal.has_durable:
                self.journal.sync()
            if self.journal.failed:
                self._held.clear()
        self.release()
        self._events.flush()

    def sync(self) -> None:
        """Return when all rows so far survive a loss of power.

        Another thread may do this, after ``flush``.
        """
        for file in list(self._files.values()):
            file.sync()
        self.disk.sync_folder(self.directory)

    def close(self, weights: np.ndarray, durable: bool = False) -> None:
        """Close all files, then write the last model into model.safetensors.

        ``durable``: return when all of them survive a loss of power.
        """
        if durable:
            self.flush()
            self.sync()
        with ExitStack() as each:
            for file in self._files.values():
                each.callback(file.close)
            if self.journal is not None:
                each.callback(self.journal.close)
            each.callback(self.flush_fates)  # the first of these
        model = save({"weights": np.ascontiguousarray(weights)})
        write_whole(self.directory / files.MODEL, model, self.disk, durable)

    def drop_journal(self) -> None:
        """Delete the journal of a run that has ended, once its summary is written."""
        if self.journal is not None:
            self.journal.drop()

    def _open(self, name: str, columns: Sequence[str] = ()) -> RotatedFile:
        head = f"{','.join(columns)}\r\n".encode() if columns else None
        head = b"" if name == files.EVENTS else head
        file = RotatedFile(self.directory / name, self.disk, self.rotation, self._sizes, head)
        self._files[name] = file
        return file

    def _table(self, name: str, columns: Sequence[str] = ()) -> Any:
        """The writer of a table, which is created with its first row. UserError if it cannot be."""
        if name not in self._writers:
            try:
                self._add_table(name, columns)
            except OSError as error:
                raise not_written(self.directory / name, error) from error
        return self._writers[name]

    def _add_table(self, name: str, columns: Sequence[str] = ()) -> None:
        more: tuple[str, ...] = ()
        if name == files.METRICS:
            more = (*(("joules",) if self._joules else ()), *self._further)
        if name == files.CLIENTS and not self._clients:
            more = (files.SAMPLES_COLUMN,)
        file = self._open(name, columns or (*TABLES[name], *more))
        self._writers[name] = csv.writer(TextRows(file))


def _line(moment: bytes, row: Row) -> bytes:
    """A line of events.jsonl; ``moment``: in emulated seconds."""
    return b'{"t":%b,%b\n' % (moment, orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)[1:])
