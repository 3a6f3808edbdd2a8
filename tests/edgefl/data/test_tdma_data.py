"""The data and the model of the TDMA papers: one label per device, and a small CNN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefl.data.partition.one_label import Options, split
from edgefl.errors import UserError
from edgefl.models import tdma_cnn

LABELS = np.repeat(np.arange(10), 100)


def dealt(edges: int, seed: int = 1, **options: object) -> list[np.ndarray]:
    return split(
        LABELS, edges, Options.model_validate(options), np.random.Generator(np.random.PCG64(seed))
    )


def test_every_edge_has_one_label_and_no_sample_is_used_twice() -> None:
    shares = dealt(30, samples=30)
    assert [set(LABELS[share]) for share in shares] == [{number % 10} for number in range(30)]
    together = np.concatenate(shares)
    assert len(together) == len(set(together.tolist())) == 900 and all(
        share.tolist() == sorted(share.tolist()) for share in shares
    )


def test_too_few_samples_of_a_label_are_refused() -> None:
    with pytest.raises(UserError, match="40 edges want 120 samples of label 0, there are 100"):
        dealt(40, samples=30)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [((1, 28, 28), 10 * 26 + 20 * 251 + 10 * 321), ((3, 32, 32), 10 * 76 + 20 * 251 + 10 * 501)],
)
def test_the_cnn_has_two_convolutions_and_one_dense_layer(
    shape: tuple[int, int, int], parameters: int
) -> None:
    """conv 10@5, pool, conv 20@5, pool, dense: 28 -> 24 -> 12 -> 8 -> 4, and 32 -> 28 -> 14 ->
    10 -> 5.
    """
    model = tdma_cnn.build(tdma_cnn.Options(), shape, 10)
    assert sum(weights.numel() for weights in model.parameters()) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 17, 21)])
def test_the_cnn_can_halve_by_strides(shape: tuple[int, int, int]) -> None:
    """28 -> 12 -> 4, and 32 -> 14 -> 5: no pooling is left."""
    model = tdma_cnn.build(tdma_cnn.Options(pool="stride"), shape, 10)
    assert model(torch.zeros(2, *shape)).shape == (2, 10)
    assert not any(isinstance(layer, torch.nn.MaxPool2d) for layer in model.modules())
    if shape == (1, 28, 28):  # the sizes after the layers are those with pooling
        pooled = tdma_cnn.build(tdma_cnn.Options(), shape, 10)
        sizes = [[weights.shape for weights in each.parameters()] for each in (model, pooled)]
        assert sizes[0] == sizes[1]
