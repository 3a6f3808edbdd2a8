"""The families of reports: the folders next to this file that hold a ``report.py``."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import edgefl.reports
from edgefl.reports.family import Family, pictures

COMPARISON = ("comparison.csv", "comparison_seeds.csv", *pictures("accuracy"))


def families() -> dict[str, Family]:
    """Name of the folder -> its family, in their order."""
    folders = sorted(
        file.parent.name
        for place in edgefl.reports.__path__
        for file in Path(place).glob("*/report.py")
    )
    found = {name: import_module(f"edgefl.reports.{name}.report").FAMILY for name in folders}
    return dict(sorted(found.items(), key=lambda item: (item[1].ORDER, item[0])))


def sections(run: Path, marks: Collection[str], emulated_s: float) -> dict[str, Any]:
    """Of summary.json, by family: of a run in which the events and reported numbers ``marks``
    occurred. A run without a family's mark pays nothing for it.
    """
    return {
        name: section
        for name, family in families().items()
        if family.MARK in marks or (run / family.MARK).is_file()
        if (section := family.section(run, emulated_s)) is not None
    }


def files() -> tuple[str, ...]:
    """What may stand in an experiment's folder above its runs: the comparison, and what the
    families leave.
    """
    return COMPARISON + tuple(name for family in families().values() for name in family.FILES)
