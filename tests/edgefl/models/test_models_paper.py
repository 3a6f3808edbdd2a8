"""The models of the dissemination papers: shapes, sizes counted by hand, normalisation, layout,
texts.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from edgefl.errors import UserError
from edgefl.models import alexnet, cnn, lenet5, mlp, resnet18, resnet20, textcnn, vgg11
from edgefl.models.layers import Residual
from edgefl.models.workspace import layout_of

CIFAR, GREY, TINY = (3, 32, 32), (1, 28, 28), (3, 64, 64)


@pytest.mark.parametrize(
    ("model", "kind", "shape", "classes", "parameters", "buffers"),
    [
        # conv 64 * (3 * 4 + 1) + 32 * (64 * 4 + 1) = 832 + 8,224; dense 32 * 30 * 30 * 10 + 10 =
        # 288,010
        (cnn, "none", CIFAR, 10, 297_066, 0),
        (cnn, "none", GREY, 10, 64 * 5 + 8_224 + 32 * 26 * 26 * 10 + 10, 0),
        (cnn, "batch", CIFAR, 10, 297_066 + 2 * 96, 2 * 96),
        # He et al. table 6: 0.27 M. 432 + 6 * 2,304 + 4,608 + 5 * 9,216 + 18,432 + 5 * 36,864 + 2 *
        # 688 (norms) + 650
        (resnet20, "batch", CIFAR, 10, 269_722, 2 * 688),
        (resnet20, "group", CIFAR, 10, 269_722, 0),
        (resnet20, "batch", TINY, 200, 269_722 + 190 * 65, 2 * 688),
        (resnet20, "batch", GREY, 10, 269_722 - 2 * 9 * 16, 2 * 688),
        # convolutions 1,728 + 4 * 36,864 + 73,728 + 3 * 147,456 + 294,912 + 3 * 589,824 + 1,179,648
        # + 3 * 2,359,296, shortcuts 8,192 + 32,768 + 131,072; norms 2 * 4,800; dense 5,130
        (resnet18, "batch", CIFAR, 10, 11_173_962, 2 * 4_800),
        (resnet18, "group", CIFAR, 10, 11_173_962, 0),
        (resnet18, "group", GREY, 10, 11_173_962 - 2 * 9 * 64, 0),
        # 23,296 + 307,392 + 663,936 + 884,992 + 590,080 + 2,570
        (alexnet, "none", CIFAR, 10, 2_472_266, 0),
        (alexnet, "none", GREY, 10, 2_472_266 - 2 * 121 * 64, 0),
        (alexnet, "batch", CIFAR, 10, 2_472_266 + 1_152, 2 * 1_152),
        (alexnet, "none", TINY, 200, 2_472_266 - 2_570 + 4 * 256 * 200 + 200, 0),
        # 1,792 + 73,856 + 295,168 + 590,080 + 1,180,160 + 3 * 2,359,808 + 5,130; a norm has 2 where
        # the bias had 1
        (vgg11, "none", CIFAR, 10, 9_225_610, 0),
        (vgg11, "batch", CIFAR, 10, 9_225_610 + 2_752, 2 * 2_752),
        (vgg11, "group", CIFAR, 100, 9_225_610 + 2_752 + 90 * 513, 0),
        (vgg11, "batch", GREY, 10, 9_225_610 + 2_752 - 2 * 9 * 64, 2 * 2_752),
        (vgg11, "none", TINY, 200, 9_225_610 - 5_130 + 4 * 512 * 200 + 200, 0),
    ],
)
@pytest.mark.slow
def test_sizes(
    model: ModuleType,
    kind: str,
    shape: tuple[int, ...],
    classes: int,
    parameters: int,
    buffers: int,
) -> None:
    built = model.build(model.Options(norm=kind), shape, classes)
    layout = layout_of(built)
    assert (layout.parameters, layout.size - layout.parameters) == (parameters, buffers)
    assert built(torch.zeros(2, *shape)).shape == (2, classes)
    assert all(entry.offset >= parameters for entry in layout.entries if entry.kind == "buffer"), (
        "running statistics stand at the end"
    )


def test_textcnn_takes_the_maximum_over_time_and_padding_is_zero() -> None:
    """Kim 2014, eq. 2-3: c_i = f(w . x_{i:i+h-1} + b), then max over i; a filter finds its words
    at any place.
    """
    built = textcnn.build(
        textcnn.Options(embedding=4, filters=3, windows=(2,), dropout=0.0), (9, 6), 2
    ).eval()
    early, late = torch.tensor([[0, 3, 4, 0, 0, 0]]), torch.tensor([[0, 0, 3, 4, 0, 0]])
    vectors = built.embedding.table.weight
    assert vectors[0].abs().sum() == 0
    x = vectors[late[0]]  # (6, 4)
    conv = built.features.convs[0]
    by_hand = (
        torch.stack([(conv.weight * x[i : i + 2].T).sum(dim=(1, 2)) + conv.bias for i in range(5)])
        .relu()
        .amax(dim=0)
    )
    assert torch.allclose(built.features(built.embedding(late))[0], by_hand, atol=1e-6)
    assert torch.equal(built(late), built(early)), "the same windows, elsewhere"


def test_a_residual_block_by_hand() -> None:
    """With all convolutions zero only the shortcut is left: every second pixel, two new channels
    of zeros on each side (option A).
    """
    block = Residual(2, 6, 2, "group")
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    out = block(x)
    assert out.shape == (1, 6, 2, 2)
    assert out[0, 2].tolist() == [[0, 2], [8, 10]] and out[0, 3].tolist() == [[16, 18], [24, 26]]
    assert out[0, [0, 1, 4, 5]].abs().sum() == 0


@pytest.mark.parametrize("model", [cnn, resnet18, resnet20, alexnet, vgg11, lenet5, mlp])
def test_picture_models_refuse_texts(model: ModuleType) -> None:
    with pytest.raises(UserError, match=r"takes pictures.*\(100, 20\).*textcnn"):
        model.build(model.Options(), (100, 20), 2)


def test_textcnn_refuses_pictures_and_short_texts() -> None:
    with pytest.raises(UserError, match="takes texts"):
        textcnn.build(textcnn.Options(), CIFAR, 10)
    with pytest.raises(
        UserError, match=r"windows: expected at most the texts' length \(4\), found 5"
    ):
        textcnn.build(textcnn.Options(), (100, 4), 2)
