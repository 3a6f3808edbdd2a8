"""Helper of the tests of studies: invented results of runs, with the configs of real runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgefl.loading.file import dump
from edgefl.results.rundirs import seed_name

SUMMARY = {
    "time_to_target_s": None,
    "final_accuracy": None,
    "emulated_s": 700.0,
    "versions": 5,
    "updates_applied": 5,
    "updates_discarded": {},
    "finished": "emulated_s",
    "bytes_up": 1,
    "bytes_down": 1,
    "staleness": {},
}


def pretended(
    leave: Callable[[Path, dict[str, Any], int], dict[str, Any]],
) -> Callable[[Any, Sequence[Any]], bool]:
    """Return a replacement of ``Study.do`` that runs nothing.

    ``leave(run, entry, seed)`` writes the files of a run and returns changes to SUMMARY.
    """

    def do(ours: Any, trials: Sequence[Any]) -> bool:
        for trial in trials:
            for one in ours._whole(trial).by_seed():
                config = dump(one, {})
                for entry in trial.entries:
                    label = entry.get("label") or entry["strategy"]
                    run = (
                        ours.folder / trial.name / label / seed_name(one.seed, len(ours.seeds) > 1)
                    )
                    run.mkdir(parents=True)
                    (run / "config.toml").write_text(config)
                    (run / "summary.json").write_text(
                        json.dumps(SUMMARY | {"label": label} | leave(run, entry, one.seed))
                    )
        return True

    return do
