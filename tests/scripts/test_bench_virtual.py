"""The benchmark of the virtual clock: its runs match its rows, and its profile sorts time right."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from paths import BENCHMARKS, ROOT

from edgefl.hosts.virtual.pool.executor import Executor


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("virtual")


def test_untrained_runs_train_nothing(bench: ModuleType, tmp_path: Path) -> None:
    few = {"concurrency": 4, "buffer_size": 2}
    made = bench.Bench(tmp_path, bench.QUICK)
    spent = {"train": 0.0}
    with bench.timed(Executor, "train", spent):
        learned = made.learned(bench.FEDBUFF | few, 6, 12)
        made.run(learned)
        trained_s = spent["train"]
        assert trained_s > 0
        made.run(learned, bench.Untrained(learned))
        assert spent["train"] == trained_s


def test_time_is_shared_out_by_room(bench: ModuleType) -> None:
    profile = importlib.import_module("profile_virtual")
    ours, theirs = (
        (str(ROOT / "edgefl/hosts/virtual/host.py"), 1, "f"),
        ("/x/site-packages/torch/nn/module.py", 2, "g"),
    )
    assert profile.shares(ours, 2.0, {}) == {"edgefl/hosts/virtual": 2.0} and profile.shares(
        theirs, 2.0, {}
    ) == {"torch": 2.0}
    by_caller = {ours: (1, 1, 0.5, 0.5), theirs: (1, 1, 1.5, 1.5)}
    assert profile.shares(("~", 0, "<built-in method builtins.len>"), 2.0, by_caller) == {
        "edgefl/hosts/virtual": 0.5,
        "torch": 1.5,
    }
    assert profile.shares(
        ("~", 0, "<built-in method torch.conv2d>"), 2.0, {ours: (1, 1, 2.0, 2.0)}
    ) == {"torch": 2.0}
    assert profile.shares(
        ("~", 0, "<method 'poll' of 'select.epoll' objects>"), 2.0, {ours: (1, 1, 2.0, 2.0)}
    ) == {"waiting for workers": 2.0}
