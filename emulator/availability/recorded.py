"""Read recorded availability: CSV of intervals, and the JSON of FLHetBench and FedScale.

- CSV: rows ``edge,begin_s,end_s``, the intervals in which an edge is there. The period is that of
  the caller, or the largest ``end_s``.
- FLHetBench (https://github.com/Carkham/FLHetBench, data/cached_timers.json): by client
  ``{"isSuccess", "trace_start", "trace_end", "ready_time": [[begin, end], ...]}`` in seconds. A
  client whose recording failed is left out.
- FedScale (https://github.com/SymbioticLab/FedScale, client_behave_trace): by client
  ``{"active": [...], "inactive": [...], "finish_time"}`` in seconds: it is there from active[i] to
  inactive[i]. FedScale publishes a pickle, which is refused: unpickling runs code.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.availability.away_times import Presence, presence
from emulator.errors import BadValue, valid_name
from emulator.plain_text import decoded

FORMATS = ("csv", "flhetbench", "fedscale")
COLUMNS = ["edge", "begin_s", "end_s"]
PICKLE = (
    "it is a pickle, which can run code and is never read. If you trust it, make JSON of it once:"
    " python -c \"import json, pickle; json.dump(pickle.load(open(IN, 'rb')), open(OUT, 'w'))\""
)


def recorded_presence(
    path: Path, format_name: str | None = None, period_s: float | None = None
) -> dict[str, Presence]:
    """Read the intervals of each client of a file, in the file's order.

    ``period_s``: only for CSV. BadValue names the file and the client or the line.
    """
    name = f"availability {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadValue(f"{name}: cannot be read ({error.strerror})") from None
    if data[:1] == b"\x80":  # no UTF-8 text begins with it
        raise BadValue(f"{name}: {PICKLE}")
    text = decoded(data, name)
    chosen = format_name or ("csv" if path.suffix.lower() == ".csv" else None)
    if chosen is not None:
        valid_name("format", chosen, FORMATS)
    if chosen == "csv":
        return _csv(text, name, period_s)
    if period_s is not None:
        raise BadValue(f"{name}: a period is only for CSV; this file has its own")
    return _json(text, name, chosen)


def _csv(text: str, name: str, period_s: float | None) -> dict[str, Presence]:
    rows: dict[str, list[tuple[float, float]]] = {}
    reader = csv.reader(text.splitlines())
    for cells in reader:
        row = [cell.strip() for cell in cells]
        if not any(row) or row == COLUMNS:
            continue
        where = f"{name}, line {reader.line_num}"
        try:
            edge, begin_s, end_s = row[0], float(row[1]), float(row[2])
        except (IndexError, ValueError):
            raise BadValue(
                f"{where}: expected edge,begin_s,end_s such as e000,0,3600, found"
                f" {','.join(row)[:60]!r}"
            ) from None
        if len(row) != len(COLUMNS) or not edge or not 0 <= begin_s <= end_s < float("inf"):
            raise BadValue(
                f"{where}: expected an edge and two times in order, found {','.join(row)[:60]!r}"
            )
        rows.setdefault(edge, []).append((begin_s, end_s))
    if not rows:
        raise BadValue(f"{name}: empty")
    last_s = max(end_s for intervals in rows.values() for _, end_s in intervals)
    return {
        edge: presence(intervals, period_s or last_s, f"{name}, edge {edge}")
        for edge, intervals in rows.items()
    }


def _json(text: str, name: str, format_name: str | None) -> dict[str, Presence]:
    try:
        clients = json.loads(text)
    except ValueError as error:
        raise BadValue(f"{name}: expected JSON ({error})") from None
    if not isinstance(clients, dict) or not clients:
        raise BadValue(f"{name}: expected an object of clients")
    first = next(iter(clients.values()))
    keys = first.keys() if isinstance(first, dict) else set()
    known = "flhetbench" if "ready_time" in keys else "fedscale" if "active" in keys else None
    chosen = format_name or known
    if chosen is None:
        raise BadValue(
            f"{name}: expected clients with ready_time (FLHetBench) or active (FedScale)"
        )
    read = _flhetbench if chosen == "flhetbench" else _fedscale
    found: dict[str, Presence] = {}
    for client, values in clients.items():
        where = f"{name}, client {client}"
        try:
            pattern = read(values, where)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadValue):
                raise
            raise BadValue(f"{where}: not a client of {chosen}: {error!r}") from None
        if pattern is not None:
            found[client] = pattern
    if not found:
        raise BadValue(f"{name}: no client has a usable recording")
    return found


def _flhetbench(client: Mapping[str, Any], name: str) -> Presence | None:
    if not client["isSuccess"]:
        return None
    start_s, end_s = float(client["trace_start"]), float(client["trace_end"])
    intervals = [(begin - start_s, end - start_s) for begin, end in client["ready_time"]]
    return presence(intervals, end_s - start_s, name)


def _fedscale(client: Mapping[str, Any], name: str) -> Presence:
    active, inactive = client["active"], client["inactive"]
    if len(active) != len(inactive):
        raise BadValue(
            f"{name}: expected as many inactive times as active ones ({len(active)}), found"
            f" {len(inactive)}"
        )
    return presence(list(zip(active, inactive)), float(client["finish_time"]), name)
