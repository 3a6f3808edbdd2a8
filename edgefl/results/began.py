"""When a run began."""

from __future__ import annotations

from pathlib import Path

import orjson

from edgefl.record.files import SUMMARY
from edgefl.results.summary import number


def began_unix_s(run: Path) -> float:
    """Return the Unix time of emulated second 0; 0.0 if the run has none, or is unfinished."""
    try:
        facts = orjson.loads((run / SUMMARY).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return 0.0
    return (number(facts.get("began_unix_s")) or 0.0) if isinstance(facts, dict) else 0.0
