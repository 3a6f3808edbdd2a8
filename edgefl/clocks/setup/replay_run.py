"""Replay a run directory from its own config, its first weights and its journal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
from safetensors.numpy import load as load_arrays

from edgefl.clocks.setup.message_packing import packing
from edgefl.clocks.setup.plan import strategy
from edgefl.config.toml import parsed
from edgefl.errors import UserError, undamaged
from edgefl.loading.file import load
from edgefl.record.replay import Replay, replay
from edgefl.vectors import Layout, aligned_copy


def replay_run(run: Path, say: Callable[[str], None] = lambda line: None) -> Replay:
    """Replay the run.

    ``say`` gets a line if the end of its journal is torn. UserError if a file is missing, a
    decision differs, or the last weights differ from model.safetensors.
    """
    journal = run / "journal"
    for path in (run / "config.toml", journal / "initial.safetensors", journal / "layout.json"):
        if not path.exists():
            raise UserError(
                f"{path}: no such file; a run can be replayed if it was recorded with"
                " record.payloads=true"
            )
    experiment = load(run / "config.toml")
    with undamaged(run / "config.toml"):
        facts = parsed((run / "config.toml").read_text(encoding="utf-8"))["run"]
        entries = {entry.name: entry for entry in experiment.strategies}
        entry = entries[facts["strategy"]]
    with undamaged(journal / "layout.json"):
        layout = Layout.from_json(orjson.loads((journal / "layout.json").read_bytes()))
    weights = _weights(journal / "initial.safetensors")
    base = Path(facts["base"]) if "base" in facts else None
    packed = packing(experiment, experiment.strategies.index(entry), layout, base)
    made = strategy(experiment, entry, base, weights, layout)
    result = (
        replay(journal, made, say)
        if packed is None
        else replay(journal, made, say, packed.received)
    )
    assert result.weights is not None
    kept = run / "model.safetensors"
    if kept.exists() and not np.array_equal(
        _weights(kept).view(np.uint32), result.weights.view(np.uint32)
    ):
        raise UserError(f"{kept}: the replay ends with other weights")
    return result


def _weights(path: Path) -> np.ndarray:
    with undamaged(path):
        return aligned_copy(load_arrays(path.read_bytes())["weights"])
