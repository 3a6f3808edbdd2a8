"""F1, perplexity, the number in an answer, and greedy decoding, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from edgefl.clocks.setup.learning import LabelCounts, perplexity
from edgefl.data.dataset import right_answers
from edgefl.models.evaluate import decoded, final_number


def counted(given: list[int], targets: list[int], classes: int) -> LabelCounts:
    found = LabelCounts(right_answers, classes)
    outputs = torch.eye(classes)[torch.tensor(given)]
    for start in range(0, len(given), 2):  # in batches
        part = torch.tensor(targets[start : start + 2])
        assert int(found(outputs[start : start + 2], part)) == int(
            right_answers(outputs[start : start + 2], part)
        )
    return found


def test_f1_of_two_labels_is_that_of_label_1() -> None:
    """Label 1: 2 right of 3 answers and 4 samples: precision 2/3, recall 1/2, F1 4/7."""
    found = counted([1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0], 2)
    precision, recall = 2 / 3, 1 / 2
    assert found.f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert found.f1 == pytest.approx(4 / 7)


def test_f1_of_more_labels_is_the_mean_over_those_that_occur() -> None:
    """Label 0: 1 right, 2 answers, 1 sample: 2/3. Label 1: 0. Label 2: 1. Label 3: nowhere."""
    found = counted([0, 0, 2], [0, 1, 2], 4)
    assert found.f1 == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_an_answer_beyond_the_labels_is_wrong_and_in_no_column() -> None:
    """Label 0: 1 right, 1 answer, 2 samples: 2/3. Label 1: 1, 1, 2: 2/3."""
    found = LabelCounts(right_answers, 2)
    found(torch.eye(5)[torch.tensor([0, 4, 2, 1])], torch.tensor([0, 0, 1, 1]))
    assert found.counts.tolist() == [[1, 1], [1, 1], [2, 2]]
    assert found.shares == [0.5, 0.5] and found.f1 == pytest.approx(2 / 3)


def test_perplexity() -> None:
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e4) == math.inf


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("He has 3 + 4 = 7 apples.\n#### 7", 7.0),
        ("#### 1,234.50 dollars", 1234.5),
        ("so -12 is left", -12.0),
        ("first 5, then 6", 6.0),
        ("none at all", None),
        ("5 #### none", None),
    ],
)
def test_the_final_number(text: str, number: float | None) -> None:
    assert final_number(text) == number


class Next(nn.Module):
    """Says 5, 6, 7 after 4, whatever came before; a causal model of one's own, without a cache."""

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        following = torch.tensor([0, 0, 0, 0, 5, 6, 7, 1])
        return torch.eye(8)[following[packed[:, 0]]]


def test_greedy_decoding_ends_at_the_end_token_or_at_the_limit() -> None:
    model: Any = Next()
    assert decoded(model, torch.tensor([3, 4]), 9, end=1) == [5, 6, 7]
    assert decoded(model, torch.tensor([3, 4]), 2, end=1) == [5, 6]
