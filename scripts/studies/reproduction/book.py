"""All results, as the pages need them: at the paper's scale if it was run, else at the small one.

A claim, a table and a figure each take the larger scale at which their runs exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from edgefl.results.run_files import write_table
from edgefl.results.tables import plain_table
from reproduction import figures
from reproduction.entry import Claim, Entry, Figure, Finding, Part, Scale, Verdict
from reproduction.judges import judged
from reproduction.registry import papers
from reproduction.results import RESULT, NoResults, Results, RunRow, Tables, read_machines

SCALES = (Scale.paper, Scale.small)
FOLDED = ("source", "title", "needs")  # columns of long texts of the list
WIDTH = 160  # of the list in a file or a pipe


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with what our runs say. ``scale``: theirs; None: there are none.

    ``is_complete``: whether all runs are there that the verdict needs: with looks, those of the
    first one if it is decided, or never will be.
    """

    claim: Claim
    finding: Finding
    scale: Scale | None
    is_complete: bool


class Book:
    """The results of all entries in ``data``. UserError if a file is damaged."""

    def __init__(self, entries: Iterable[Entry], data: Path) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.tables = {name: Tables(data, entry) for name, entry in self.entries.items()}
        self.machines = read_machines(data)

    def of_paper(self, key: str) -> list[Entry]:
        """Return a paper's entries."""
        return [entry for entry in self.entries.values() if entry.paper == key]

    def rows(self, entry: Entry, scale: Scale) -> list[RunRow]:
        """Return all runs of an entry at a scale, those of the tuning included."""
        return [row for row in self.tables[entry.name].rows if row.scale is scale]

    # ------------------------------------------------------------------ results
    def results(self, name: str, scale: Scale) -> Results:
        """Return the results of an entry. NoResults if it has parts and no runs at this scale."""
        if name not in self.entries:
            raise NoResults(f"no entry {name}")
        entry = self.entries[name]
        rows = self.rows(entry, scale)
        if entry.parts and not rows:
            raise NoResults(f"{name} was not run at this scale")
        curves = [row for row in self.tables[name].curves if row.scale is scale]
        return Results(entry, scale, rows, curves, lambda other: self.results(other, scale))

    def _at_scales(self, entry: Entry) -> Iterator[Results]:
        for scale in SCALES:
            try:
                yield self.results(entry.name, scale)
            except NoResults:
                continue

    def judged(self, entry: Entry) -> list[Judged]:
        """Judge all claims of an entry, each at the largest scale at which it can be judged."""
        return [self._judged(entry, claim) for claim in entry.claims]

    def _judged(self, entry: Entry, claim: Claim) -> Judged:
        for results in self._at_scales(entry):
            finding = judged(claim.judge, results)
            if finding.verdict is not Verdict.missing:
                done = self._is_complete(results, claim, finding)
                return Judged(claim, finding, results.scale, done)
        return Judged(claim, Finding("", Verdict.missing), None, False)

    def _is_complete(self, results: Results, claim: Claim, finding: Finding) -> bool:
        entry, scale = results.entry, results.scale
        seeds = None if finding.is_open or not results.looks else results.looks[0]
        try:
            return all(
                self.results(name, scale).is_complete(part.name, seeds)
                for name, part in self.needed(entry, claim)
                if scale in part.scales
            )
        except NoResults:
            return False

    def needed(self, entry: Entry, claim: Claim) -> list[tuple[str, Part]]:
        """Return the parts whose runs a claim needs, of the entry and of those that it uses."""
        names = claim.needs or (*(part.name for part in entry.parts), *entry.uses)
        mine = [(entry.name, part) for part in entry.parts if part.name in names]
        split = [name.partition("/") for name in names]
        others = [
            (used, part)
            for used, _, one in split
            if used in entry.uses
            for part in self.entries[used].parts
            if one in ("", part.name)
        ]
        return mine + others

    def of_part(self, entry: Entry, part: Part) -> Results | None:
        """Return the results in which a part has table runs; None if there are none."""
        return next((each for each in self._at_scales(entry) if part in each.parts()), None)

    def figure(self, entry: Entry, figure: Figure, folder: Path) -> tuple[Path, Scale] | None:
        """Draw a figure at the largest scale at which it can be drawn; return (file, scale)."""
        for results in self._at_scales(entry):
            path = figures.write(figure, results, folder)
            if path is not None:
                return path, results.scale
        return None

    def has_strained(self, entry: Entry) -> bool:
        """Return whether a shown part has a run on the wall clock that was not faithful."""
        return any(
            results.is_strained(part.name)
            for part in entry.parts
            if (results := self.of_part(entry, part)) is not None
        )

    def write_verdicts(self, path: Path, entries: Iterable[Entry]) -> None:
        """Write a CSV file with a row for each claim of ``entries``."""
        rows = [
            (entry.name, each.claim.text, str(each.finding.verdict), each.finding.ours)
            for entry in entries
            for each in self.judged(entry)
        ]
        write_table(path, ("entry", "claim", "verdict", "ours"), rows)

    # ------------------------------------------------------------------ the list
    def show(self) -> None:
        """Print the entries: expected CPU-hours, and done runs of all runs of their tables."""
        table = plain_table(gap=1)
        for name in ("entry", "paper", "source", "title", "scale", "CPU-h", "runs", "needs"):
            table.add_column(
                name,
                justify="right" if name in ("CPU-h", "runs") else "left",
                overflow="fold",
                no_wrap=name not in FOLDED,
            )
        for entry in self.entries.values():
            page = papers()[entry.paper].page
            for scale in Scale:
                first = scale is Scale.small
                head = (entry.name, page, entry.source, entry.title) if first else ("",) * 4
                hours = entry.hours.get(scale)
                done = sum(row.role == RESULT for row in self.rows(entry, scale))
                parts = [part for part in entry.parts if scale in part.scales]
                runs = sum(len(part.methods) * len(part.seeds_at(scale)) for part in parts)
                told = "" if hours is None else f"{hours:g}"
                needs = ", ".join(entry.data) if first else entry.needs
                table.add_row(*head, str(scale), told, f"{done}/{runs}", needs)
        console = Console()
        if not console.is_terminal:
            console.width = WIDTH
        console.print(table)
