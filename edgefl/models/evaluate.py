"""Evaluate a flat vector of weights on a data set: loss, accuracy, and the gradient of the loss."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from edgefl.data.dataset import right_answers
from edgefl.data.encoding import texts_of
from edgefl.data.samples import IGNORED
from edgefl.models.workspace import Workspace, channels_last
from edgefl.vectors import aligned_copy

if TYPE_CHECKING:
    from edgefl.compiled.step import CompiledStep


BATCH = (
    125  # activations stay in a core's cache: with 1000, evaluation takes up to 1.8 times as long
)


def evaluate(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable,
    batch: int = BATCH,
    metric: Callable = right_answers,
    terms: Callable = len,
    step: CompiledStep | None = None,
) -> tuple[float, float]:
    """Return (mean loss, mean metric) in evaluation mode; the default metric is the accuracy.

    ``terms(targets)``: of how many terms the loss of a batch is the mean, such as its tokens.
    ``weights`` and the workspace do not change. ``step``: computes the outputs in place of torch.
    """
    total_loss = total_metric = 0.0
    counted, fast = 0, True
    with workspace.inference(weights) if step is None else nullcontext(workspace.model) as model:
        for start in range(0, len(inputs), batch):
            part, rows = targets[start : start + batch], inputs[start : start + batch]
            if step is None:
                outputs, fast = _outputs(model, rows, fast)
            else:
                outputs = torch.from_numpy(step.outputs(weights, rows.contiguous().numpy()))
            count = terms(part)
            if count:
                total_loss += float(loss(outputs, part)) * count
            counted += count
            total_metric += float(metric(outputs, part))
    mean_loss = total_loss / counted if counted else math.nan  # texts of which no token counts
    return mean_loss, total_metric / len(inputs)


def by_sample(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    index: np.ndarray,
    batch: int = BATCH,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (cross-entropy, whether the answer is right) of each sample at ``index``.

    float64 and bool, in evaluation mode.
    """
    losses, right, fast = np.empty(len(index)), np.empty(len(index), bool), True
    with workspace.inference(weights) as model:
        for start in range(0, len(index), batch):
            rows = torch.from_numpy(index[start : start + batch]).to(workspace.device)
            part = targets.index_select(0, rows)
            outputs, fast = _outputs(model, inputs.index_select(0, rows), fast)
            each = nn.functional.cross_entropy(outputs.double(), part, reduction="none")
            losses[start : start + batch] = each.numpy(force=True)
            right[start : start + batch] = (outputs.argmax(dim=1) == part).numpy(force=True)
    return losses, right


def _outputs(model: nn.Module, inputs: torch.Tensor, fast: bool) -> tuple[torch.Tensor, bool]:
    """Return the outputs of a batch, and whether the next one is to be in channels-last order.

    Convolutions are 1.7 times as fast in this order, but a model's own code may need torch's, such
    as ``x.view(len(x), -1)``.
    """
    if fast:
        with suppress(RuntimeError):  # if the order is not the cause, it comes again
            return model(channels_last(inputs)), True
    return model(inputs), False


def gradient(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[np.ndarray, float]:
    """Return (gradient of the trainable elements, loss) in evaluation mode.

    So there is no dropout, and normalisation buffers do not change.
    """
    with workspace.frozen(workspace.placed(weights)) as model:
        workspace.gradient.zero_()
        value = loss(model(workspace.arranged(inputs)), targets)
        value.backward()
        return aligned_copy(workspace.gradient.numpy(force=True)), value.item()


# ---------------------------------------------------------------------- next tokens
# Loss and metric of models that predict the next token of a text.
#
# Outputs are (batch, l, vocabulary): at each position the logits of the next token. Targets are
# (batch, L), with L >= l: the text's own tokens, and ``IGNORED`` where a token does not count.


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


# ---------------------------------------------------------------------- answers
# Greedy decoding of a causal language model, and the exact match of final numbers.
#
# Source of the score: Cobbe et al. 2021 (arXiv 2110.14168), GSM8K: an answer is right if its final
# number is that of the solution.

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MARK = "####"  # before the final number in GSM8K's solutions
PROMPT = 1  # in the second plane of a packed text; 2 is the answer


def final_number(text: str) -> float | None:
    """Return the number after the last "####", else the last number of a text; None without one.

    Commas between digits do not count: "1,234.50" is 1234.5.
    """
    after = text.rpartition(MARK)[2] if MARK in text else text
    found = NUMBER.findall(after)
    if not found:
        return None
    return float((found[0] if MARK in text else found[-1]).replace(",", ""))


def exact_match(
    workspace: Workspace,
    weights: np.ndarray,
    packed: Any,
    tokenizer: Any,
    most_tokens: int,
    samples: int | None = None,
) -> float:
    """Return the share of texts whose decoded answer has the final number of the text's own answer.

    ``packed``: texts (n, 2, L). ``most_tokens``: of an answer. ``samples``: how many texts, evenly
    spaced; None: all.
    """
    count = len(packed) if samples is None else min(samples, len(packed))
    rows = packed[torch.arange(count) * len(packed) // count]
    right = 0
    with workspace.inference(weights) as model:
        for row in rows:
            expected = final_number(texts_of(row.numpy(force=True), tokenizer)[1])
            prompt = row[0][row[1] == PROMPT]
            tokens = decoded(model, prompt, most_tokens, tokenizer.eos_token_id)
            found = final_number(tokenizer.decode(tokens, skip_special_tokens=True))
            right += found is not None and found == expected
    return right / count


def decoded(model: Any, prompt: torch.Tensor, most: int, end: int | None) -> list[int]:
    """Return the most likely continuation of ``prompt``, token by token, until ``end``.

    A transformers module (``model.net``) keeps its keys and values from token to token.
    """
    answer: list[int] = []
    cache, given = None, prompt[None]
    while len(answer) < most:
        if hasattr(model, "net"):
            found = model.net(input_ids=given, past_key_values=cache, use_cache=True)
            logits, cache = found.logits, found.past_key_values
        else:
            logits = model(torch.stack([given, torch.full_like(given, PROMPT)], dim=1))
        token = int(logits[0, -1].argmax())
        if token == end:
            break
        answer.append(token)
        following = given.new_tensor([[token]])
        given = following if cache is not None else torch.cat([given, following], dim=1)
    return answer
