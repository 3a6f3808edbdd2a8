"""training.device: which device is chosen, and that nothing is left on the other one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from torch import nn
from trainers import FakeTask

from edgefl.data.dataset import cross_entropy
from edgefl.edges.training import Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.models import torch_device
from edgefl.models.torch_device import CPU, chosen, drawing_from, make_repeatable, seeded
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

NO_CUDA = "this torch finds no GPU"
RNG = np.random.Generator(np.random.PCG64(1))
INPUTS = torch.from_numpy(RNG.normal(size=(40, 3)).astype(np.float32))
TARGETS = torch.from_numpy(RNG.integers(0, 2, 40))
PLAN = TrainingPlan(2, 8, 0.1, momentum=0.9)


def counts(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(
    ("name", "gpus", "found"),
    [
        ("cpu", 2, "cpu"),
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_is_chosen(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, found: str
) -> None:
    counts(monkeypatch, gpus)
    assert str(chosen(name)) == found


@pytest.mark.parametrize(
    ("name", "gpus", "built", "words"),
    [
        ("cuda", 0, False, ["which cannot use GPUs", "pytorch.org/get-started"]),
        ("cuda", 0, True, ["finds no GPU with a driver", "nvidia-smi"]),
        ("cuda:7", 2, True, ['expected "cuda:0" to "cuda:1"', "has 2 GPUs", 'found "cuda:7"']),
        ("cuda:1", 1, True, ['expected "cuda:0", this machine has one GPU']),
    ],
)
def test_a_missing_device_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, built: bool, words: list[str]
) -> None:
    counts(monkeypatch, gpus)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    with pytest.raises(UserError) as error:
        chosen(name)
    assert "\n" not in str(error.value) and "training.device" in str(error.value)
    assert all(word in str(error.value) for word in words)


class Model(nn.Sequential):
    """Normalisation has buffers and a counter, dropout draws, ``scale`` is not in the layout."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.register_buffer("scale", torch.tensor([1.0, 2.0]), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]  # Sequential has no types
        return outputs * self.scale


def trainer_on(device: torch.device, samples: Any = INPUTS) -> Trainer:
    space = Workspace(Model)
    space.to(device)
    targets = TARGETS.to(device)
    return Trainer(space, samples.to(device), targets, cross_entropy, PLAN, Streams(1), "e")


def trained_on(device: torch.device) -> list[bytes]:
    """Train in two slices with a merge and a probe between them; what is sent and kept."""
    trainer, rule = trainer_on(device), LocalRule(None)
    start = np.linspace(-1, 1, trainer.workspace.layout.size, dtype=np.float32)
    run = trainer.begin(FakeTask({"weights": start}), rule, {})
    trainer.advance(run, rule, 3)
    slope = trainer._probe(run, run.weights)[1].numpy(force=True)
    kept = trainer.kept(run)
    trainer.advance(run, rule)
    assert run.failure is None and kept.step == 3
    return [
        slope.tobytes(),
        kept.weights.numpy(force=True).tobytes(),
        *(vector.tobytes() for vector in trainer.payload(run, rule)[0].values()),
    ]


def test_training_on_a_gpu_leaves_nothing_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = trained_on(CPU)
    with fake_gpu(monkeypatch) as gpu:
        there = trained_on(chosen("cuda"))
    assert there == here and gpu.moved["up"] and gpu.moved["down"]


def test_generators_continue_and_are_restored() -> None:
    before, states = torch.get_rng_state(), seeded(7, CPU)
    drawn = []
    for _ in range(2):
        with drawing_from(states, CPU) as now:
            drawn.append(torch.rand(3))
            states = now()
    by_hand = torch.Generator().manual_seed(7)
    assert torch.equal(torch.cat(drawn), torch.rand(6, generator=by_hand))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.device_count(), reason=NO_CUDA)
def test_a_real_gpu_repeats_itself_and_is_close_to_the_cpu() -> None:
    device = torch_device.chosen("cuda")
    make_repeatable(device)
    plan = TrainingPlan(2, 8, 0.1, momentum=0.9)

    def weights(place: torch.device) -> np.ndarray:
        space = Workspace(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
        space.to(place)
        rule = LocalRule(None)
        trainer = Trainer(
            space, INPUTS.to(place), TARGETS.to(place), cross_entropy, plan, Streams(1), "e"
        )
        start = np.linspace(-1, 1, space.layout.size, dtype=np.float32)
        run = trainer.begin(FakeTask({"weights": start}), rule, {})
        trainer.advance(run, rule)
        return trainer.payload(run, rule)[0]["weights"]

    there = weights(device)
    assert there.tobytes() == weights(device).tobytes()
    np.testing.assert_allclose(there, weights(CPU), rtol=1e-4, atol=1e-6)
