"""Failures of training: an algorithm, a model or its data may raise an exception.

The edge goes on: its task has failed, and it reports that to the coordinator.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from edgefl.errors import UserError, own_place, told
from edgefl.protocol.messages import MOST_REASON, MOST_TRACE

BEFORE = "before its first step"


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """Why a run has no outcome.

    ``reason``: the step, its batch and the exception in one line. ``trace``: the traceback.
    """

    reason: str
    trace: str


def training_failure(error: BaseException, where: str, module: str) -> TrainingFailure:
    """Describe an exception in training. Both texts are short enough for their message.

    ``where``: where in the run it happened. ``module``: the algorithm's module; the reason names
    its line if the traceback has one.
    """
    text = str(error) if isinstance(error, UserError) else told(error, module)
    line = " ".join(f"{where}: {text}{own_place(error, module)}".split())
    trace = _bytes("".join(traceback.format_exception(error)))
    return TrainingFailure(_text(_bytes(line)[:MOST_REASON]), _text(trace[-MOST_TRACE:]))


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _text(data: bytes) -> str:
    return data.decode(errors="ignore")  # the first or last character may be cut
