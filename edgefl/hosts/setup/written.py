"""Which files a run has written into its directory, so that a rerun can remove them."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from edgefl.disk import Disk
from edgefl.record import files
from edgefl.record.record import TABLES as TABLE_COLUMNS

# Regular expressions, like those that follow.
AT_THE_END = (re.escape(files.SUMMARY), re.escape(files.MODEL))
JOURNAL = r"journal/journal(-\d+)?\.(jsonl|bin)"
CHECKPOINT = rf"{files.CHECKPOINTS}/checkpoint-\d+\.(json|safetensors)(\.part)?"
TABLES = "|".join(path.partition(".")[0] for path in (files.EVENTS, *TABLE_COLUMNS))
PART = rf"({TABLES})-\d{{6,}}\.(jsonl|csv)(\.gz)?(\.part)?"
# Files that not every run writes, or not at its start.
LATE = (
    *AT_THE_END,
    JOURNAL,
    CHECKPOINT,
    PART,
    r"journal/(initial\.safetensors|layout\.json)",
    *map(re.escape, (files.SLOTS, files.MEASURED, files.LABELS, files.EDGES, files.HOSTS)),
    re.escape(files.ENERGY),
    r"vocabulary\.txt",
)
ALL = (*map(re.escape, (files.CONFIG, files.EVENTS, files.LINKS, files.METRICS)), *LATE)
FOLDERS = ("journal", files.CHECKPOINTS)


def written(directory: Path, disk: Disk, patterns: Collection[str] = ALL) -> list[str]:
    """The names of the files in ``directory`` that a run writes; of all or of some sorts."""
    names = [*disk.names(directory)]
    names += [f"{each}/{name}" for each in FOLDERS for name in disk.names(directory / each)]
    return [name for name in names if any(re.fullmatch(each, name) for each in patterns)]
