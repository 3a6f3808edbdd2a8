"""Instructions: your own prompts with answers, from JSON lines, for causal language models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.data.encoded_sets import OwnFiles, Prompts, answered
from edgefl.data.encoding import TokenOptions
from edgefl.data.text_tables import Row, numbered, table


class ChatOptions(TokenOptions):
    """``chat``: the form of a prompt."""

    chat: bool = False
    """Whether prompts have the form of the tokenizer's chat template, as instructed models expect;
    otherwise a prompt is a line of its own.
    """


class Options(OwnFiles, ChatOptions):
    """Names of the columns."""

    prompt: str = "prompt"
    """Column of the prompt. It is not part of the loss."""
    answer: str = "answer"
    """Column of the answer."""
    label: str | None = None
    """Column by which partitions divide the rows, as by a label; none: all rows are alike."""


def load(directory: Path, options: Options) -> Dataset:
    """Read the files that the options name in ``directory``."""
    paths = options.paths(directory)

    def read() -> tuple[Prompts, Prompts]:
        wanted = (options.prompt, options.answer)
        labels = [] if options.label is None else [options.label]
        train, test = table(paths[0], wanted, labels=labels), table(paths[1], wanted)
        return (
            part(train, options.prompt, options.answer, options.label),
            part(test, options.prompt, options.answer, None),
        )

    return answered("instructions", paths, options, options.chat, read)


def part(rows: Sequence[Row], prompt: str, answer: str, label: str | None) -> Prompts:
    """Return rows of a table as prompts with answers."""
    return Prompts(
        [str(row[prompt]) for row in rows],
        [str(row[answer]) for row in rows],
        np.zeros(len(rows), np.int64) if label is None else numbered([row[label] for row in rows]),
    )
