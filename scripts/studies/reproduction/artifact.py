"""An entry as the contents of ``edgefl artifact``: its programs, its configs, its claims.

``reproduce.py`` makes everything again. ``kick-the-tires.sh`` starts each part's config, without
its tuning. Claims are the verdicts, and the numbers of each method. A number is exact if this
commit made all of its runs under the virtual clock.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgefl.clocks.setup.resumption import git_commit
from edgefl.config.file import base_of
from edgefl.errors import UserError, nearest
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.contents import REPRODUCE, S_PER_H, Contents, Study, tolerance
from edgefl.results.run_files import missing
from reproduction import registry
from reproduction.book import Book
from reproduction.entry import ROOT, VIRTUAL, Entry, Part, Scale, Verdict
from reproduction.plans import PartPlan
from reproduction.results import RESULT, NoResults, Results

DATA = ROOT / "docs" / "results" / "data"
VERDICTS = "verdicts.csv"
COLUMNS = {  # of the numbers that are claims -> what they are, their unit
    "convergence_accuracy": ("accuracy over the last tenth of the run", ""),
    "time_to_target_s": ("time to the target", "emulated s"),
}
PROGRAMS = ("scripts/studies/reproduce.py", "scripts/studies/reproduction", "configs")


def contents(name: str) -> Contents:
    """Return the artifact of the entry ``name``. UserError if there is none, or it has no runs."""
    known = registry.entries()
    if name not in known:
        near = nearest(name, known)
        hint = near if "nearest" in near else " (scripts/studies/reproduce.py --list shows all)"
        raise UserError(f"{missing(Path(name))}, and no entry{hint}")
    entry = known[name]
    book = Book(registry.with_used([entry]), DATA)
    results = _results(book, entry)
    scale = results.scale
    claims = [*_verdicts(book, entry, scale), *_numbers(results)]
    words = f"--entry {name} --scale {scale} --results results --out results/runs"
    return Contents(
        name=f"{name}-artifact",
        subject=f"{entry.title}; {registry.papers()[entry.paper].title}, {entry.source}",
        studies=tuple(_study(entry, part, scale) for part in entry.parts if scale in part.scales),
        claims=tuple({"id": f"C{at}", **claim} for at, claim in enumerate(claims, 1)),
        commands=(f'"$python" scripts/studies/reproduce.py {words} --verdicts results/{VERDICTS}',),
        hours=entry.hours.get(scale),
        files={**_programs(), **_expected(registry.with_used([entry]))},
    )


def _results(book: Book, entry: Entry) -> Results:
    """Return the results at the largest scale that has any."""
    for scale in (Scale.paper, Scale.small):
        try:
            return book.results(entry.name, scale)
        except NoResults:
            continue
    raise UserError(f"{entry.name}: has no runs yet: reproduce.py --entry {entry.name} makes them")


def _programs() -> dict[str, Path]:
    paths = [
        path
        for name in PROGRAMS
        for path in ([ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*")))
        if path.is_file() and path.suffix in (".py", ".toml", ".csv", ".txt")
    ]
    return {path.relative_to(ROOT).as_posix(): path for path in paths}


def _expected(entries: list[Entry]) -> dict[str, Path]:
    names = [f"{entry.name}{end}.csv" for entry in entries for end in ("", "-curves")]
    return {f"expected/data/{name}": DATA / name for name in names if (DATA / name).is_file()}


def _study(entry: Entry, part: Part, scale: Scale) -> Study:
    """Return a part as an experiment: its config with all methods, before any tuning."""
    with tempfile.TemporaryDirectory(prefix="edgefl-artifact-") as scratch:
        plan = PartPlan(entry, part, scale, Path(scratch))
        experiment, base = plan.experiment(), base_of(part.config)
    config = experiment.model_dump(exclude_none=True, mode="json")
    name = f"{entry.name}-{part.name}"
    own = {key: value for key, value in config.items() if key not in ("seed", "seeds")}
    seeds = list(part.seeds_at(scale))
    return Study(name, {**own, "name": name, "seeds": seeds}, {"clock": part.clock}, base)


# ---------------------------------------------------------------------- claims
def _verdicts(book: Book, entry: Entry, scale: Scale) -> Iterator[dict[str, Any]]:
    """Yield a claim for each statement of the paper that the runs at this scale judge."""
    for judged in book.judged(entry):
        if judged.finding.verdict is Verdict.missing or judged.scale is not scale:
            continue
        yield {
            **_head(VERDICTS, "verdict"),
            "text": judged.claim.text,
            "where": {"entry": entry.name, "claim": judged.claim.text},
            "expected": str(judged.finding.verdict),
        }


def _numbers(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a claim for each number of a method that all of its runs have."""
    name, now = results.entry.name, git_commit()
    for part in results.parts():
        for method in part.methods:
            which = f"{part.name}/{method.shown}"
            rows = results.runs(which) if results.has(which) else []
            for column, (text, unit) in COLUMNS.items():
                values = [row.numbers.get(column) for row in rows]
                known = [value for value in values if value is not None]
                if not known or len(known) < len(values):
                    continue
                same = all(row.digest.rpartition("-")[0] == now for row in rows)
                where = {"scale": str(results.scale), "part": part.name, "method": method.shown}
                hours = sum(row.cpu_s or 0.0 for row in rows) / S_PER_H
                yield {
                    **_head(f"data/{name}.csv", column),
                    "text": f"{method.shown} in {part.name}: {text}",
                    "where": {**where, "role": RESULT},
                    "unit": unit,
                    "exact": same and part.clock == VIRTUAL,
                    "expected": math.fsum(known) / len(known),
                    "tolerance": tolerance(known),
                    "values": known,
                    "hours": hours or None,
                }


def _head(file: str, column: str) -> dict[str, Any]:
    return {
        "script": REPRODUCE,
        "command": "reproduce.sh",
        "how": check.cell.__name__,
        "file": file,
        "column": column,
        "unit": "",
        "exact": False,
        "tolerance": 0.0,
        "hours": None,
        "disk_mb": None,
    }
