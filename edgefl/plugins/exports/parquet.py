"""Tables for pandas, DuckDB and polars: one Parquet file per table of the runs.

Each table has the column ``run``. ``events`` has a row per line of events.jsonl, ``decisions`` a
row per decision and edge; ``line`` joins them. Names with a dot, such as ``numbers.loss``, were
objects. ``slices`` and ``instants`` are the timeline. ``edge_models`` has a row for each stretch of
time in which an edge has one model, ``merged_updates`` one for each update that is in a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from edgefl.errors import UserError, needs, undamaged
from edgefl.plugins.exports.export_format import ExportFormat, folder_path
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
from edgefl.results.read import MISSING, TEXTS, Columns, Texts, spread
from edgefl.results.run_files import RunFiles, replace_file
from edgefl.results.timeline import LANES, SLICE_TYPES, SliceColumns, joined

WHOLE = {"version", "number", "bytes", "bytes_up", "bytes_down"}
WHOLE |= {"sent_bytes", "received_bytes", "rss_bytes", "samples"}
SHOWN = "metrics.parquet"
CSV = (METRICS, LINKS, SLOTS, HOSTS, LABELS, EDGES, CLIENTS, MEASURED, ENERGY)


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write the tables that have rows; returns their files. UserError if none has."""
    with needs("export", "Parquet"):
        import pyarrow  # noqa: F401  # before the folder is made
    files = {name: RunFiles(run, only=None) for name, run in runs.items()}
    tables: dict[str, Callable[[RunFiles], Table]] = {
        "events": _events,
        "decisions": _decisions,
        **{Path(name).stem: partial(_csv, name) for name in CSV},
        "slices": _slices,
        "instants": _instants,
        "edge_models": _edge_models,
        "merged_updates": _merged_updates,
    }
    lines, folder = [], Path(out)
    for table, read in tables.items():
        path = folder / f"{table}.parquet"
        parts: dict[str, Table] = {}
        for name, run in files.items():
            with undamaged(run.path):
                parts[name] = read(run)
        if any(part.size for part in parts.values()):
            replace_file(folder_path(out) / path.name, _packed(parts))
            lines.append(str(path))
        elif path.is_file():
            path.unlink()  # of an earlier export
    if not lines:
        raise UserError(f"{next(iter(runs.values()))}: nothing to export: its files have no rows")
    return lines


class Column(NamedTuple):
    """Values of some ``rows`` of a table, in order; other rows have none.

    ``values``: an Arrow array, or Python's values, which may be of any type.
    """

    rows: np.ndarray
    values: Any


class Table(NamedTuple):
    size: int  # its rows
    columns: dict[str, list[Column]]


def _packed(parts: Mapping[str, Table]) -> bytes:
    """The rows of all runs, with the column ``run``, as a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    counts = [part.size for part in parts.values()]
    befores = np.cumsum(counts) - counts
    names = np.repeat(np.arange(len(parts)), counts)
    arrays = {"run": pyarrow.array([*parts]).take(pyarrow.array(names))}
    pieces: dict[str, list[Column]] = {}
    for before, part in zip(befores.tolist(), parts.values()):
        for column, found in part.columns.items():
            pieces.setdefault(column, []).extend(
                Column(before + each.rows, each.values) for each in found
            )
    arrays |= {column: _column(found, sum(counts)) for column, found in pieces.items()}
    # Numbers hardly repeat: a dictionary of them would take time, and room.
    texts = [name for name, values in arrays.items() if values.type == pyarrow.string()]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays), sink, use_dictionary=texts)
    return bytes(sink.getvalue())


def _column(pieces: Sequence[Column], count: int) -> Any:
    """One type for all values: as it is, or JSON text if there are several types or objects."""
    import pyarrow

    pieces = [each for each in pieces if _is_array(each) or any(v is not None for v in each.values)]
    pieces = [each for each in pieces if len(each.rows)]
    arrays = [each if _is_array(each) else _as_array(each) for each in pieces]
    found = [each for each in arrays if each is not None]
    types = {each.values.type for each in found}
    if types == {pyarrow.int64(), pyarrow.float64()}:
        found = [Column(each.rows, each.values.cast(pyarrow.float64())) for each in found]
    elif len(types) > 1 or len(found) < len(pieces):
        found = [Column(each.rows, pyarrow.array(_texts(each.values))) for each in pieces]
    if not pieces:
        return pyarrow.nulls(count, pyarrow.string())
    values = found[0].values
    if len(found) > 1:
        values = pyarrow.chunked_array([each.values for each in found]).combine_chunks()
    rows = np.concatenate([each.rows for each in found])
    if len(rows) == count and (np.diff(rows) == 1).all():
        return values
    places = np.full(count, MISSING)
    places[rows] = np.arange(len(rows))
    return values.take(pyarrow.array(places, mask=places == MISSING))


def _is_array(column: Column) -> bool:
    import pyarrow

    return isinstance(column.values, pyarrow.Array)


def _as_array(column: Column) -> Column | None:
    """Values of one type as an Arrow array; None if they have several types, or are objects."""
    types = {type(value) for value in column.values if value is not None}
    if types == {int, float}:
        values = [None if value is None else float(value) for value in column.values]
    elif len(types) <= 1 and types <= {bool, int, float, str}:
        values = column.values
    else:
        return None
    return Column(column.rows, _array(values))


def _texts(values: Any) -> list[str | None]:
    every = values.to_pylist() if hasattr(values, "to_pylist") else values
    return [value if value is None else _text(value) for value in every]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _named(texts: Texts, numbers: np.ndarray) -> Any:
    """Texts by their numbers; null for MISSING."""
    import pyarrow

    places = pyarrow.array(numbers, mask=numbers == MISSING)
    return pyarrow.array(texts.all, pyarrow.string()).take(places)


def _where(there: np.ndarray, values: Any) -> list[Column]:
    """The values of the rows that have one; ``values``: an array of numbers, or of Arrow."""
    import pyarrow

    rows = np.flatnonzero(there)
    if isinstance(values, np.ndarray):
        return [Column(rows, pyarrow.array(values[rows]))]
    return [Column(rows, values.take(pyarrow.array(rows)))]


def _events(run: RunFiles) -> Table:
    events = run.events
    every = np.arange(events.count)
    line = _where(every >= 0, every + 1)
    return Table(events.count, {"line": line, **_of_columns(events.rows)})


def _decisions(run: RunFiles) -> Table:
    """A row per decision, or per edge of an "assign"."""
    events, decisions = run.events, run.events.decisions
    assigned = decisions.texts_of("do") == run.texts.number("assign")
    edges, tasks, pairs = events.assigned(np.flatnonzero(assigned))
    counts = np.ones(decisions.count, np.int64)
    counts[assigned] = pairs
    of = np.repeat(np.arange(decisions.count), counts)  # rows of the table -> decisions
    in_row = events.decided_in[of]
    t = events.rows.whole("t") if _all_whole(events.rows, "t") else events.rows.floats("t")
    event = events.rows.texts_of("event")[in_row]
    columns = {
        "line": _where(in_row >= 0, in_row + 1),
        "t": _where(events.rows.has("t")[in_row], t[in_row]),
        "event": _where(event != MISSING, _named(run.texts, event)),
    }
    found = _of_columns(decisions, counts, without=(assigned, ("edges", "tasks")))
    rows = np.flatnonzero(assigned[of])
    own = {"edge": _named(run.texts, edges), "task": _array(tasks)}
    order = decisions.order
    if len(rows):  # they are the last ones in the rows that have them first
        last = (int(np.flatnonzero(assigned & (counts > 0))[0]), len(order))
        order = {**order, **{name: min(order.get(name, last), last) for name in own}}
        for name, values in own.items():
            found.setdefault(name, []).append(Column(rows, values))
    columns |= {name: found[name] for name in sorted(found, key=order.__getitem__)}
    return Table(len(of), columns)


def _all_whole(columns: Columns, name: str) -> bool:
    return {part.type for part in columns.parts(name)} == {int}


def _of_columns(
    found: Columns,
    counts: np.ndarray | None = None,
    without: tuple[np.ndarray, Sequence[str]] | None = None,
) -> dict[str, list[Column]]:
    """The columns of events or decisions.

    ``counts``: how many rows of the table each has. ``without``: rows, and the columns that they
    do not have here.
    """
    columns: dict[str, list[Column]] = {}
    starts = None if counts is None else np.cumsum(counts) - counts
    for name in found.names:
        for part in found.parts(name):
            at, packed, kind = part
            left = np.ones(len(at), bool)
            if without is not None and name in without[1]:
                left = ~without[0][at]
                if not left.any():
                    continue
            if kind is str:
                values = _named(found.texts, packed)
            else:
                values = _array(packed) if kind in (float, int) else found.unpacked(part)
            if not left.all():
                values = [value for value, kept in zip(values, left) if kept]
            rows = at = at[left]
            if counts is not None and starts is not None:
                rows = spread(starts[at], counts[at])
                if (counts[at] != 1).any():
                    places = np.repeat(np.arange(len(at)), counts[at])
                    values = (
                        values.take(_array(places))
                        if hasattr(values, "take")
                        else [values[place] for place in places.tolist()]
                    )
            columns.setdefault(name, []).append(Column(rows, values))
    return columns


def _array(values: Any) -> Any:
    import pyarrow

    return pyarrow.array(values)


def _csv(name: str, run: RunFiles) -> Table:
    """A CSV file; an empty field is no value. ``label_3`` of edges.csv counts samples."""
    table = run.table(name)
    columns = {}
    for column in table.names:
        values = table[column]
        if column in TEXTS:
            there = values != run.texts.number("")
            columns[column] = _where(there, _named(run.texts, values))
        else:
            there = ~np.isnan(values)
            whole = column in WHOLE
            columns[column] = _where(
                there, np.where(there, values, 0).astype(int) if whole else values
            )
    return Table(table.count, columns)


def _slices(run: RunFiles) -> Table:
    ended, going_on = run.timeline.slice_columns(), run.timeline.open_columns()
    columns = SliceColumns(*joined([ended, going_on], SLICE_TYPES))
    order = np.argsort(columns.begin_s, kind="stable")
    found = SliceColumns(*(each[order] for each in columns))
    lanes = np.array([run.texts.number(lane) for lane in LANES])
    texts = {"edge": found.edge, "lane": lanes[found.lane], "kind": found.kind}
    numbers = {"begin_s": found.begin_s, "end_s": found.end_s}
    whole = {"task": found.task, "size_bytes": found.size_bytes}
    return Table(len(order), _typed(run.texts, texts, numbers, whole))


def _instants(run: RunFiles) -> Table:
    found = run.timeline.instant_columns()
    texts = {"edge": found.edge, "kind": found.kind}
    whole = {"task": found.task, "version": found.version}
    return Table(len(found.t_s), _typed(run.texts, texts, {"t_s": found.t_s}, whole))


def _edge_models(run: RunFiles) -> Table:
    """``of_s``: the moment that the model is of, mostly its publication."""
    held = run.ages.held
    order = np.lexsort((held.edge, held.begin_s))
    found = held.where(order)
    numbers = {"begin_s": found.begin_s, "end_s": found.end_s, "of_s": found.of_s}
    whole = {"version": found.version, "at_work": found.at_work}
    return Table(len(order), _typed(run.texts, {"edge": found.edge}, numbers, whole))


def _merged_updates(run: RunFiles) -> Table:
    updates = run.ages.updates
    seconds, versions = run.ages.of_updates()
    of_s, fresh = run.ages.of_updates(fresh=True)
    numbers = {"t_s": updates.t_s, "age_s": seconds, "fresh_age_s": of_s}
    whole = {"task": updates.task, "base_version": updates.base, "newest_version": updates.newest}
    whole |= {"age_versions": versions, "fresh_age_versions": fresh}
    return Table(len(updates.t_s), _typed(run.texts, {"edge": updates.edge}, numbers, whole))


def _typed(
    texts: Texts,
    names: Mapping[str, np.ndarray],
    numbers: Mapping[str, np.ndarray],
    whole: Mapping[str, np.ndarray],
) -> dict[str, list[Column]]:
    return {
        **{name: _where(each != MISSING, _named(texts, each)) for name, each in names.items()},
        **{name: _where(~np.isnan(each), each) for name, each in numbers.items()},
        **{name: _where(each != MISSING, each) for name, each in whole.items()},
    }


FORMAT = ExportFormat(
    out="parquet",
    view=lambda out: f"""python -c "import pandas; print(pandas.read_parquet('{out}/{SHOWN}'))\"""",
    write=write,
)
