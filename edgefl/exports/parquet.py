"""Tables for pandas, DuckDB and polars: one Parquet file per table of the runs.

Each table has the column ``run``. ``events`` has a row per line of events.jsonl, ``decisions`` a
row per decision and edge; ``line`` joins them. Names with a dot, such as ``numbers.loss``, were
objects. ``slices`` and ``instants`` are the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError, needs, undamaged
from edgefl.exports.export_format import ExportFormat, folder_path
from edgefl.record.files import (
    EDGES,
    ENERGY,
    EVENTS,
    HOSTS,
    LABELS,
    LINKS,
    MEASURED,
    METRICS,
    SLOTS,
)
from edgefl.results.compare import replace_file
from edgefl.results.intervals import Instant, Slice
from edgefl.results.summary import number
from edgefl.results.tail import iter_csv, iter_events
from edgefl.results.timeline import of_run

Rows = Iterable[Mapping[str, Any]]
TEXTS = {"edge", "direction", "kind", "what", "host", "machine", "throttled", "runtime", "state"}
WHOLE = {"version", "number", "bytes", "bytes_up", "bytes_down"}
WHOLE |= {"sent_bytes", "received_bytes", "rss_bytes"}
SHOWN = "metrics.parquet"
CSV = (METRICS, LINKS, SLOTS, HOSTS, LABELS, EDGES, MEASURED, ENERGY)


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write the tables that have rows; returns their files. UserError if none has."""
    with needs("export", "Parquet"):
        import pyarrow  # noqa: F401  # before the folder is made
    tables: dict[str, Callable[[Path], Rows]] = {
        "events": _events,
        "decisions": _decisions,
        **{Path(name).stem: _reader(name) for name in CSV},
        "slices": lambda run: _timeline(run)[0],
        "instants": lambda run: _timeline(run)[1],
    }
    lines, folder = [], Path(out)
    for table, read in tables.items():
        columns = _columns(runs, read)
        path = folder / f"{table}.parquet"
        if columns:
            replace_file(folder_path(out) / path.name, _packed(columns))
            lines.append(str(path))
        elif path.is_file():
            path.unlink()  # of an earlier export
    if not lines:
        raise UserError(f"{next(iter(runs.values()))}: nothing to export: its files have no rows")
    return lines


def _columns(runs: Mapping[str, Path], read: Callable[[Path], Rows]) -> dict[str, list[Any]]:
    """The rows of all runs by column; a row has None where it has no value."""
    columns: dict[str, list[Any]] = {}
    count = 0
    for name, run in runs.items():
        with undamaged(run):
            for row in read(run):
                for column, value in {"run": name, **row}.items():
                    values = columns.setdefault(column, [])
                    values += [None] * (count - len(values))
                    values.append(value)
                count += 1
    for values in columns.values():
        values += [None] * (count - len(values))
    return columns


def _packed(columns: Mapping[str, list[Any]]) -> bytes:
    """The columns as a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    arrays = {column: _column(values) for column, values in columns.items()}
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays), sink)
    return bytes(sink.getvalue())


def _column(values: list[Any]) -> Any:
    """One type for all values: as it is, or JSON text if there are several types or objects."""
    import pyarrow

    types = {type(value) for value in values if value is not None}
    if types == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif not (len(types) == 1 and types <= {bool, int, float, str}):
        values = [value if value is None else _text(value) for value in values]
    return pyarrow.array(values, pyarrow.string() if not types else None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _events(run: Path) -> Iterator[dict[str, Any]]:
    for line, event in enumerate(iter_events(run / EVENTS), 1):
        yield {"line": line, **_flat(event, without="decisions")}


def _decisions(run: Path) -> Iterator[dict[str, Any]]:
    for line, event in enumerate(iter_events(run / EVENTS), 1):
        for decision in event.get("decisions", ()):
            about = {"line": line, "t": event.get("t"), "event": event.get("event")}
            if decision.get("do") == "assign":
                alike = _flat({key: decision[key] for key in decision if key != "tasks"}, "edges")
                for edge, task in zip(decision["edges"], decision["tasks"]):
                    yield about | alike | {"edge": edge, "task": task}
            else:
                yield about | _flat(decision)


def _flat(row: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    """A row whose objects are columns of their own: {"numbers": {"a": 1}} -> {"numbers.a": 1}."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": each for name, each in value.items()}
        elif key != without:
            flat[key] = value
    return flat


def _reader(name: str) -> Callable[[Path], Rows]:
    def read(run: Path) -> Rows:
        return (
            {column: _typed(column, text) for column, text in row.items()}
            for row in iter_csv(run / name)
        )

    return read


def _typed(column: str, text: str) -> Any:
    """The value of a CSV field; None if it is empty. ``label_3`` of edges.csv counts samples."""
    if text == "" or column in TEXTS:
        return text or None
    value = number(text)
    return int(value) if column in WHOLE and value is not None else value


def _timeline(run: Path) -> tuple[Rows, Rows]:
    found = of_run(run)
    slices = sorted([*found.slices, *found.open_slices()], key=lambda each: each.begin_s)
    return map(Slice._asdict, slices), map(Instant._asdict, found.instants)


FORMAT = ExportFormat(
    out="parquet",
    view=lambda out: f"""python -c "import pandas; print(pandas.read_parquet('{out}/{SHOWN}'))\"""",
    write=write,
)
