"""Predictions of causal models cut to the most likely words, against the full form."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.jobs import Distill, Predict
from edgefl.models import distil
from edgefl.models.distil import TopLogits, mean_of, top_of
from edgefl.models.workspace import Workspace, flat

WORDS = 50
TEXTS = torch.tensor(  # (n, 2, length): token numbers, and 0 where there is padding
    [
        [[3, 7, 1, 9], [1, 1, 1, 1]],
        [[4, 4, 0, 0], [1, 1, 0, 0]],
        [[8, 2, 6, 0], [1, 2, 2, 0]],
    ]
)


def peaked(seed: int, positions: int = 40, words: int = WORDS, scale: float = 3.0) -> torch.Tensor:
    """Logits like those of a language model: a few words have most of the mass."""
    return torch.randn(positions, words, generator=torch.Generator().manual_seed(seed)) * scale


# ------------------------------------------------------------------ by hand
def test_the_two_most_likely_of_four_words_by_hand() -> None:
    """p = (.5, .25, .125, .125): listed 0 and 1, rest 1/4 over two words.

    Here the unlisted words are equally likely, so the entropy is exact: 1.75 of 2 bits.
    """
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log() + 7.0
    found = top_of(logits, 2)
    assert found.words.tolist() == [[0, 1]] and found.others.tolist() == [2.0]
    assert found.log_p.exp().tolist()[0] == pytest.approx([0.5, 0.25])
    assert found.rest.exp().tolist() == pytest.approx([0.25])
    assert found.entropy(4).tolist() == pytest.approx([1.75 / 2])


def test_the_loss_by_hand() -> None:
    """Student (.25, .25, .25, .25): KL = .5 ln 2 + .25 ln 1 + .25 ln(.25 / .5), CE = ln 4."""
    found = top_of(torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log(), 2)
    student = torch.zeros(1, 4)
    divergence = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert float(found.loss(student, 1.0)) == pytest.approx(divergence, abs=1e-6)
    assert float(found.loss(student, 0.0)) == pytest.approx(math.log(4), abs=1e-6)
    assert float(found.loss(student, 0.5)) == pytest.approx((divergence + math.log(4)) / 2)


def test_the_mean_of_two_teachers_by_hand() -> None:
    """Each lists one of three words: A says (.5 | rest .5), B says (word 1: .8 | rest .2).

    With the rest spread, A = (.5, .25, .25) and B = (.1, .8, .1); the mean of logarithms is the
    root of the products (.05, .2, .025), then normalised.
    """
    a = TopLogits(
        *(torch.tensor(each) for each in ([[0]], [[math.log(0.5)]])),
        torch.tensor([math.log(0.5)]),
        torch.tensor([2.0]),
    )
    b = TopLogits(
        *(torch.tensor(each) for each in ([[1]], [[math.log(0.8)]])),
        torch.tensor([math.log(0.2)]),
        torch.tensor([2.0]),
    )
    found = mean_of([a, b], 3)
    roots = np.sqrt([0.05, 0.2, 0.025])
    assert found.words.tolist() == [[0, 1]] and found.others.tolist() == [1.0]
    assert found.log_p.exp()[0].tolist() == pytest.approx((roots[:2] / roots.sum()).tolist())
    assert float(found.rest.exp()) == pytest.approx(roots[2] / roots.sum())


# ------------------------------------------------------------------ against the full form
@pytest.mark.parametrize("teachers", [1, 3])
def test_with_all_words_listed_nothing_is_lost(teachers: int) -> None:
    logits = [peaked(seed) for seed in range(teachers)]
    student = peaked(99).requires_grad_()
    mean = torch.stack(logits).mean(dim=0)
    found = mean_of([top_of(each, WORDS) for each in logits], WORDS)
    torch.testing.assert_close(found.entropy(WORDS), distil.entropy(mean), atol=1e-4, rtol=1e-4)
    for alpha in (0.0, 0.3, 1.0):
        (ours,) = torch.autograd.grad(found.loss(student, alpha), student)
        (full,) = torch.autograd.grad(distil.loss(student, mean, alpha), student)
        torch.testing.assert_close(ours, full, atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(
            found.loss(student, alpha), distil.loss(student, mean, alpha), atol=1e-4, rtol=1e-4
        )


def test_gradients_are_finite_where_a_teacher_is_certain() -> None:
    student = peaked(1).requires_grad_()
    found = top_of(peaked(2, scale=200.0), 4)
    (gradient,) = torch.autograd.grad(found.loss(student, 0.5), student)
    assert bool(gradient.isfinite().all())


# ------------------------------------------------------------------ the jobs
class Causal(nn.Module):
    """Predicts each next token from the present one; trims to the longest text of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(10, WORDS)

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        length = int((packed[:, 1] != 0).sum(dim=1).max())
        return self.inner(packed[:, 0, :length])


def learned_causal() -> Any:
    torch.manual_seed(0)
    return SimpleNamespace(
        workspace=Workspace(Causal),
        predicts_tokens=True,
        step=None,
        some_unlabelled=lambda samples: TEXTS[:samples],
        task=SimpleNamespace(dataset=SimpleNamespace(vocabulary=WORDS)),
    )


def lesson(learned: Any, weights: np.ndarray, **changes: Any) -> Any:
    given = {
        "teacher": np.zeros(0, np.float32),
        "first": None,
        "second": None,
        "steps": 0,
        "learning_rate": 0.05,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "passes": 1,
        "batch": 2,
        "alpha_min": 0.2,
        "alpha_max": 0.8,
        "clip": 1e9,
        "samples": None,
        "seed": 4,
    }
    return Distill(weights=weights, **given | changes).work(learned)


def test_a_prediction_has_the_positions_that_are_not_padding() -> None:
    learned = learned_causal()
    weights = flat(learned.workspace.model)
    vectors, _ = Predict(weights, None, top=4).work(learned)
    assert len(vectors["top_logits"]) == 9 * (2 * 4 + 1)
    words = vectors["top_logits"][: 9 * 4].reshape(9, 4)
    table = weights.reshape(10, WORDS)
    tokens = [3, 7, 1, 9, 4, 4, 8, 2, 6]
    assert words[:, 0].tolist() == [float(table[token].argmax()) for token in tokens]


def test_a_student_learns_what_the_teachers_say() -> None:
    learned = learned_causal()
    start = flat(learned.workspace.model)
    rng = np.random.default_rng(2)
    teachers = {}
    for edge in ("e001", "e000"):
        other = (rng.standard_normal(start.size) * 3).astype(np.float32)
        teachers[edge] = Predict(other, None, top=40).work(learned)[0]["top_logits"]
    vectors, numbers = lesson(learned, start, top_teachers=teachers, passes=1)
    assert 0 < numbers["entropy"] < 1 and numbers["steps"] == 2.0
    assert numbers["alpha"] == pytest.approx(0.2 + 0.6 * numbers["entropy"])
    later = lesson(learned, vectors["weights"], top_teachers=teachers, passes=60)[1]
    assert later["loss"] < numbers["loss"] / 2
    again = lesson(learned, start, top_teachers=dict(reversed(teachers.items())))[0]
    assert again["weights"].tolist() == vectors["weights"].tolist(), "their order has no effect"


def test_predictions_of_other_texts_are_refused() -> None:
    learned = learned_causal()
    weights = flat(learned.workspace.model)
    vectors, _ = Predict(weights, 2, top=4).work(learned)
    with pytest.raises(ValueError, match="for 9 positions"):
        lesson(learned, weights, top_teachers={"e000": vectors["top_logits"]})
