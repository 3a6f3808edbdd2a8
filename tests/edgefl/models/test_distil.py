"""Distillation equation by equation (FedEcho, eqs. 2 to 5), with its errata as named cases."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.compiled.network import network_of
from edgefl.compiled.step import CompiledStep
from edgefl.jobs import Distill, Predict
from edgefl.models import distil
from edgefl.models.adam import Adam
from edgefl.models.workspace import Workspace, flat
from edgefl.streams import Streams
from edgefl.vectors import aligned_copy

LN3 = math.log(3.0)
SAMPLES = 20


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
        )


def space() -> Workspace:
    torch.manual_seed(0)
    return Workspace(Net)


def recipe(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"passes": 1, "batch": 8, "learning_rate": 0.1}
        | {"alpha_min": 0.2, "alpha_max": 0.8, "clip": 5.0}
        | changes
    )


def adam(size: int) -> Adam:
    return Adam(torch.zeros(size), torch.zeros(size), 0, 0.9, 0.999, 1e-8)


# ------------------------------------------------------------------ eq. 3
def test_the_divergence_is_of_the_student_from_the_teacher_c3() -> None:
    """KL(p || q) with p = (3/4, 1/4) of the teacher, q = (1/2, 1/2) of the student: 3/4 ln 3/2 +
    1/4 ln 1/2 = 0.1308, not 0.1438.
    """
    teacher, student = torch.tensor([[LN3, 0.0]]), torch.tensor([[0.0, 0.0]])
    assert float(distil.loss(student, teacher, 1.0)) == pytest.approx(
        0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-6
    )
    assert float(distil.loss(student, teacher, 1.0)) != pytest.approx(
        0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(2.0), abs=1e-3
    )


def test_cross_entropy_with_the_teachers_hard_labels() -> None:
    """alpha 0: CE(yh, argmax y), here -ln 1/4 for the first sample and -ln 3/4 for the second;
    alpha mixes.
    """
    teacher, student = (
        torch.tensor([[0.1, 0.0], [0.0, 5.0]]),
        torch.tensor([[0.0, LN3], [0.0, LN3]]),
    )
    hard = (math.log(4.0) + math.log(4.0 / 3.0)) / 2
    assert float(distil.loss(student, teacher, 0.0)) == pytest.approx(hard, abs=1e-6)
    soft = float(distil.loss(student, teacher, 1.0))
    assert float(distil.loss(student, teacher, 0.25)) == pytest.approx(
        0.25 * soft + 0.75 * hard, abs=1e-6
    )


# ------------------------------------------------------------------ eqs. 4 and 5
def test_entropy_is_normalised_by_log_c() -> None:
    even, certain, between = [0.0] * 4, [1000.0, 0.0, 0.0, 0.0], [1000.0, 1000.0, 0.0, 0.0]
    assert distil.entropy(torch.tensor([even, certain, between])).tolist() == pytest.approx(
        [1.0, 0.0, 0.5], abs=1e-6
    )


@pytest.mark.parametrize(("logit", "alpha"), [(0.0, 0.8), (1000.0, 0.2)])
def test_alpha_goes_from_its_minimum_when_certain_to_its_maximum_when_not(
    logit: float, alpha: float
) -> None:
    net, inputs = space(), torch.ones(8, 4)
    teacher = torch.tensor([[logit, 0.0, 0.0]] * 8)
    numbers = distil.distil(
        net,
        torch.from_numpy(flat(net.model)),
        adam(net.layout.parameters),
        inputs,
        distil.SampleLogits(teacher),
        recipe(),
        np.random.default_rng(0),
    )
    assert numbers["alpha"] == pytest.approx(alpha, abs=1e-6) and numbers[
        "entropy"
    ] == pytest.approx(float(logit == 0), abs=1e-6)


# ------------------------------------------------------------------ eq. 2
def test_first_clipped_then_adam_c1() -> None:
    """Two gradients of norms 50 and 0.5, clipped to 5: the same weights as torch's clipping and
    then torch's Adam, and not as Adam alone.
    """
    gradients = [torch.tensor([30.0, 40.0]), torch.tensor([0.3, -0.4])]

    def ours(norm: float) -> torch.Tensor:
        weights, optimiser = torch.tensor([1.0, 2.0]), adam(2)
        for gradient in gradients:
            given = gradient.clone()
            assert distil.clipped(given, norm) == pytest.approx(float(gradient.norm()))
            optimiser.step(weights, given, 0.1)
        return weights

    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimiser = torch.optim.Adam([parameter], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        nn.utils.clip_grad_norm_([parameter], 5.0)
        optimiser.step()
    assert ours(5.0).tolist() == pytest.approx(parameter.tolist(), abs=1e-6)
    assert ours(1e30).tolist() != pytest.approx(parameter.tolist(), abs=1e-3), (
        "without clipping the second step is another one"
    )


# ------------------------------------------------------------------ a whole distillation
def lesson(
    net: Workspace, samples: int | None = None, step: CompiledStep | None = None, **changes: Any
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    given = flat(net.model)
    return lesson_of(given, samples, **changes).work(desk(net, step))


def lesson_of(given: np.ndarray, samples: int | None = None, **changes: Any) -> Distill:
    count = 3 * (samples or SAMPLES)
    teacher = aligned_copy(np.linspace(-2, 2, count, dtype=np.float32))
    values: dict[str, Any] = {
        "first": None,
        "second": None,
        "steps": 0,
        "learning_rate": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "passes": 1,
        "batch": 8,
        "alpha_min": 0.2,
        "alpha_max": 0.8,
        "clip": 5.0,
        "samples": samples,
        "seed": 7,
    }
    return Distill(weights=given, teacher=teacher, **values | changes)


def desk(net: Workspace, step: CompiledStep | None = None) -> Any:
    shape = (SAMPLES, 4) if step is None else (SAMPLES, *step.network.shape)
    inputs = torch.from_numpy(Streams(1).rng("inputs").normal(size=shape).astype(np.float32))
    return SimpleNamespace(
        workspace=net,
        step=step,
        predicts_tokens=False,
        some_unlabelled=lambda samples: inputs if samples is None else inputs[:samples],
    )


def test_a_lesson_moves_the_parameters_and_leaves_buffers_and_workspace() -> None:
    net = space()
    before, buffers = flat(net.model), net.layout.parameters
    vectors, numbers = lesson(net)
    assert numbers["steps"] == 3.0, "Q = one pass over 20 samples in batches of 8"
    assert not np.array_equal(vectors["weights"][:buffers], before[:buffers])
    assert np.array_equal(vectors["weights"][buffers:], before[buffers:]), (
        "the student's normalisation buffers do not change"
    )
    assert np.array_equal(flat(net.model), before) and net.model.training
    assert len(vectors["first"]) == len(vectors["second"]) == buffers and all(
        vector.dtype == np.float32 for vector in vectors.values()
    )


def test_adam_goes_on_where_it_was() -> None:
    """Two distillations of one pass, the second with the moments of the first, give the same
    weights as Adam with two passes over the same batches.
    """
    net = space()
    one, numbers = lesson(net, batch=20)
    net.point(torch.from_numpy(aligned_copy(one["weights"])), net.fresh_counters())
    kept, _ = lesson(
        net, batch=20, first=one["first"], second=one["second"], steps=int(numbers["steps"])
    )
    two, numbers = lesson(space(), batch=20, passes=2)
    assert numbers["steps"] == 2.0 and kept["weights"] == pytest.approx(two["weights"], abs=1e-6)
    anew, _ = lesson(net, batch=20)
    assert anew["weights"] != pytest.approx(two["weights"], abs=1e-6)


def suited() -> nn.Sequential:
    """A network that the compiled step covers, of images of 1 x 2 x 2."""
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def test_the_compiled_step_predicts_and_teaches_as_torch_does() -> None:
    torch.manual_seed(0)
    net = Workspace(suited)
    step, given = CompiledStep(network_of(net.model, (1, 2, 2))), flat(net.model)
    with_torch = desk(net, step)
    with_torch.step = None
    ours, theirs = (
        Predict(given, None).work(learned)[0]["logits"] for learned in (desk(net, step), with_torch)
    )
    assert ours == pytest.approx(theirs, abs=1e-5)
    taught, numbers = lesson(net, step=step, passes=3, clip=0.15)
    expected, told = Distill.work(lesson_of(given, passes=3, clip=0.15), with_torch)
    assert numbers == pytest.approx(told, rel=1e-4)
    for name, vector in expected.items():
        assert taught[name] == pytest.approx(vector, abs=1e-5)
        assert name == "weights" or vector.any()
    assert np.abs(taught["weights"] - given).max() > 0.01 and 0 < numbers["clipped"] < 1
