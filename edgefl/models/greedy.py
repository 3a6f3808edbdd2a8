"""Greedy decoding of a causal language model, and the exact match of final numbers.

Source of the score: Cobbe et al. 2021 (arXiv 2110.14168), GSM8K: an answer is right if its final
number is that of the solution.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from edgefl.data.encoding import texts_of
from edgefl.models.workspace import Workspace

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
