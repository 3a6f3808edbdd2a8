"""Replaying a run directory: its own config, its first weights, its journal."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import orjson
from safetensors.numpy import load_file

from edgefl.errors import UserError
from edgefl.hosts.setup.plan import strategy
from edgefl.loading.file import load
from edgefl.record.replay import Replay, replay
from edgefl.vectors import Layout, aligned_copy


def replay_run(run: Path) -> Replay:
    """UserError if something is missing, a decision differs, or the last weights are not those
    of model.safetensors.
    """
    journal = run / "journal"
    for path in (run / "config.toml", journal / "initial.safetensors", journal / "layout.json"):
        if not path.exists():
            raise UserError(
                f"{path}: no such file; a run can be replayed if it was recorded with"
                " record.payloads=true"
            )
    experiment = load(run / "config.toml")
    facts = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["run"]
    entry = next(entry for entry in experiment.strategies if entry.name == facts["strategy"])
    layout = Layout.from_json(orjson.loads((journal / "layout.json").read_bytes()))
    weights = aligned_copy(load_file(journal / "initial.safetensors")["weights"])
    base = Path(facts["base"]) if "base" in facts else None
    result = replay(journal, strategy(experiment, entry, base, weights, layout))
    assert result.weights is not None
    kept = run / "model.safetensors"
    if kept.exists() and not np.array_equal(
        load_file(kept)["weights"].view(np.uint32), result.weights.view(np.uint32)
    ):
        raise UserError(f"{kept}: the replay ends with other weights")
    return result
