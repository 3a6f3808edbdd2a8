"""Encoded texts and pretrained models: where their files are, and what fits together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edgefl.config.experiment import Experiment
from edgefl.data import encoding
from edgefl.data.dataset import Dataset
from edgefl.data.offline_transformers import TOKENIZER_FILES
from edgefl.data.paths import data_dir
from edgefl.data.task import Task
from edgefl.errors import UserError
from edgefl.models.pretrained_options import PretrainedOptions

if TYPE_CHECKING:
    from edgefl.compiled.network import Network


KINDS = {  # Dataset.tokens -> the texts in words, and a model that takes them
    "": ("texts without a tokenizer, or pictures", "textcnn or cnn"),
    "labels": ("encoded texts with labels", "bert_classifier"),
    "next": ("encoded prompts with answers", "causal_lm"),
}
SETS = "mrpc, agnews and sentences have labels; gsm8k, math_instruct and instructions have answers"


def placed(options: BaseModel, experiment: Experiment) -> BaseModel:
    """Return a model's options with its directory on this machine, if they have one."""
    if not isinstance(options, PretrainedOptions):
        return options
    return options.placed(data_dir(experiment.data.dir, os.environ))


def check(experiment: Experiment, build: Any, found: Dataset) -> None:
    """UserError unless the model takes the data set's kind of texts, in its own tokens.

    A model's file says so by ``TAKES``, in the words of ``Dataset.tokens``.
    """
    takes = getattr(sys.modules[build.__module__], "TAKES", "")
    if takes != found.tokens:
        have, model = KINDS[found.tokens]
        hint = f'such as {model}; a model of your own says TAKES = "{found.tokens}"'
        if takes:
            hint = f"for {KINDS[takes][0]}: {SETS}"
        raise UserError(
            f"model {experiment.model.name!r}: data set {experiment.data.name!r} has {have}:"
            f" expected a {'data set' if takes else 'model'} {hint}"
        )
    if takes == "next" and experiment.evaluation.by_label:
        raise UserError(
            "evaluation.by_label: expected false with a causal language model, which has no labels"
        )
    _check_tokenizer(experiment, found)


def task(found: Dataset, model: Callable[[], Any], network: Network | None = None) -> Task:
    """Return the task of a data set, with the loss and the metric of its targets."""
    if found.tokens != "next":
        return Task(found, model, network=network)
    from edgefl.models.token_loss import counted_tokens, next_token_loss, right_tokens

    return Task(found, model, next_token_loss, right_tokens, counted_tokens)


def tokenizer(experiment: Experiment, found: Dataset) -> Any:
    """Return the tokenizer of transformers that encodes the texts; None without one."""
    if not found.tokens:
        return None
    directory = data_dir(experiment.data.dir, os.environ)
    options = encoding.TokenOptions(tokenizer=experiment.data.options().get("tokenizer"))
    chosen = options.placed(directory, experiment.model.options().get("path"))
    return encoding.tokenizer_at(Path(chosen.tokenizer or ""))


def _check_tokenizer(experiment: Experiment, found: Dataset) -> None:
    """UserError if the data has another tokenizer than the one next to the model's weights."""
    own, path = experiment.data.options().get("tokenizer"), experiment.model.options().get("path")
    if not (own and path) or own == path or not found.tokens:
        return
    directory = data_dir(experiment.data.dir, os.environ) / Path(path).expanduser()
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        return
    if encoding.vocabulary_digest(encoding.tokenizer_at(directory)) != found.tokenizer:
        raise UserError(
            f"data.tokenizer: {own!r} has another vocabulary than the tokenizer of the model in"
            f" {directory}: expected that one (leave data.tokenizer out)"
        )
