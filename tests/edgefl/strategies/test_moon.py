"""MOON: the contrastive term by hand, the model that a device keeps, and a device's first task,
which has no previous model (Li et al. 2021).
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from trainers import FakeTask, finished

from edgefl.data.dataset import cross_entropy
from edgefl.edges.training import Trainer, TrainingPlan
from edgefl.models.workspace import Workspace
from edgefl.strategies.moon import Contrast, MoonOptions
from edgefl.streams import Streams


def rule(**options: float) -> Contrast:
    return Contrast(MoonOptions(**options))


def term(
    local: list[list[float]],
    of_global: list[list[float]],
    of_previous: list[list[float]],
    **options: float,
) -> float:
    """extra_loss where the received model gives ``of_global`` and the former one
    ``of_previous``.
    """
    run = SimpleNamespace(start="global", memory={"previous": "previous"})
    outcomes = {
        "global": torch.tensor(of_global).float(),
        "previous": torch.tensor(of_previous).float(),
    }
    return float(
        rule(**options).extra_loss(
            run, (None, None), torch.tensor(local).float(), lambda weights, _: outcomes[weights]
        )
    )


def test_the_contrastive_term_is_equation_3() -> None:
    """l_con = -log( e^(sim(z, z_glob)/tau) / (e^(sim(z, z_glob)/tau) + e^(sim(z, z_prev)/tau))
    ): cosines 1 and 0, tau = 0.5.
    """
    assert term([[3, 0]], [[2, 0]], [[0, 5]]) == pytest.approx(
        -math.log(math.e**2 / (math.e**2 + 1)), rel=1e-6
    )
    assert term([[3, 0]], [[0, 2]], [[7, 0]]) == pytest.approx(
        -math.log(1 / (math.e**2 + 1)), rel=1e-6
    )
    assert term([[3, 0]], [[-2, 0]], [[7, 0]], temperature=1.0) == pytest.approx(
        -math.log(math.exp(-1) / (math.exp(-1) + math.e)), rel=1e-6
    )


def test_the_total_loss_is_equation_4() -> None:
    """l = l_sup + mu l_con, the mean over the batch: two samples of cosines (1, 1) and (1, 0),
    mu = 5.
    """
    both = (math.log(2) + math.log(1 + math.exp(-2))) / 2
    assert term([[1, 0], [0, 1]], [[1, 0], [0, 2]], [[3, 0], [1, 0]], mu=5.0) == pytest.approx(
        5 * both, rel=1e-6
    )


def test_a_low_temperature_overflows_nothing() -> None:
    """Cosines (-1, 1) and (1, 0) at T = 0.01: log(1 + e^200) = 200 and log(1 + e^-100) = 0."""
    run = SimpleNamespace(
        start=[[-1.0, 0.0], [1.0, 0.0]], memory={"previous": [[1.0, 0], [0, 1.0]]}
    )
    local = torch.tensor([[1.0, 0.05], [1.0, 0.0]], requires_grad=True)
    contrast = rule(temperature=0.01)
    loss = contrast.extra_loss(run, (None, None), local, lambda rows, _: torch.tensor(rows))
    loss.backward()
    assert loss.item() == pytest.approx(100, rel=0.01)
    assert local.grad.isfinite().all() and local.grad[0].abs().max() > 1


# ------------------------------------------------------------------ on a real model
def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))


ROWS, ANSWERS = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([0, 1])
START = np.linspace(-1, 1, 17, dtype=np.float32)
OTHER = np.linspace(0.5, -0.9, 17, dtype=np.float32) ** 2


def trainer(epochs: int = 1) -> Trainer:
    return Trainer(
        Workspace(build),
        ROWS,
        ANSWERS,
        cross_entropy,
        TrainingPlan(epochs, 2, 0.1),
        Streams(1),
        "e1",
    )


def reference(weights: torch.Tensor, previous: np.ndarray, mu: float) -> torch.Tensor:
    """Gradient of the whole loss at ``weights``, written out with torch alone."""

    def hidden(vector: torch.Tensor) -> torch.Tensor:
        return torch.relu(ROWS @ vector[:6].view(3, 2).T + vector[6:9])

    vector = weights.clone().requires_grad_()
    z, other = hidden(vector), [hidden(torch.from_numpy(v)).detach() for v in (START, previous)]
    positive, negative = (torch.cosine_similarity(z, o) / 0.5 for o in other)
    contrast = -(positive.exp() / (positive.exp() + negative.exp())).log().mean()
    (cross_entropy(z @ vector[9:15].view(2, 3).T + vector[15:], ANSWERS) + mu * contrast).backward()
    return vector.grad


def test_the_gradient_is_that_of_the_representation_in_front_of_the_last_layer() -> None:
    moved = finished(trainer(2), rule(mu=2.0), FakeTask({"weights": START}), {"previous": OTHER})
    weights = torch.from_numpy(START.copy())
    for _ in range(2):
        weights = weights - 0.1 * reference(weights, OTHER, 2.0)
    torch.testing.assert_close(moved.weights, weights)


def test_the_device_keeps_its_own_trained_model() -> None:
    taught, contrast = trainer(), rule()
    run = finished(taught, contrast, FakeTask({"weights": START}))
    vectors, _ = taught.payload(run, contrast)
    kept = taught.remembered(run, contrast)
    assert set(vectors) == {"weights"}, "nothing but the model goes up"
    assert (
        list(kept) == ["previous"]
        and kept["previous"].tolist() == run.weights.tolist() != START.tolist()
    )


def test_a_model_without_a_linear_layer_is_refused() -> None:
    conv = Trainer(
        Workspace(lambda: nn.Conv2d(1, 2, 1)),
        torch.ones(2, 1, 1, 1),
        ANSWERS,
        lambda o, t: o.sum(),
        TrainingPlan(1, 2, 0.1),
        Streams(1),
        "e1",
    )
    run = conv.begin(FakeTask({"weights": np.ones(4, np.float32)}), rule(), {})
    conv.advance(run, rule())
    assert run.failure is not None and "no linear layer" in run.failure.reason
