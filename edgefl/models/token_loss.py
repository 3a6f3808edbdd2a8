"""Loss and metric of models that predict the next token of a text.

Outputs are (batch, l, vocabulary): at each position the logits of the next token. Targets are
(batch, L), with L >= l: the text's own tokens, and ``IGNORED`` where a token does not count.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from edgefl.data.samples import IGNORED


def next_token_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy over the tokens of a batch that count.

    It is 0 if none counts.
    """
    following = _following(outputs, targets)
    summed = functional.cross_entropy(
        outputs[:, :-1].flatten(0, 1), following.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return summed / (following != IGNORED).sum().clamp(min=1)


def counted_tokens(targets: torch.Tensor) -> int:
    """Return of how many tokens ``next_token_loss`` is the mean."""
    return int((targets[:, 1:] != IGNORED).sum())


def right_tokens(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """Return the sum over a batch of each text's share of tokens that are predicted right."""
    following = _following(outputs, targets)
    counts = (following != IGNORED).sum(dim=1).clamp(min=1)
    return ((outputs[:, :-1].argmax(dim=2) == following).sum(dim=1) / counts).sum()


def _following(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The token after each position but the last: (batch, l - 1)."""
    return targets[:, 1 : outputs.shape[1]]
