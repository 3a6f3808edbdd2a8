"""Kinds of tasks that plug-ins bring: ``task = "KIND:..."`` in an experiment.

The core trains a torch module on arrays. A plug-in may bring something else that edges can train,
such as a Flower app. It registers an object with the methods of ``TaskKind`` as an entry point of
the group ``edgefl.task_kinds``, with the word before the colon as its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgefl.entry_points import entries, loaded

if TYPE_CHECKING:
    from edgefl.config.errors import Source
    from edgefl.config.experiment import Experiment

GROUP = "edgefl.task_kinds"


class TaskKind(Protocol):
    """What the core asks of a kind of tasks. Only ``learning`` may import what is optional."""

    clients_evaluate: bool
    """Whether each edge evaluates the model by itself, so that clients.csv has their scores."""

    def check_name(self, task: str, folders: Sequence[Path]) -> None:
        """UserError unless ``task`` names a task in one of ``folders``."""
        ...

    def check(self, experiment: Experiment, source: Source, base: Path | None) -> None:
        """UserError for the first thing in ``experiment`` that such a task cannot do."""
        ...

    def digest(self, task: str, folders: Sequence[Path]) -> str:
        """Return a digest of the task's files; "" if there is no such task now."""
        ...

    def learning(self, experiment: Experiment, base: Path | None) -> Any:
        """Return the ``edgefl.clocks.setup.learning.Learning`` of a process."""
        ...


def kind_of(task: str | None) -> TaskKind | None:
    """Return the kind of ``task``; None if it is one of the core's, or there is no task.

    UserError if its plug-in cannot be loaded.
    """
    name, colon, _ = (task or "").partition(":")
    entry = entries(GROUP).get(name) if colon else None
    return None if entry is None else loaded(entry)
