"""MathInstruct: 262,039 mathematical instructions with answers, from 13 sources (Yue 2023).

The source of a problem is its label, for partitions. Source: Yue et al. 2023, MAmmoTH (arXiv
2309.05653).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from edgefl.data import gsm8k
from edgefl.data.dataset import Dataset
from edgefl.data.encoded_sets import Prompts, answered, evenly
from edgefl.data.instructions import ChatOptions, part
from edgefl.data.text_tables import file_in, table

FOLDERS = ("math_instruct", "MathInstruct")
NAMES = ("MathInstruct.jsonl", "MathInstruct.json", "train.jsonl")
PROMPT, ANSWER, SOURCE = "instruction", "output", "source"
HELD_OUT = 20  # one of so many problems is for testing
WHAT = "the file of MathInstruct (TIGER-Lab), as JSON lines or a JSON array"


class Options(ChatOptions):
    """``test``: the problems that the model is tested on."""

    test: Literal["gsm8k", "held_out"] = "gsm8k"
    """Problems for testing. `"gsm8k"`: the test part of GSM8K, as FedEcho does. `"held_out"`: every
    20th problem of MathInstruct, which is then not for training.
    """


def load(directory: Path, options: Options) -> Dataset:
    """Read MathInstruct.jsonl or .json in ``directory/math_instruct/`` or ``directory/``."""
    names = [f"{name}{end}" for name in NAMES for end in ("", ".gz", ".xz")]
    own = file_in(directory, FOLDERS, names, WHAT)
    tests = [gsm8k.file_of_part(directory, "test")] if options.test == "gsm8k" else []

    def read() -> tuple[Prompts, Prompts]:
        rows = table(own, (PROMPT, ANSWER), labels=[SOURCE])
        if tests:
            sums = table(tests[0], (gsm8k.PROMPT, gsm8k.ANSWER))
            return (
                part(rows, PROMPT, ANSWER, SOURCE),
                part(sums, gsm8k.PROMPT, gsm8k.ANSWER, None),
            )
        held = evenly(len(rows), max(1, len(rows) // HELD_OUT))
        train, test = ([row for row, away in zip(rows, held) if away == which] for which in (0, 1))
        return part(train, PROMPT, ANSWER, SOURCE), part(test, PROMPT, ANSWER, None)

    return answered("math_instruct", [own, *tests], options, options.chat, read)
