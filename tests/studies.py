"""What the tests of the study scripts share: runs that nobody made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgefl.results.rundirs import seed_name

SUMMARY = {
    "time_to_target_s": None, "final_accuracy": None, "emulated_s": 700.0, "versions": 5, "updates_applied": 5, "updates_discarded": {}, "bytes_up": 1,
    "bytes_down": 1, "staleness": {},
}  # fmt: skip


def pretended(leave: Callable[[Path, dict[str, Any], int], dict[str, Any]]) -> Callable[[Any, Sequence[Any]], bool]:
    """A ``Study.do`` that runs nothing: ``leave(run, entry, seed)`` writes what a run leaves there, and returns what its summary has else than SUMMARY."""

    def do(ours: Any, trials: Sequence[Any]) -> bool:
        for trial in trials:
            for entry in trial.entries:
                for seed in ours.seeds:
                    run = ours.folder / trial.name / (entry.get("label") or entry["strategy"]) / seed_name(seed, len(ours.seeds) > 1)
                    run.mkdir(parents=True)
                    (run / "summary.json").write_text(json.dumps(SUMMARY | leave(run, entry, seed)))
        return True

    return do
