"""Runs whose training, evaluation and jobs are on a GPU: the code leaves nothing on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import experiment
from every_strategy import medium
from fake_gpu import OnGpu, fake_gpu
from paths import EXAMPLES
from pools import LINKS, bytes_of, learned_of

from edgefl.clocks.process_messages import FleetReady
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.speed_check import auto_speed
from edgefl.errors import UserError

# each has a rule of its own, or jobs
STRATEGIES = (*("fedac", "moon", "asofed", "fedasmu", "syncdrop", "wkafl", "fedecho"),)
HIDDEN = """
import numpy as np
from torch import nn
from my_task import build as plain
from edgefl.api import Task

def build():
    return Task(plain().dataset, lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)))
"""


def sections(strategy: str, device: str, **more: Any) -> dict[str, Any]:
    return {
        "strategies": [{"strategy": strategy}],
        "training": {"epochs": 2, "batch_size": 16, "device": device},
        "evaluation": {"by_label": True, "metrics": ["f1"], "train_samples": 50},
        "stop": {"updates": 12},
        "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
        **medium(strategy),
        **more,
    }


def played(folder: Path, learned: Learning) -> list[Any]:
    run_virtual(learned, 0, folder)
    return bytes_of(folder)


def learned_on(strategy: str, device: str, folder: Path) -> Learning:
    made = sections(strategy, device)
    if strategy != "syncdrop":
        return learned_of(**made)
    (folder / "hidden.py").write_text(HIDDEN)
    given = experiment(**{"task": "hidden.py:build", "links": LINKS} | made)
    return learning(given, folder)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.slow
def test_a_run_on_a_gpu_moves_what_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    here = played(tmp_path / "here", learned_on(strategy, "cpu", tmp_path))
    with fake_gpu(monkeypatch):
        there = played(tmp_path / "there", learned_on(strategy, "auto", tmp_path))
    assert there == here
    assert 'device = "cuda:0"' in (tmp_path / "there/config.toml").read_text()
    assert "cuda" not in (tmp_path / "here/config.toml").read_text()


def test_data_move_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as gpu:
        learned = learned_of(**sections("fedavg", "cuda"))
        assert not gpu.moved["up"]  # a process that forks moves nothing
        learned.place()
        data = sum(each.nbytes for each in (*learned.train, *learned.test))
        once = gpu.moved["up"]
        assert data <= once <= data + 10 * 4 * learned.layout.size
        learned.place()
        learned.trainer("a")
        assert gpu.moved["up"] == once
        assert all(isinstance(each, OnGpu) for each in (*learned.train, *learned.test))


def test_attention_on_a_gpu_has_only_the_kernel_that_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_gpu(monkeypatch) as gpu:
        learned_of(**sections("fedavg", "cpu")).place()
        assert not gpu.attention
        learned_of(**sections("fedavg", "cuda")).place()
    assert gpu.attention == {"flash": False, "mem_efficient": False, "cudnn": False}


def test_a_missing_gpu_is_told_before_the_data_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r'training.device = "cuda:1": .*"auto" takes a GPU only'):
        learned_of(**sections("fedavg", "cuda:1"))


def test_an_automatic_speed_needs_a_cpu() -> None:
    given = experiment(**sections("fedavg", "cuda"), speed="auto")
    with pytest.raises(UserError, match="which measures the training of CPUs only"):
        auto_speed(given, None, FleetReady("", None, 2, {}, "", ()))


@pytest.mark.parametrize("wrong", ["gpu", "cuda:01"])
def test_the_key_names_its_values(wrong: str) -> None:
    with pytest.raises(ValueError, match=r'expected "cpu", "cuda", "cuda:N" or "auto"'):
        experiment(training={"device": wrong})
