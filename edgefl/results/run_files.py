"""The files of one run, for all that shows it: each is read once, when it is needed."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from edgefl.errors import undamaged
from edgefl.record.files import EVENTS, LINKS, METRICS, SLOTS
from edgefl.results import rundirs, tail, timeline
from edgefl.results.columns import (
    NEEDED,
    EventColumns,
    TableColumns,
    Texts,
    read_events,
    read_table,
)
from edgefl.results.timeline import Timeline


class RunFiles:
    """The files of one run, finished or not. UserError names a damaged row.

    ``texts``: those of all columns.
    """

    def __init__(self, path: Path, only: Collection[str] | None = NEEDED) -> None:
        """``only``: see EventColumns."""
        self.path, self.texts, self._only = path, Texts(), only
        self._tables: dict[str, TableColumns] = {}

    @cached_property
    def events(self) -> EventColumns:
        """The rows of events.jsonl."""
        return read_events(self.path / EVENTS, self.texts, self._only)

    @cached_property
    def metrics(self) -> list[dict[str, str]]:
        """The rows of metrics.csv."""
        return tail.read_csv(self.path / METRICS)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The same as dicts. This takes much time and memory: see ``has_decisions`` before."""
        return tail.read_events(self.path / EVENTS)

    def has_decisions(self, do: str) -> bool:
        """Whether there is a decision of this kind, such as "report"."""
        found = self.events.decisions.texts_of("do") == self.texts.number(do)
        return bool(found.any())

    def table(self, name: str) -> TableColumns:
        """The rows of a CSV file; none if it is missing."""
        if name not in self._tables:
            self._tables[name] = read_table(self.path / name, self.texts)
        return self._tables[name]

    @property
    def links(self) -> TableColumns:
        """The rows of links.csv."""
        return self.table(LINKS)

    @cached_property
    def timeline(self) -> Timeline:
        """What each edge does over time."""
        with undamaged(self.path):
            return timeline.of_columns(self.events, self.table(SLOTS), self.links)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's config.toml; {} if it is missing."""
        return rundirs.read_config(self.path)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's summary.json; {} if the run has not ended."""
        return rundirs.read_summary(self.path)
