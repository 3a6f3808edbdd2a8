"""A run directory that grows as a test wants: the rows of a finished run, up to a moment."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import orjson

from edgefl.record import files

TIMES = {  # the column of each table that says when its row was written
    files.LINKS: "finished_s",
    files.METRICS: "emulated_s",
    files.SLOTS: "ends_s",
    files.HOSTS: "emulated_s",
}


class GrowingRun:
    """Writes the rows of the finished run ``source`` into ``directory`` as time goes on."""

    def __init__(self, source: Path, directory: Path) -> None:
        self.source, self.directory = source, directory
        directory.mkdir(parents=True)
        shutil.copy(source / files.CONFIG, directory)
        self._rows: list[tuple[float, int, str, str]] = []  # (t, place, file, line)
        self._take_events()
        for name in TIMES:
            self._take_table(name)
        self._rows.sort()
        self._written = 0

    @property
    def end_s(self) -> float:
        """Emulated seconds of the last row."""
        return self._rows[-1][0]

    def grow(self, until_s: float) -> None:
        """Append all rows up to an emulated second."""
        lines: dict[str, list[str]] = {}
        while self._written < len(self._rows) and self._rows[self._written][0] <= until_s:
            _, _, name, line = self._rows[self._written]
            lines.setdefault(name, []).append(line)
            self._written += 1
        for name, new in lines.items():
            with (self.directory / name).open("a") as file:
                file.writelines(new)

    def finish(self) -> None:
        """Append what is left, and the files of a run's end."""
        self.grow(float("inf"))
        shutil.copy(self.source / files.SUMMARY, self.directory)

    def _take_events(self) -> None:
        with (self.source / files.EVENTS).open() as file:
            for line in file:
                self._add(orjson.loads(line)["t"], files.EVENTS, line)

    def _take_table(self, name: str) -> None:
        path = self.source / name
        if not path.exists():
            return
        rows = list(csv.reader(io.StringIO(path.read_text())))
        (self.directory / name).write_text(",".join(rows[0]) + "\n")
        at = rows[0].index(TIMES[name])
        for row in rows[1:]:
            self._add(float(row[at]), name, ",".join(row) + "\n")

    def _add(self, t_s: float, name: str, line: str) -> None:
        self._rows.append((t_s, len(self._rows), name, line))
