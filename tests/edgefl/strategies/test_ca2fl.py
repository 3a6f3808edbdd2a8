"""CA2FL against a brute-force server, and by hand (Wang et al. 2024)."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Server, make

from edgefl.strategies.ca2fl import CA2FL


def calibrating(**options: Any) -> Server:
    """CA2FL with M = 2; three at work."""
    return Server(make(CA2FL, **{"buffer_size": 2, "concurrency": 3} | options))


class Brute:
    """The paper's server in float64, with all h_i in a dict and hbar computed again each time."""

    def __init__(self, devices: int, m: int, eta: float, size: int) -> None:
        self.devices, self.m, self.eta = devices, m, eta
        self.w, self.hbar = np.zeros(size), np.zeros(size)
        self.h: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(size))
        self.buffer: list[np.ndarray] = []

    def deliver(self, edge: str, change: np.ndarray) -> None:
        self.buffer.append(change - self.h[edge])
        self.h[edge] = change
        if len(self.buffer) == self.m:
            self.w = self.w + self.eta * (self.hbar + sum(self.buffer) / self.m)
            self.hbar = sum(self.h.values()) / self.devices
            self.buffer = []


@pytest.mark.parametrize(("m", "eta", "concurrency"), [(1, 1.0, 3), (3, 0.7, 4), (5, 1.0, 2)])
def test_against_a_brute_force_server(m: int, eta: float, concurrency: int) -> None:
    """200 updates of 7 devices. Some come several times within one buffer (M above the number at
    work), some from old models.
    """
    size, rng = 40, np.random.default_rng(m)
    story = Server(
        make(
            CA2FL,
            start=(0,) * size,
            buffer_size=m,
            server_learning_rate=eta,
            concurrency=concurrency,
        )
    )
    brute = Brute(7, m, eta, size)
    story.start(*"abcdefg")
    for _ in range(200):
        edge, _, change, moved = story.drawn(rng)
        brute.deliver(edge, moved)
        story.move(edge, *change)
        np.testing.assert_allclose(story.weights, brute.w, rtol=0, atol=1e-4)
    assert story.version == 200 // m


def test_the_changes_lie_in_a_file_that_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N models: 50 of ResNet-18 are 2.2 GB."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    story = calibrating()
    story.start("a", "b", "c")
    story.move("a", 1, 2, 3)
    row = story.strategy.changes.row("a")
    assert row.tolist() == [1, 2, 3] and not row.flags.owndata and os.listdir(tmp_path) == []
