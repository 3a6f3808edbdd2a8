"""Text classifier: an encoder of transformers, such as BERT, from a directory (Devlin et al. 2019).

One linear layer reads the text's first token, or what that encoder's own classifier reads. Data
sets: one or two sentences with a label. Source: Devlin et al. 2019 (arXiv 1810.04805), section 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.models.pretrained_options import PretrainedOptions

if TYPE_CHECKING:
    from torch import nn

TAKES = "labels"  # kind of encoded texts (Dataset.tokens)

Options = PretrainedOptions


def build(options: PretrainedOptions, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the classifier in ``options.path`` for texts of ``shape`` (vocabulary, 2, length)."""
    from edgefl.models.pretrained import pretrained  # here, so that listings do not import torch

    return pretrained("bert_classifier", options, shape, classes)
