"""Causal language model of transformers, such as Qwen2.5, from a directory.

It predicts the next token of an answer, given the prompt and the tokens before. Data sets: prompts
with answers. Source of the model in FedEcho's table 5: Qwen2.5 (arXiv 2412.15115).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.models.pretrained_options import PretrainedOptions

if TYPE_CHECKING:
    from torch import nn

TAKES = "next"  # kind of encoded texts (Dataset.tokens)

Options = PretrainedOptions


def build(options: PretrainedOptions, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the model in ``options.path`` for texts of ``shape`` (vocabulary, 2, length)."""
    from edgefl.models.pretrained import pretrained  # here, so that listings do not import torch

    return pretrained("causal_lm", options, shape, classes)
