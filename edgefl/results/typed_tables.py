"""All tables of a run as numpy columns of one type each: for frames, and for the Parquet export.

Start with ``table``. ``events`` has a row per line of events.jsonl, ``decisions`` a row per
decision and edge; ``line`` joins them. Names with a dot, such as ``numbers.loss``, were objects.
``slices`` and ``instants`` are the timeline. ``edge_models`` has a row for each stretch of time in
which an edge has one model, ``merged_updates`` one for each update that is in a model. The other
tables are the CSV files of a run.

The type of a column says what a missing value is:

float64         NaN
int64, bool     none is missing; whole numbers with gaps are a masked array of int64
object          None. Texts; also lists, and values of several types
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import orjson

from edgefl.errors import UserError, nearest, needs, undamaged
from edgefl.record.files import (
    CLIENTS,
    EDGES,
    ENERGY,
    HOSTS,
    LABELS,
    LINKS,
    MEASURED,
    METRICS,
    SLOTS,
)
from edgefl.results.read import MISSING, TEXTS, Columns, Texts, columns_of
from edgefl.results.run_files import RunFiles, replace_file
from edgefl.results.timeline import LANES

TypedTable = dict[str, np.ndarray]  # columns of one length
WHOLE = {"version", "number", "bytes", "bytes_up", "bytes_down"}
WHOLE |= {"sent_bytes", "received_bytes", "rss_bytes", "samples"}


def table(run: RunFiles, name: str) -> TypedTable:
    """Return a table of ``TABLES``; without rows if the run has no such file.

    ``run``: with all keys of its events (``only=None``). UserError for an unknown name, and if a
    file is damaged.
    """
    if name not in TABLES:
        raise UserError(f"table {name!r}: there is no such table{nearest(name, TABLES)}")
    with undamaged(run.path):
        return TABLES[name](run)


def size(of: TypedTable) -> int:
    """Return the number of rows."""
    return len(next(iter(of.values()), ()))


def of_runs(tables: Mapping[str, TypedTable], **columns: Mapping[str, Any]) -> TypedTable:
    """Return the rows of all runs as one table, with the name of the run as the column ``run``.

    ``columns``: further columns behind it, each with the value of each run.
    """
    counts = [size(each) for each in tables.values()]
    ends = np.cumsum(counts)
    places = [np.arange(end - count, end) for count, end in zip(counts, ends.tolist())]
    of_rows = np.repeat(np.arange(len(tables)), counts)
    found = {"run": _typed([*tables])[of_rows]}
    found |= {name: _typed([of[run] for run in tables])[of_rows] for name, of in columns.items()}
    for name in dict.fromkeys(name for each in tables.values() for name in each):
        pieces = [(rows, of[name]) for rows, of in zip(places, tables.values()) if name in of]
        found[name] = _merged(sum(counts), pieces)
    return found


def of_records(records: Sequence[Mapping[str, Any]]) -> TypedTable:
    """Return these rows, which may lack some keys, as a table."""
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _typed([record.get(name) for record in records]) for name in names}


# ---------------------------------------------------------------------- columns
def _typed(values: Sequence[Any]) -> np.ndarray:
    """Return Python's values as a column; of numbers if all are missing."""
    types = set(map(type, values)) - {NoneType}
    if types == {int} and _fit(values):
        gaps = np.array([each is None for each in values])
        return _whole(np.array([each or 0 for each in values], np.int64), gaps)
    if types <= {int, float}:
        return np.array([np.nan if each is None else each for each in values], np.float64)
    if types == {bool} and None not in values:
        return np.array(values, bool)
    return np.fromiter(values, object, len(values))


def _fit(values: Sequence[int | None]) -> bool:
    bounds = np.iinfo(np.int64)
    return all(each is None or bounds.min <= each <= bounds.max for each in values)


def _whole(values: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    return np.ma.MaskedArray(values, gaps) if gaps.any() else values


def _merged(count: int, pieces: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return a column of ``count`` rows, of one type that fits all pieces: rows and their values.

    Other rows have no value.
    """
    known = [(rows, values) for rows, values in pieces if not _is_missing(values).all()]
    kinds = {values.dtype.kind for _, values in known or pieces}
    complete = sum(len(rows) for rows, _ in known) == count
    if kinds == {"i"}:
        numbers, gaps = np.zeros(count, np.int64), np.ones(count, bool)
        for rows, values in known:
            numbers[rows], gaps[rows] = np.ma.getdata(values), np.ma.getmaskarray(values)
        return _whole(numbers, gaps)
    if kinds and kinds <= {"i", "f"}:
        column = np.full(count, np.nan)
        for rows, values in known:
            column[rows] = np.ma.filled(values.astype(np.float64), np.nan)
        return column
    column = np.zeros(count, bool) if kinds == {"b"} and complete else np.full(count, None)
    for rows, values in known:
        column[rows] = np.ma.getdata(values)
        column[rows[np.ma.getmaskarray(values)]] = None
    return column


def _is_missing(values: np.ndarray) -> np.ndarray:
    if values.dtype == object:
        return np.fromiter((each is None for each in values), bool, len(values))
    return np.isnan(values) if values.dtype.kind == "f" else np.ma.getmaskarray(values)


def _named(texts: Texts, numbers: np.ndarray) -> np.ndarray:
    """Return texts by their numbers; None for MISSING, which is the last place."""
    return np.fromiter((*texts.all, None), object, len(texts) + 1)[numbers]


def _column(found: Columns, name: str) -> np.ndarray:
    """Return a column of events or decisions."""

    def values(part: Any) -> np.ndarray:
        if part.type is str:
            return _named(found.texts, part.values)
        return part.values if part.type in (float, int) else _typed(found.unpacked(part))

    return _merged(found.count, [(part.at, values(part)) for part in found.parts(name)])


# ---------------------------------------------------------------------- tables
def _events(run: RunFiles) -> TypedTable:
    rows = run.events.rows
    return {
        "line": np.arange(1, rows.count + 1),
        **{name: _column(rows, name) for name in rows.names},
    }


def _decisions(run: RunFiles) -> TypedTable:
    """A row per decision, or per edge of an "assign"."""
    events, decisions = run.events, run.events.decisions
    assigned = decisions.texts_of("do") == run.texts.number("assign")
    edges, tasks, pairs = events.assigned(np.flatnonzero(assigned))
    counts = np.ones(decisions.count, np.int64)
    counts[assigned] = pairs
    of = np.repeat(np.arange(decisions.count), counts)  # rows of the table -> decisions
    in_row, rows = events.decided_in[of], np.flatnonzero(assigned[of])
    columns = {
        "line": in_row + 1,
        "t": _column(events.rows, "t")[in_row],
        "event": _column(events.rows, "event")[in_row],
        **{name: _column(decisions, name)[of] for name in decisions.names},
    }
    for name, values in (("edge", _named(run.texts, edges)), ("task", tasks)):
        others = np.flatnonzero(~assigned[of])
        own = [(others, columns[name][others])] if name in columns else []
        columns[name] = _merged(len(of), [*own, (rows, values)])
    for name in {"edges", "tasks"} & columns.keys():  # of an "assign" they are rows now
        columns[name][rows] = None
        if _is_missing(columns[name]).all():
            del columns[name]
    return columns


def _csv(name: str, run: RunFiles) -> TypedTable:
    """A CSV file; an empty field is no value. ``label_3`` of edges.csv counts samples."""
    found = run.table(name)
    return {column: _field(run, column, found[column]) for column in found.names}


def _field(run: RunFiles, name: str, values: np.ndarray) -> np.ndarray:
    if name in TEXTS:
        return _named(run.texts, np.where(values == run.texts.number(""), MISSING, values))
    gaps = np.isnan(values)
    return _whole(np.where(gaps, 0, values).astype(np.int64), gaps) if name in WHOLE else values


def _slices(run: RunFiles) -> TypedTable:
    found = run.timeline.slice_rows(and_open=True)
    return _shown(run, found[np.argsort(found["begin_s"], kind="stable")])


def _instants(run: RunFiles) -> TypedTable:
    return _shown(run, run.timeline.instant_rows())


def _edge_models(run: RunFiles) -> TypedTable:
    """``of_s``: the moment that the model is of, mostly its publication."""
    held = run.ages.held
    found = held.where(np.lexsort((held.edge, held.begin_s)))
    return {
        "edge": _named(run.texts, found.edge),
        "begin_s": found.begin_s,
        "end_s": found.end_s,
        "of_s": found.of_s,
        "version": _counted(found.version),
        "at_work": found.at_work,
    }


def _merged_updates(run: RunFiles) -> TypedTable:
    updates = run.ages.updates
    seconds, versions = run.ages.of_updates()
    fresh_s, fresh = run.ages.of_updates(fresh=True)
    return {
        "edge": _named(run.texts, updates.edge),
        "t_s": updates.t_s,
        "age_s": seconds,
        "fresh_age_s": fresh_s,
        "task": _counted(updates.task),
        "base_version": _counted(updates.base),
        "newest_version": _counted(updates.newest),
        "age_versions": _counted(versions),
        "fresh_age_versions": _counted(fresh),
    }


def _shown(run: RunFiles, rows: np.ndarray) -> TypedTable:
    """The fields of the timeline's rows; edges, lanes and kinds as texts."""
    found = dict(zip(rows.dtype.names or (), map(np.array, columns_of(rows))))
    for name, column in found.items():
        if name in ("edge", "kind"):
            found[name] = _named(run.texts, column)
        elif column.dtype.kind == "i":
            found[name] = np.array(LANES, object)[column] if name == "lane" else _counted(column)
    return found


def _counted(values: np.ndarray) -> np.ndarray:
    """Whole numbers with gaps where they are MISSING."""
    return _whole(values, values == MISSING)


TABLES: dict[str, Callable[[RunFiles], TypedTable]] = {
    "events": _events,
    "decisions": _decisions,
    **{
        Path(name).stem: partial(_csv, name)
        for name in (METRICS, LINKS, SLOTS, HOSTS, LABELS, EDGES, CLIENTS, MEASURED, ENERGY)
    },
    "slices": _slices,
    "instants": _instants,
    "edge_models": _edge_models,
    "merged_updates": _merged_updates,
}


# ---------------------------------------------------------------------- Parquet
def write_parquet(of: TypedTable, path: Path, what: str = "Parquet") -> None:
    """Write a Parquet file. Lists, and values of several types, become JSON text.

    UserError without pyarrow, which ``what`` needs, or if the file cannot be written.
    """
    with needs("export", what):
        import pyarrow
        from pyarrow import parquet

    arrays = {name: _arrow(values) for name, values in of.items()}
    # Numbers hardly repeat: a dictionary of them would take time, and room.
    texts = [name for name, values in arrays.items() if values.type == pyarrow.string()]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays), sink, use_dictionary=texts)
    replace_file(path, bytes(sink.getvalue()))


def _arrow(values: np.ndarray) -> Any:
    import pyarrow

    if isinstance(values, np.ma.MaskedArray):
        return pyarrow.array(values.data, mask=values.mask)
    if values.dtype != object:
        return pyarrow.array(values, from_pandas=True)  # NaN is null
    types = set(map(type, values)) - {NoneType}
    if types in ({str}, {bool}):
        return pyarrow.array(values)
    return pyarrow.array(map(_text, values.tolist()), pyarrow.string())


def _text(value: Any) -> str | None:
    return value if isinstance(value, str | None) else orjson.dumps(value).decode()
