"""Rows of events.jsonl in words, for the page's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgefl.errors import listed, printable
from edgefl.results.summary import BROKEN_OFF

INFO, GOOD, WARN, BAD = "info", "good", "warn", "bad"
LONGEST = 300  # characters of a line
# Facts that happen for every task: the timeline shows them.
QUIET = {"task_started", "update_ready", "edge_waits", "edge_host", "duplicate", "request_too_late"}
COLUMNS = ("t", "fact", "version")

Row = Mapping[str, Any]
Line = tuple[str, str]  # kind, text


class Log:
    """Turns rows into lines; it knows whether the run has begun."""

    def __init__(self) -> None:
        self._joined = 0
        self._began = False

    def lines(self, row: Row) -> Iterator[Line]:
        """Return the lines about one row, mostly none."""
        for kind, text in self._of(row):
            yield kind, printable(text, LONGEST)

    def _of(self, row: Row) -> Iterator[Line]:
        if "fact" in row:
            yield from _fact(row["fact"], row)
        elif "event" in row:
            yield from self._event(row["event"], row)
        for decision in row.get("decisions", ()):
            if decision.get("do") == "discard":
                yield WARN, f"update of task {decision['task']} not used: {decision['reason']}"

    def _event(self, kind: str, row: Row) -> Iterator[Line]:
        match kind:
            case "edge_joined" if not self._began:
                self._joined += 1
            case "edge_joined":
                yield GOOD, f"{row['edge']} joined, with {row['samples']} samples"
            case "run_started":
                self._began = True
                yield INFO, f"the run begins with {self._joined} edges"
            case "edge_lost":
                yield BAD, f"{row['edge']} is lost"
            case "task_closed":
                yield WARN, f"task {row['task']} of {row['edge']} is closed: {row['reason']}"
            case "job_failed":
                yield BAD, f"the server's job {row['name']} failed: {row['reason']}"


def _fact(fact: str, row: Row) -> Iterator[Line]:
    match fact:
        case _ if fact in QUIET:
            return
        case "finished":
            reason = row.get("reason", "")
            broken = reason in BROKEN_OFF
            yield (WARN, f"interrupted: {reason}") if broken else (GOOD, f"finished: {reason}")
        case "resumed":
            yield INFO, f"resumed {row.get('outage_s', 0):g} s after the break"
        case "training_failed":
            yield BAD, f"training of {row['edge']} failed: {row['reason']}"
        case "task_timed_out":
            yield WARN, f"task {row['task']} of {row['edge']} took too long ({row['phase']})"
        case "discarded":
            yield WARN, f"update of {row['edge']} (task {row['task']}) refused: {row['reason']}"
        case "diverged":
            yield BAD, f"version {row['version']} is not finite: the training diverged"
        case "edges_missing":
            yield WARN, f"did not join before the start: {listed(row['edges'])}"
        case "session_ended":
            yield INFO, f"{row['edge']}: {said('session ended', row, ('edge',))}"
        case "fault":
            what = {key: value for key, value in row.items() if key not in ("kind", "edge")}
            yield WARN, said(f"injected fault: {row['kind']} of {row['edge']}", what)
        case _:
            yield WARN, said(str(fact).replace("_", " "), row)


def said(what: str, row: Row, without: tuple[str, ...] = ()) -> str:
    """Return ``what`` and the other values of a row: "injected fault: what kill, edge e003"."""
    rest = [
        f"{key} {value}"
        for key, value in row.items()
        if key not in COLUMNS and key not in without and value not in (None, [], "")
    ]
    return f"{what}: {', '.join(rest)}" if rest else what
