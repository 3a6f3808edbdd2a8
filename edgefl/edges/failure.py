"""Why a run on a device has no outcome: an algorithm, a model or its data may raise in training.

That is no reason to stop the edge: its task has failed, which the coordinator is told.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from edgefl.errors import UserError, own_place
from edgefl.protocol.messages import MOST_REASON, MOST_TRACE

BEFORE = "before its first step"


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """``reason``: the step, its batch, and the exception in one line; ``trace``: its traceback."""

    reason: str
    trace: str


def training_failure(error: Exception, where: str, module: str) -> TrainingFailure:
    """``where`` it happened; ``module``: the algorithm's, whose line is named if it has one in the
    traceback. Both texts are short enough for their message.
    """
    name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    told = " ".join(f"{where}: {name}{error}{own_place(error, module)}".split())
    trace = _bytes("".join(traceback.format_exception(error)))
    return TrainingFailure(_text(_bytes(told)[:MOST_REASON]), _text(trace[-MOST_TRACE:]))


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _text(data: bytes) -> str:
    return data.decode(errors="ignore")  # a letter at the border may be cut
