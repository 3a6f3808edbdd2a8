"""An admitted edge that sends well-formed updates with hostile numbers: no strategy falls.

The real coordinator gets them in whole runs of every strategy under the virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import small_run
from every_strategy import LARGE_STEPS, RUN, SMALL, medium

from edgefl.coordinator.coordinator import Coordinator
from edgefl.protocol.messages import Update
from edgefl.strategies.base.catalog import load, strategy_names

EVIL = "e001"
TINY, HUGE = 5e-324, 1.7e308


def zero_vectors(update: Update) -> Update:
    zeros = {name: np.zeros_like(vector) for name, vector in update.vectors.items()}
    return replace(update, vectors=zeros)


def all_but_samples(value: float) -> Callable[[Update], Update]:
    """Numbers that pass the check of samples, and what divides by something else meets."""
    return lambda update: replace(
        update, numbers={n: v if n == "samples" else value for n, v in update.numbers.items()}
    )


ATTACKS = {
    "zero but samples": all_but_samples(0.0),
    "negative but samples": all_but_samples(-1.0),
    "tiny but samples": all_but_samples(TINY),
    "huge but samples": all_but_samples(HUGE),
    "huge and negative": all_but_samples(-HUGE),
    "not a number": all_but_samples(float("nan")),
    "vectors of zeros": zero_vectors,
    "only samples": lambda update: replace(
        update, numbers={n: v for n, v in update.numbers.items() if n == "samples"}
    ),
    "another name": lambda update: replace(update, numbers={**update.numbers, "x": HUGE}),
}


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.slow
def test_no_strategy_falls(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, count = Coordinator.receive, 0
    attacks = list(ATTACKS.values())

    def receive(self: Coordinator, sender: str, message: Any, now: int) -> Any:
        nonlocal count
        if sender == EVIL and isinstance(message, Update):
            message = attacks[count % len(attacks)](message)
            count += 1
        return plain(self, sender, message, now)

    monkeypatch.setattr(Coordinator, "receive", receive)
    small = {key: value for key, value in SMALL.items() if key in load(name).Options.model_fields}
    entry = {"strategy": name, **small, **LARGE_STEPS.get(name, {})}
    sections = RUN | medium(name) | {"stop": {"emulated_s": 80.0}, "edges": {"count": 3}}
    summary, _ = small_run(tmp_path, **sections | {"strategies": [entry]})
    assert summary["finished"] == "emulated_s"
    assert count >= len(attacks), "each attack was tried"
