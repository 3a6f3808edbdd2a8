"""The families of reports: the folders next to this file that hold a ``report.py``."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import edgefl.reports
from edgefl.record.files import EXPERIMENT
from edgefl.reports.family import Family, pictures

COMPARISON = ("comparison.csv", "comparison_seeds.csv", *pictures("accuracy"))
ABOVE_RUNS = (EXPERIMENT, *COMPARISON)


def families() -> dict[str, Family]:
    """Return the families by the names of their folders, sorted by ORDER."""
    folders = sorted(
        file.parent.name
        for place in edgefl.reports.__path__
        for file in Path(place).glob("*/report.py")
    )
    found = {name: import_module(f"edgefl.reports.{name}.report").FAMILY for name in folders}
    return dict(sorted(found.items(), key=lambda item: (item[1].ORDER, item[0])))


def sections(run: Path, marks: Collection[str], emulated_s: float) -> dict[str, Any]:
    """Return the sections of summary.json by family.

    ``marks``: the events and reported numbers that occurred in the run. A family whose mark is
    missing costs no time.
    """
    return {
        name: section
        for name, family in families().items()
        if family.MARK in marks or (run / family.MARK).is_file()
        if (section := family.section(run, emulated_s)) is not None
    }


def files() -> tuple[str, ...]:
    """Return the files that may be in an experiment's folder above its runs.

    They are the experiment, the comparison and the families' files.
    """
    return ABOVE_RUNS + tuple(name for family in families().values() for name in family.FILES)
