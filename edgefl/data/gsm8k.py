"""GSM8K: grade-school sums with worked answers, 7,473 + 1,319 problems (Cobbe 2021).

An answer ends with `#### NUMBER`. Source: Cobbe et al. 2021 (arXiv 2110.14168).
"""

from __future__ import annotations

from pathlib import Path

from edgefl.data.dataset import Dataset
from edgefl.data.encoded_sets import Prompts, answered
from edgefl.data.instructions import ChatOptions, part
from edgefl.data.text_tables import file_in, table

FOLDERS = ("gsm8k", "GSM8K")
PROMPT, ANSWER = "question", "answer"
WHAT = "a file of GSM8K (github.com/openai/grade-school-math, grade_school_math/data)"

Options = ChatOptions


def load(directory: Path, options: ChatOptions) -> Dataset:
    """Read train.jsonl and test.jsonl in ``directory/gsm8k/`` or ``directory/``."""
    paths = [file_of_part(directory, name) for name in ("train", "test")]

    def read() -> tuple[Prompts, Prompts]:
        train, test = (part(table(path, (PROMPT, ANSWER)), PROMPT, ANSWER, None) for path in paths)
        return train, test

    return answered("gsm8k", paths, options, options.chat, read)


def file_of_part(directory: Path, name: str) -> Path:
    """Return the file of "train" or "test". UserError if there is none."""
    names = [f"{name}.jsonl{end}" for end in ("", ".gz", ".xz")]
    return file_in(directory, FOLDERS, names, WHAT)
